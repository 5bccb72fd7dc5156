//! Step: two gateways are connected.

use super::gateway::Gateway;
use crate::commands::network::diagnose;
use crate::kinds::gateway_client::Endpoint;
use crate::state::State;
use crate::steps::{Lines, Step, lines};
use anyhow::Result;
use control_api::{Connection, GatewayClient, GatewayServer};

/// Waits until the gateways of both sides report that they are connected.
pub(crate) struct Connected<'a> {
    /// The gateway of the local side.
    pub(crate) client: Gateway<'a>,
    /// The gateway of the remote side.
    pub(crate) server: Gateway<'a>,
}

impl Step for Connected<'_> {
    /// The endpoint of the server, for the diagnosis.
    type Desired = Endpoint;
    type Output = ();

    fn lines(&self) -> Lines {
        Lines {
            scope: "",
            apply: None,
            wait: lines(
                "Waiting for the connection to be established",
                "Connection established: both sides are Connected",
            ),
            goal: "connecting",
        }
    }

    async fn observe(&self, endpoint: &Endpoint) -> Result<State<()>> {
        let (local, remote) = tokio::try_join!(
            self.client.object::<Connection>(),
            self.server.object::<Connection>(),
        )?;
        let local = diagnose::state(local.as_ref());
        let remote = diagnose::state(remote.as_ref());
        if local.is_connected() && remote.is_connected() {
            return Ok(State::Ready(()));
        }
        let (of_client, of_server) = tokio::try_join!(
            self.client.problems::<GatewayClient>(),
            self.server.problems::<GatewayServer>(),
        )?;
        let addresses = endpoint.addresses.join(", ");
        let diagnosis = diagnose::explain(&local, &remote, &addresses, endpoint.port);
        Ok(State::Waiting(format!("{diagnosis}{of_client}{of_server}")))
    }
}
