//! The report of a peer.

use super::boxes::{Item, draw};
use super::foreign::{self, Module};
use super::local::foreign_clusters;
use super::resources::{Node, Slice};
use super::virtual_nodes;
use crate::cluster::Cluster;
use crate::{objects, tenant};
use anyhow::{Result, bail};
use control_api::networking::configuration::ClusterCidrs;
use control_api::{Configuration, GatewayClient, GatewayServer, ResourceSlice, VirtualNode};
use serde_json::{Value, json};

/// The report of `liqoctl info peer` for one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(super) id: String,
    pub(super) role: String,
    pub(super) api_server: String,
    pub(super) networking: Module,
    pub(super) authentication: Module,
    pub(super) offloading: Module,
    pub(super) remote: Cidrs,
    pub(super) remapped: Cidrs,
    pub(super) gateway: Option<Gateway>,
    pub(super) slices: Vec<Slice>,
    pub(super) nodes: Vec<Node>,
}

/// CIDRs by type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cidrs {
    pub(super) pod: Vec<String>,
    pub(super) external: Vec<String>,
}

/// The endpoint of the tunnel's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gateway {
    /// `Server` or `Client`: the role of the peer.
    pub(super) role: &'static str,
    pub(super) addresses: Vec<String>,
    pub(super) port: i32,
}

/// Reads the objects of the named peers, or of all peers if `ids` is empty.
///
/// # Errors
///
/// Returns an error if the API server fails, or if a named peer does not exist.
pub(crate) async fn collect(cluster: &Cluster, ids: &[String]) -> Result<Vec<Report>> {
    let all = foreign_clusters(cluster).await?;
    let known: Vec<String> = all.iter().map(foreign::id).collect();
    if let Some(unknown) = ids.iter().find(|id| !known.contains(id)) {
        bail!(
            "peer {unknown} does not exist; existing peers: {}",
            or_none(&known)
        );
    }
    let mut reports = Vec::new();
    for object in &all {
        let id = foreign::id(object);
        if !ids.is_empty() && !ids.contains(&id) {
            continue;
        }
        let mut report = Report {
            role: foreign::role(object),
            api_server: foreign::api_server(object),
            networking: foreign::module(object, "networking"),
            authentication: foreign::module(object, "authentication"),
            offloading: foreign::module(object, "offloading"),
            remote: Cidrs::default(),
            remapped: Cidrs::default(),
            gateway: None,
            slices: Vec::new(),
            nodes: Vec::new(),
            id,
        };
        if let Some(namespace) = tenant::find(cluster, &report.id).await? {
            let (configuration, client, server, slices, nodes) = tokio::try_join!(
                objects::find::<Configuration>(cluster, &namespace, &report.id),
                objects::find::<GatewayClient>(cluster, &namespace, &report.id),
                objects::find::<GatewayServer>(cluster, &namespace, &report.id),
                objects::list::<ResourceSlice>(cluster, &namespace, &report.id),
                objects::list::<VirtualNode>(cluster, &namespace, &report.id),
            )?;
            report.slices = slices.iter().map(Slice::of).collect();
            let workloads = virtual_nodes::workloads(cluster, &nodes).await?;
            let nodes = nodes.iter().zip(workloads);
            report.nodes = nodes.map(|(node, it)| Node::of(node, it)).collect();
            report.network(configuration.as_ref(), client.as_ref(), server.as_ref());
        }
        reports.push(report);
    }
    Ok(reports)
}

fn or_none(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

impl Cidrs {
    fn of(cidrs: Option<&ClusterCidrs>) -> Self {
        cidrs.map_or_else(Self::default, |cidrs| Self {
            pod: cidrs.pod.clone(),
            external: cidrs.external.clone(),
        })
    }

    fn value(&self) -> Value {
        if *self == Self::default() {
            return json!({});
        }
        json!({"pod": self.pod, "external": self.external})
    }
}

impl Report {
    /// Returns the peer's cluster ID.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Adds the CIDRs and the gateway of the network's objects.
    pub(super) fn network(
        &mut self,
        configuration: Option<&Configuration>,
        client: Option<&GatewayClient>,
        server: Option<&GatewayServer>,
    ) {
        if let Some(configuration) = configuration {
            let spec = configuration.spec.remote.as_ref();
            let status = configuration
                .status
                .as_ref()
                .and_then(|status| status.remote.as_ref());
            self.remote = Cidrs::of(spec.map(|remote| &remote.cidr));
            self.remapped = Cidrs::of(status.map(|remote| &remote.cidr));
        }
        let dialed = client.and_then(|client| client.spec.endpoint.as_ref());
        let served = server.and_then(|server| server.status.as_ref()?.endpoint.as_ref());
        let gateway = |role, endpoint: &control_api::networking::endpoint::Endpoint| Gateway {
            role,
            addresses: endpoint.addresses.clone(),
            port: endpoint.port.unwrap_or_default(),
        };
        self.gateway = dialed
            .map(|endpoint| gateway("Server", endpoint))
            .or_else(|| served.map(|endpoint| gateway("Client", endpoint)));
    }

    /// Returns the report for `-o` and `--get`.
    pub(crate) fn value(&self) -> Value {
        let gateway = match &self.gateway {
            Some(gateway) => json!({
                "address": gateway.addresses, "port": gateway.port, "role": gateway.role,
            }),
            None => json!({"address": null, "port": 0, "role": ""}),
        };
        let mut cidrs = json!({"remote": self.remote.value()});
        if self.remapped != Cidrs::default() {
            cidrs["remapped"] = self.remapped.value();
        }
        let mut value = json!({
            "info": {"clusterID": self.id, "role": self.role},
            "network": {"status": self.networking.status, "CIDRs": cidrs, "gateway": gateway},
            "authentication": {
                "status": self.authentication.status,
                "APIServerAddr": self.api_server,
                "resourceSlices": list(self.slices.iter().map(Slice::value)),
            },
            "offloading": {
                "status": self.offloading.status,
                "virtualNodes": list(self.nodes.iter().map(Node::value)),
            },
        });
        for (name, module) in [
            ("network", &self.networking),
            ("authentication", &self.authentication),
            ("offloading", &self.offloading),
        ] {
            if !module.alerts.is_empty() {
                value[name]["alerts"] = module.alerts.clone().into();
            }
        }
        value
    }

    /// Returns the report as boxes of text.
    pub(crate) fn boxes(&self) -> String {
        let info = [
            Item::entry("Cluster ID", &self.id),
            Item::entry("Role", &self.role),
        ];
        let mut authentication = module(&self.authentication);
        if !self.api_server.is_empty() {
            authentication.push(Item::entry("API server", &self.api_server));
        }
        let slices = self.slices.iter().map(Slice::item);
        authentication.extend(section("Resource slices", slices.collect()));
        let mut offloading = module(&self.offloading);
        let nodes = self.nodes.iter().map(Node::item);
        offloading.extend(section("Virtual nodes", nodes.collect()));
        let mut text = draw("Peer cluster info", &info);
        text += &draw("Network", &self.network_items());
        text += &draw("Authentication", &authentication);
        text += &draw("Offloading", &offloading);
        text
    }

    fn network_items(&self) -> Vec<Item> {
        let mut items = module(&self.networking);
        if self.networking.status == "Disabled" {
            return items;
        }
        let of = |key: &str, remote: &[String], remapped: &[String]| {
            let texts: Vec<String> = remote
                .iter()
                .enumerate()
                .map(|(i, cidr)| shown(cidr, remapped.get(i)))
                .collect();
            Item::entry(key, texts.join(", "))
        };
        let remote = vec![
            of("Pod CIDR", &self.remote.pod, &self.remapped.pod),
            of(
                "External CIDR",
                &self.remote.external,
                &self.remapped.external,
            ),
        ];
        items.push(Item::section("CIDR", vec![Item::section("Remote", remote)]));
        if let Some(gateway) = &self.gateway {
            let entries = vec![
                Item::entry("Role", gateway.role),
                Item::entry("Address", gateway.addresses.join(", ")),
                Item::entry("Port", gateway.port.to_string()),
            ];
            items.push(Item::section("Gateway", entries));
        }
        items
    }
}

/// Returns a list as upstream prints it: null if it is empty.
fn list(values: impl Iterator<Item = Value>) -> Value {
    let values: Vec<Value> = values.collect();
    match values.is_empty() {
        true => Value::Null,
        false => values.into(),
    }
}

fn section(title: &str, items: Vec<Item>) -> Option<Item> {
    (!items.is_empty()).then(|| Item::section(title, items))
}

fn module(module: &Module) -> Vec<Item> {
    let mut items = vec![Item::entry("Status", module.status)];
    if !module.alerts.is_empty() {
        let alerts = module.alerts.iter().cloned().map(Item::Line).collect();
        items.push(Item::section("Alerts", alerts));
    }
    items
}

fn shown(cidr: &str, remapped: Option<&String>) -> String {
    match remapped {
        Some(remapped) if remapped.is_empty() => format!("{cidr} → not mapped yet"),
        Some(remapped) if remapped != cidr => format!("{cidr} → Remapped to {remapped}"),
        Some(_) => cidr.to_owned(),
        None => format!("{cidr} → not mapped yet"),
    }
}

#[cfg(test)]
mod tests;
