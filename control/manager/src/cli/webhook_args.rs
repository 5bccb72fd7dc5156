//! The flags of the admission webhooks.

use crate::webhook::{self, Limits, Metrics, Server};
use anyhow::Context as _;
use clap::{ArgAction, Args};
use control_runtime::CacheReader;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// The flags of the admission webhooks.
#[derive(Debug, Args)]
pub(super) struct WebhookArgs {
    /// Serve admission webhooks, and write their certificates.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(super) webhook: bool,

    /// Serve admission webhooks at this address.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:9443")]
    webhook_address: SocketAddr,

    /// Label ShadowPods with the user who creates them, and limit them by its Quota.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    enable_resource_enforcement: bool,

    /// Seconds of the tolerations for nodes that are not ready or unreachable, which the API server adds to pods.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(i64).range(0..))]
    default_toleration_seconds: i64,
}

impl WebhookArgs {
    /// Returns the server, and the socket that API servers connect to.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound.
    pub(super) async fn server(
        &self,
        cache: CacheReader,
        namespace: &str,
        metrics: Metrics,
    ) -> anyhow::Result<(Server, TcpListener)> {
        let address = self.webhook_address;
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("failed to listen on {address}: choose another --webhook-address")
        })?;
        let server = Server::new(
            cache,
            namespace,
            self.settings(),
            metrics,
            Limits::default(),
        )
        .context("failed to set up TLS for the webhooks")?;

        Ok((server, listener))
    }

    /// Returns whether Quotas limit the pods of consumers.
    pub(super) fn enforces_resources(&self) -> bool {
        self.enable_resource_enforcement
    }

    pub(super) fn settings(&self) -> webhook::Settings {
        webhook::Settings {
            enforces_resources: self.enable_resource_enforcement,
            default_toleration_seconds: self.default_toleration_seconds,
        }
    }
}
