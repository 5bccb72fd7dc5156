//! The servers that get certificates.

use super::target::Target;
use control_api::{annotations, labels};

/// A server that API servers connect to.
#[derive(Debug)]
pub(crate) struct Server {
    /// Purpose of the server, for Events.
    pub(super) purpose: &'static str,
    /// Name of the Secret with its certificates, in Liqo's namespace.
    pub(crate) secret: &'static str,
    /// Name of its Service, in Liqo's namespace.
    pub(crate) service: &'static str,
    /// Labels of the Secret, besides that of all objects of the controller manager.
    pub(super) labels: &'static [(&'static str, &'static str)],
    /// Annotations of the Secret.
    pub(super) annotations: &'static [(&'static str, &'static str)],
    /// The objects that state its authorities.
    pub(super) targets: &'static [Target],
}

/// The admission webhooks. All names are upstream's.
pub(crate) static WEBHOOKS: Server = Server {
    purpose: "the admission webhooks",
    secret: "liqo-webhook-certs",
    service: "liqo-webhook",
    labels: &[(labels::WEBHOOK, "true")],
    annotations: &[(annotations::WEBHOOK_SERVICE_NAME, "liqo-webhook")],
    targets: &[
        Target::Mutating("liqo-webhook"),
        Target::Validating("liqo-webhook"),
    ],
};

/// The metric agent. The APIService and the Service have upstream's names; upstream's agent issues a certificate to
/// itself, which the API server does not verify.
pub(crate) static METRIC_AGENT: Server = Server {
    purpose: "the metric agent",
    secret: "liqo-metric-agent-certs",
    service: "liqo-metric-agent",
    labels: &[],
    annotations: &[],
    targets: &[Target::ApiService("v1beta1.metrics.liqo.io")],
};

impl Server {
    /// Returns the DNS names of the Service. The API server verifies the first one.
    pub(crate) fn names(&self, namespace: &str) -> Vec<String> {
        let service = self.service;
        vec![
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.cluster.local"),
        ]
    }
}
