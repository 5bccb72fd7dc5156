//! The Service that a GatewayServer requests.

use crate::network::kind::Key;
use crate::network::settings::Settings;
use control_api::networking::gateway_server::ServiceType;
use control_api::{GatewayServer, labels};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Name of the port.
const PORT_NAME: &str = "wireguard";

/// Default port of a server, the same as that of `liqoctl`.
const PORT_DEFAULT: u16 = 51840;

/// The parameters of a Service that a GatewayServer requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceRequest {
    pub(crate) type_: &'static str,
    port: u16,
    pub(crate) node_port: Option<u16>,
    load_balancer_ip: Option<String>,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
}

/// Reason why a GatewayServer gets no Service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "spec.endpoint.serviceType is ExternalName, which has no endpoints: \
         use LoadBalancer, NodePort or ClusterIP"
    )]
    ExternalName,
    #[error("spec.endpoint.{field} is {value}: use a number from 1 to 65535")]
    Port { field: &'static str, value: i32 },
}

impl ServiceRequest {
    /// Reads the request of a GatewayServer; `None` if it is invalid.
    pub(crate) fn of(server: &GatewayServer) -> Option<Self> {
        Self::read(server).ok()
    }

    /// Reads the request of a GatewayServer.
    ///
    /// # Errors
    ///
    /// Returns [`Refusal`] if the request is invalid.
    pub(crate) fn read(server: &GatewayServer) -> Result<Self, Refusal> {
        let endpoint = server.spec.endpoint.clone().unwrap_or_default();
        let type_ = match endpoint.service_type {
            ServiceType::ClusterIP => "ClusterIP",
            ServiceType::NodePort => "NodePort",
            ServiceType::LoadBalancer => "LoadBalancer",
            ServiceType::ExternalName => return Err(Refusal::ExternalName),
        };
        let port = endpoint.port.or(endpoint.ports.first().copied());
        let node_port = endpoint.node_port.or(endpoint.node_ports.first().copied());
        let number = |field, value: i32| {
            let port = u16::try_from(value).ok().filter(|port| *port != 0);
            port.ok_or(Refusal::Port { field, value })
        };
        // Upstream's `liqoctl` writes 0 for none.
        let node_port = node_port.filter(|port| *port != 0 && type_ != "ClusterIP");
        let mut labels = server.spec.service_labels.clone();
        // Users must not set the labels that select replicas and Services.
        for owned in [
            labels::COMPONENT,
            labels::GATEWAY_SERVICE,
            labels::MANAGED,
            labels::APP_PART_OF,
        ] {
            labels.remove(owned);
        }

        Ok(Self {
            type_,
            port: port.map_or(Ok(PORT_DEFAULT), |port| number("port", port))?,
            node_port: node_port.map(|port| number("nodePort", port)).transpose()?,
            load_balancer_ip: endpoint
                .load_balancer_ip
                .filter(|ip| !ip.is_empty() && type_ == "LoadBalancer"),
            annotations: server.spec.service_annotations.clone(),
            labels,
        })
    }

    /// Returns a short text that is equal for equal requests, also after a restart or an upgrade.
    pub(crate) fn hash(&self) -> String {
        let text = json!([
            self.type_,
            self.port,
            self.node_port,
            self.load_balancer_ip,
            self.annotations,
            self.labels,
        ]);
        // FNV-1a: the hash must be stable, but need not be collision resistant.
        let hash = text
            .to_string()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });

        format!("{:010x}", hash >> 24)
    }

    /// Returns the manifest of the Service.
    pub(crate) fn object(&self, key: &Key, settings: &Settings) -> Value {
        let mut labels = self.labels.clone();
        labels.insert(labels::MANAGED.to_owned(), "true".to_owned());
        labels.insert(labels::APP_PART_OF.to_owned(), "liqo".to_owned());
        labels.insert(labels::GATEWAY_SERVICE.to_owned(), self.hash());
        let mut port = json!({
            "name": PORT_NAME,
            "port": self.port,
            "protocol": "UDP",
            "targetPort": settings.gateway_port,
        });
        if let Some(node_port) = self.node_port {
            port["nodePort"] = json!(node_port);
        }
        let mut spec = json!({
            "type": self.type_,
            "ports": [port],
            "selector": {
                labels::COMPONENT: labels::COMPONENT_GATEWAY,
                labels::ACTIVE: "true",
            },
        });
        if self.type_ != "ClusterIP" {
            spec["externalTrafficPolicy"] = json!("Cluster");
        }
        if let Some(ip) = &self.load_balancer_ip {
            spec["loadBalancerIP"] = json!(ip);
        }

        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": labels,
                "annotations": self.annotations,
                "ownerReferences": Vec::from_iter(&settings.installation),
            },
            "spec": spec,
        })
    }
}
