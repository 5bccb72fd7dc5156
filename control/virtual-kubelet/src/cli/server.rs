//! The kubelet's API of the Node.

use super::Cli;
use crate::server::certificate::Issue;
use crate::server::certificate::issue::{Request, self_signed};
use crate::server::{
    Access, Api, CertificateController, ClientAuthority, Limits, Metrics, Provider, Scraper,
    Server, Serving, Streams, listen,
};
use crate::settings::Settings;
use anyhow::Context as _;
use control_runtime::{Cluster, Replicas, Runtime};
use tokio::net::TcpListener;

impl Cli {
    /// Returns the server with its listener; `None` without a Node.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound.
    pub(super) fn server(
        &self,
        runtime: &mut Runtime,
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
        let authority = ClientAuthority::default();
        let issue = Issue {
            request: Request::new,
            self_signed,
        };
        let certificates = CertificateController::new(
            settings.clone(),
            self.certificate_type,
            issue,
            (serving.clone(), authority.clone()),
        );
        // All replicas serve.
        runtime.add(certificates, &Replicas::Active)?;
        let clients = runtime.clients();
        let provider = Provider::new(clients.clone(), Cluster::remote(&settings.provider));
        let api = Api {
            cache: runtime.reader(),
            settings: settings.clone(),
            access: Access::new(clients, authority, &settings.node),
            scraper: Scraper::new(provider.clone(), &settings.home, metrics.clone()),
            provider,
            streams: Streams::new(limits.streams, metrics.clone()),
            metrics: metrics.clone(),
        };

        let server = Server::new(api, serving, limits)?;
        Ok(Some((server, listener)))
    }
}
