//! Step: a cluster has a GatewayClient.

use super::gateway::Gateway;
use crate::kinds::gateway::Spec;
use crate::objects;
use crate::state::State;
use crate::steps::{Lines, Step, Undo, lines};
use anyhow::Result;
use control_api::GatewayClient;

/// Writes the GatewayClient, and returns its name.
pub(crate) struct Client<'a>(pub(crate) Gateway<'a>);

impl Step for Client<'_> {
    type Desired = Spec<GatewayClient>;
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

    async fn observe(&self, spec: &Spec<GatewayClient>) -> Result<State<String>> {
        let existing = self.0.object::<GatewayClient>().await?;
        let name = self.0.name(existing.as_ref());
        let manifest = self.0.manifest(&name, spec);
        let place = self.0.side.cluster.place();
        let state = objects::state(existing.as_ref(), &manifest, &place);
        Ok(state.map(|()| name))
    }

    async fn apply(&self, spec: &Spec<GatewayClient>) -> Result<()> {
        let existing = self.0.object::<GatewayClient>().await?;
        let manifest = self.0.manifest(&self.0.name(existing.as_ref()), spec);
        let cluster = &self.0.side.cluster;
        cluster
            .apply(&self.0.api::<GatewayClient>(), manifest)
            .await?;
        Ok(())
    }

    fn undo(&self) -> Option<Box<dyn Undo + '_>> {
        Some(self.0.removal::<GatewayClient>("gateway client"))
    }
}
