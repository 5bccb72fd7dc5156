//! The flags of the admission webhooks, and of other servers that get certificates.

use crate::certificates::{self, METRIC_AGENT, WEBHOOKS};
use crate::webhook::{self, Limits, Metrics, Server};
use anyhow::Context as _;
use clap::{ArgAction, Args};
use control_runtime::CacheReader;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
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

    /// Write the certificates of the metric agent.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    metric_agent: bool,

    /// Label ShadowPods with the user who creates them, and limit them by its Quota.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    enable_resource_enforcement: bool,

    /// Seconds of the tolerations for nodes that are not ready or unreachable, which the API server adds to pods.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(i64).range(0..))]
    default_toleration_seconds: i64,
}

impl WebhookArgs {
    /// Returns whether any server gets certificates.
    pub(super) fn has_certificates(&self) -> bool {
        self.webhook || self.metric_agent
    }

    /// Returns the settings of the certificates, with Liqo in `namespace`.
    pub(super) fn certificates(
        &self,
        namespace: &str,
        installation: Option<OwnerReference>,
    ) -> certificates::Settings {
        let servers = [
            (self.webhook, &WEBHOOKS),
            (self.metric_agent, &METRIC_AGENT),
        ];
        let servers = servers.into_iter().filter(|(is_enabled, _)| *is_enabled);

        certificates::Settings {
            namespace: namespace.to_owned(),
            installation,
            servers: servers.map(|(_, server)| server).collect(),
            further: match self.webhook {
                true => webhook::registrations(),
                false => Vec::new(),
            },
            issue: certificates::issue,
        }
    }

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
