//! Step: a cluster has a GatewayClient.

use super::gateway::Gateway;
use super::lines;
use crate::kinds::gateway::Template;
use crate::kinds::gateway_client::{self, Endpoint};
use crate::objects;
use crate::removal::Removal;
use crate::steps::{Lines, State, Step, Undo};
use anyhow::Result;
use control_api::GatewayClient;
use serde_json::Value;

/// Writes the GatewayClient, and returns its name.
pub(crate) struct Client<'a>(pub(crate) Gateway<'a>);

/// The desired GatewayClient.
pub(crate) struct ClientSpec {
    /// Endpoint of the GatewayServer.
    pub(crate) endpoint: Endpoint,
    /// MTU of the tunnel, in bytes.
    pub(crate) mtu: i64,
    /// The template for upstream's controllers.
    pub(crate) template: Template,
}

impl Client<'_> {
    fn manifest(&self, name: &str, spec: &ClientSpec) -> Value {
        let Gateway {
            side, namespace, ..
        } = self.0;
        let object = gateway_client::manifest(
            name,
            namespace,
            &side.peer,
            &spec.endpoint,
            spec.mtu,
            &spec.template,
        );
        side.cluster.with_metadata(object)
    }
}

impl Step for Client<'_> {
    type Desired = ClientSpec;
    type Output = String;

    fn lines(&self) -> Lines {
        Lines {
            scope: self.0.side.cluster.side,
            apply: lines(
                "Setting up gateway client",
                "Gateway client correctly set up",
            ),
            wait: None,
            goal: "setting up the gateway client",
        }
    }

    async fn observe(&self, spec: &ClientSpec) -> Result<State<String>> {
        let existing = self.0.object::<GatewayClient>().await?;
        let name = self.0.name(existing.as_ref());
        let manifest = self.manifest(&name, spec);
        let place = self.0.side.cluster.place();
        let state = objects::state(existing.as_ref(), &manifest, &place);
        Ok(state.map(|()| name))
    }

    async fn apply(&self, spec: &ClientSpec) -> Result<()> {
        let existing = self.0.object::<GatewayClient>().await?;
        let manifest = self.manifest(&self.0.name(existing.as_ref()), spec);
        let cluster = &self.0.side.cluster;
        cluster
            .apply(&self.0.api::<GatewayClient>(), manifest)
            .await?;
        Ok(())
    }

    fn undo(&self) -> Option<Box<dyn Undo + '_>> {
        let (side, namespace) = (self.0.side, self.0.namespace);
        let removal = Removal::<GatewayClient>::new(side, namespace, "gateway client");
        Some(Box::new(removal))
    }
}
