//! The kubelet's API of the Node.

use super::Cli;
use crate::server::certificate::issue::{self, self_signed};
use crate::server::{
    Access, Api, ClientAuthority, Limits, Metrics, Provider, Server, Serving, Streams, listen,
};
use crate::settings::Settings;
use anyhow::Context as _;
use control_runtime::{Cluster, Runtime};
use k8s_openapi::jiff::Timestamp;
use tokio::net::TcpListener;

impl Cli {
    /// Returns the server with its listener; `None` without a Node.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound.
    pub(super) fn server(
        &self,
        runtime: &Runtime,
        settings: &Settings,
        metrics: Metrics,
    ) -> anyhow::Result<Option<(Server, TcpListener)>> {
        if !settings.creates_node {
            return Ok(None);
        }
        let address = self.listen_address;
        let listener = listen(address);
        let listener =
            listener.with_context(|| format!("--listen-address: failed to listen on {address}"))?;
        let (limits, serving) = (Limits::default(), Serving::default());
        let subject = issue::Server {
            node: settings.node.clone(),
            address: settings.address,
        };
        serving.set(self_signed(&subject, Timestamp::now())?);
        let clients = runtime.clients();
        let api = Api {
            cache: runtime.reader(),
            settings: settings.clone(),
            access: Access::new(clients.clone(), ClientAuthority::default(), &settings.node),
            provider: Provider::new(clients, Cluster::remote(&settings.provider)),
            streams: Streams::new(limits.streams, metrics.clone()),
            metrics: metrics.clone(),
        };

        let server = Server::new(api, serving, metrics, limits)?;
        Ok(Some((server, listener)))
    }
}
