//! The two gateways of a peering: asked for, waited for, told each other's keys.

mod key;
mod upstream;

pub(crate) use key::share_key;
pub(crate) use upstream::{check_template, has_templates};

use super::args::Connect;
use crate::kinds::gateway::Template;
use crate::kinds::gateway_client::{self, Endpoint, Protocol};
use crate::kinds::gateway_server;
use crate::objects::{self, Kind};
use crate::pair::Side;
use crate::progress::begin;
use crate::wait::{Deadline, Found};
use anyhow::{Result, anyhow};
use control_api::{GatewayClient, GatewayServer};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt as _};
use serde_json::Value;

/// One side's gateway.
pub(crate) struct Gateway<'a> {
    /// The cluster.
    pub(crate) side: &'a Side,
    /// The tenant namespace in it.
    pub(crate) namespace: &'a str,
    /// Whether upstream's controllers make it, from a template.
    pub(crate) upstream: bool,
}

impl<'a> Gateway<'a> {
    /// Returns the gateway of a side.
    pub(crate) fn new(side: &'a Side, namespace: &'a str, upstream: bool) -> Self {
        Self {
            side,
            namespace,
            upstream,
        }
    }

    /// Returns the way to its objects of a kind.
    pub(crate) fn api<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.side.cluster.client.clone(), self.namespace)
    }

    /// Returns its object of a kind, or none.
    pub(crate) async fn object<K: Kind>(&self) -> Result<Option<K>> {
        objects::find(&self.side.cluster, self.namespace, &self.side.peer).await
    }
}

/// Asks for the server.
///
/// # Errors
///
/// Returns an error if the API server refuses it, or if upstream's pod does not come up.
pub(crate) async fn serve(
    gateway: &Gateway<'_>,
    options: &Connect,
    template: &Template,
    deadline: Deadline,
) -> Result<()> {
    let cluster = &gateway.side.cluster;
    let setting_up = begin(cluster.side, "Setting up gateway server");
    let wanted = options.endpoint();
    let existing = gateway.object::<GatewayServer>().await?;
    let name = existing.map_or_else(|| gateway.side.peer.clone(), |server| server.name_any());
    if gateway.upstream {
        upstream::delete_if_changed(gateway, &name, &wanted, deadline).await?;
    }
    let object = gateway_server::manifest(
        &name,
        gateway.namespace,
        &gateway.side.peer,
        &wanted,
        options.mtu,
        template,
    );
    cluster
        .apply(&gateway.api::<GatewayServer>(), object)
        .await?;
    setting_up.done("Gateway server correctly set up");
    if gateway.upstream {
        upstream::pod_ready(gateway, &name, deadline).await?;
    }
    Ok(())
}

/// Waits until the server says where it is reached.
///
/// # Errors
///
/// Returns an error with what the manager complains about when the time is over.
pub(crate) async fn endpoint(gateway: &Gateway<'_>, deadline: Deadline) -> Result<Endpoint> {
    let cluster = &gateway.side.cluster;
    let waiting = begin(
        cluster.side,
        "Waiting for gateway server Service to be created",
    );
    let found = deadline
        .until("making the gateway server reachable", async || {
            let server = gateway.object::<GatewayServer>().await?;
            if let Some(endpoint) = server.as_ref().and_then(reported) {
                return Ok(Found::Ready(endpoint));
            }
            let complaints = complaints::<GatewayServer>(gateway).await?;
            let hint = server.map_or("", |server| no_address_hint(&server));
            Ok(Found::Missing(format!(
                "the GatewayServer in {} has no address{hint}{complaints}",
                cluster.place()
            )))
        })
        .await?;
    waiting.done("Gateway server Service created successfully");
    Ok(found)
}

/// Asks for the client, which calls `endpoint`.
///
/// # Errors
///
/// Returns an error if the API server refuses it, or if upstream's pod does not come up.
pub(crate) async fn call(
    gateway: &Gateway<'_>,
    options: &Connect,
    endpoint: &Endpoint,
    template: &Template,
    deadline: Deadline,
) -> Result<()> {
    let cluster = &gateway.side.cluster;
    let setting_up = begin(cluster.side, "Setting up gateway client");
    let existing = gateway.object::<GatewayClient>().await?;
    let name = existing.map_or_else(|| gateway.side.peer.clone(), |client| client.name_any());
    let address = options.gw_client_address.clone();
    let endpoint = Endpoint {
        addresses: address.map_or_else(|| endpoint.addresses.clone(), |address| vec![address]),
        port: options.gw_client_port.unwrap_or(endpoint.port),
        protocol: endpoint.protocol,
    };
    let object = gateway_client::manifest(
        &name,
        gateway.namespace,
        &gateway.side.peer,
        &endpoint,
        options.mtu,
        template,
    );
    cluster
        .apply(&gateway.api::<GatewayClient>(), object)
        .await?;
    setting_up.done("Gateway client correctly set up");
    if gateway.upstream {
        upstream::pod_ready(gateway, &name, deadline).await?;
    }
    Ok(())
}

/// Returns what the manager says is wrong with a gateway's object, to be appended.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn complaints<K: Kind>(gateway: &Gateway<'_>) -> Result<String> {
    let resource = ApiResource::erase::<K>(&());
    let client = gateway.side.cluster.client.clone();
    let api = Api::<DynamicObject>::namespaced_with(client, gateway.namespace, &resource);
    let what = resource.plural.clone();
    let found = gateway
        .side
        .cluster
        .list(&api, &what, &objects::selector(&gateway.side.peer))
        .await?;
    let mut text = String::new();
    for object in &found {
        for complaint in unmet(&object.data) {
            text += &format!("; {} {} says {complaint}", K::kind(&()), object.name_any());
        }
    }
    Ok(text)
}

/// Returns reason and message of every condition that is false.
fn unmet(object: &Value) -> Vec<String> {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["status"] == "False")
        .map(|condition| {
            let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("reason"), text("message"))
        })
        .collect()
}

fn reported(server: &GatewayServer) -> Option<Endpoint> {
    let endpoint = server.status.as_ref()?.endpoint.as_ref()?;
    let addresses: Vec<String> = endpoint
        .addresses
        .iter()
        .filter(|address| !address.is_empty())
        .cloned()
        .collect();
    let port = endpoint.port.or(endpoint.ports.first().copied())?;
    if addresses.is_empty() {
        return None;
    }
    Some(Endpoint {
        addresses,
        port,
        protocol: match endpoint.protocol {
            Some(control_api::networking::endpoint::Protocol::Tcp) => Protocol::Tcp,
            Some(control_api::networking::endpoint::Protocol::Udp) | None => Protocol::Udp,
        },
    })
}

fn no_address_hint(server: &GatewayServer) -> &'static str {
    use control_api::networking::gateway_server::ServiceType;
    let endpoint = server.spec.endpoint.as_ref();
    match endpoint.map(|endpoint| endpoint.service_type) {
        Some(ServiceType::LoadBalancer) => {
            " (if that cluster has no load balancer, use --gw-server-service-type NodePort)"
        }
        Some(ServiceType::NodePort | ServiceType::ClusterIP | ServiceType::ExternalName) | None => {
            ""
        }
    }
}

/// Returns the name and UID of an object that exists.
fn identity(meta: &impl kube::ResourceExt) -> Result<(String, String)> {
    let uid = meta
        .uid()
        .ok_or_else(|| anyhow!("{} has no UID", meta.name_any()))?;
    Ok((meta.name_any(), uid))
}

#[cfg(test)]
mod tests;
