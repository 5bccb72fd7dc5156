//! Steps: a cluster has a GatewayServer, and its address is known.

use super::gateway::Gateway;
use super::upstream;
use crate::kinds::gateway::Spec;
use crate::kinds::gateway_client::{Endpoint, Protocol};
use crate::objects;
use crate::state::State;
use crate::steps::{Lines, Step, Undo, lines};
use anyhow::Result;
use control_api::GatewayServer;
use control_api::networking::endpoint as reported;
use control_api::networking::gateway_server::ServiceType;

/// Writes the GatewayServer, and returns its name.
pub(crate) struct Server<'a>(pub(crate) Gateway<'a>);

impl Server<'_> {
    /// Returns whether upstream's Service differs from the desired one. Upstream never updates it, so
    /// the GatewayServer must be deleted and created again.
    async fn has_other_service(&self, name: &str, spec: &Spec<GatewayServer>) -> Result<bool> {
        Ok(self.0.upstream && upstream::service_differs(&self.0, name, &spec.endpoint).await?)
    }
}

impl Step for Server<'_> {
    type Desired = Spec<GatewayServer>;
    type Output = String;

    fn lines(&self) -> Lines {
        Lines {
            scope: self.0.side.cluster.side,
            apply: lines(
                "Setting up gateway server",
                "Gateway server correctly set up",
            ),
            wait: None,
            goal: "setting up the gateway server",
        }
    }

    async fn observe(&self, spec: &Spec<GatewayServer>) -> Result<State<String>> {
        let existing = self.0.object::<GatewayServer>().await?;
        let name = self.0.name(existing.as_ref());
        let place = self.0.side.cluster.place();
        let state = objects::state(existing.as_ref(), &self.0.manifest(&name, spec), &place);
        if matches!(state, State::Ready(())) && self.has_other_service(&name, spec).await? {
            return Ok(State::Pending);
        }
        Ok(state.map(|()| name))
    }

    async fn apply(&self, spec: &Spec<GatewayServer>) -> Result<()> {
        let cluster = &self.0.side.cluster;
        let api = self.0.api::<GatewayServer>();
        let existing = self.0.object::<GatewayServer>().await?;
        let name = self.0.name(existing.as_ref());
        if existing.is_some() && self.has_other_service(&name, spec).await? {
            cluster.delete(&api, "GatewayServer", &name).await?;
            if self.0.object::<GatewayServer>().await?.is_some() {
                // A finalizer delays the deletion. `observe` reports it.
                return Ok(());
            }
        }
        cluster.apply(&api, self.0.manifest(&name, spec)).await?;
        Ok(())
    }

    fn undo(&self) -> Option<Box<dyn Undo + '_>> {
        Some(self.0.removal::<GatewayServer>("gateway server"))
    }
}

/// Waits until the controller manager reports the address of the GatewayServer.
pub(crate) struct Address<'a>(pub(crate) Gateway<'a>);

impl Step for Address<'_> {
    type Desired = ();
    type Output = Endpoint;

    fn lines(&self) -> Lines {
        Lines {
            scope: self.0.side.cluster.side,
            apply: None,
            wait: lines(
                "Waiting for gateway server Service to be created",
                "Gateway server Service created successfully",
            ),
            goal: "making the gateway server reachable",
        }
    }

    async fn observe(&self, (): &()) -> Result<State<Endpoint>> {
        let server = self.0.object::<GatewayServer>().await?;
        if let Some(endpoint) = server.as_ref().and_then(address) {
            return Ok(State::Ready(endpoint));
        }
        let problems = self.0.problems::<GatewayServer>().await?;
        let hint = server.map_or("", |server| no_address_hint(&server));
        Ok(State::Waiting(format!(
            "the GatewayServer in {} has no address{hint}{problems}",
            self.0.side.cluster.place()
        )))
    }
}

/// Returns the endpoint in the status, if it is complete.
fn address(server: &GatewayServer) -> Option<Endpoint> {
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
            Some(reported::Protocol::Tcp) => Protocol::Tcp,
            Some(reported::Protocol::Udp) | None => Protocol::Udp,
        },
    })
}

fn no_address_hint(server: &GatewayServer) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn server(status: &Value) -> GatewayServer {
        from_value(json!({
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": "GatewayServer",
            "metadata": {"name": "rome"},
            "spec": {"endpoint": {"serviceType": "LoadBalancer"}},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn an_endpoint_needs_address_and_port() {
        let with = |endpoint: Value| address(&server(&json!({"endpoint": endpoint})));
        let expected = Endpoint {
            addresses: vec!["172.18.2.3".into()],
            port: 31110,
            protocol: Protocol::Udp,
        };

        let udp = json!({"addresses": ["172.18.2.3"], "port": 31110, "protocol": "UDP"});
        assert_eq!(with(udp), Some(expected.clone()));
        let tcp = json!({"addresses": ["172.18.2.3"], "ports": [31110], "protocol": "TCP"});
        let protocol = Protocol::Tcp;
        assert_eq!(
            with(tcp),
            Some(Endpoint {
                protocol,
                ..expected
            })
        );
        assert_eq!(address(&server(&json!({}))), None);
        // Upstream writes this while the pod's node is not ready.
        assert_eq!(with(json!({"addresses": [""], "port": 31110})), None);
    }

    #[test]
    fn the_hint_for_a_missing_load_balancer_names_the_flag() {
        assert!(no_address_hint(&server(&json!({}))).contains("NodePort"));
    }
}
