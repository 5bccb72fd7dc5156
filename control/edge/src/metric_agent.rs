//! An extension API server by which a consumer reads the metrics of its own pods from this cluster's kubelets.
//!
//! ```text
//! exposition      lines of the Prometheus text format (PURE)
//! families        samples of several kubelets, one description for each family (PURE)
//! filter          keeps the samples of one consumer's pods (PURE)
//! route           the paths of the API (PURE)
//! documents       discovery (PURE)
//! objects         what is kept of pods, nodes and namespaces (PURE)
//! selection       which kubelets a scrape asks, and for which pods (PURE)
//! request_header  whether a request is from the API server, and of which requester
//! authorization   which consumer's metrics a requester may read (PURE)
//!
//! kubelet         one request to a kubelet: kubelet_tls
//! scrape          requests to all kubelets, within limits: budget
//! api             one request: authentication, authorization, response
//! server          accepts connections within limits: serving, connection, metrics
//! ```
//!
//! The API server forwards the requests of consumers' virtual kubelets. It authenticates the requester, proves itself by
//! a client certificate, and names the requester in header fields. The agent follows pods, nodes and namespaces, so a
//! scrape needs no request to the API server, unless the rights of the requester must be reviewed.

mod api;
mod authorization;
mod budget;
mod documents;
mod exposition;
mod families;
mod filter;
mod kubelet;
mod kubelet_tls;
mod metrics;
mod objects;
mod request_header;
mod response;
mod route;
mod scrape;
mod selection;
mod server;
mod serving;

pub use kubelet::KubeletSettings;
pub use kubelet_tls::KubeletCertificates;
pub use metrics::Metrics;
pub use objects::{Follower, registrations};
pub use scrape::ScrapeLimits;
pub use server::{Server, State};
pub use serving::CertificateFiles;

use https_server::Timeouts;
use std::time::Duration;

/// Settings of the agent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How kubelets are asked.
    pub kubelets: KubeletSettings,
    /// Certificate and key of the agent.
    pub certificate: CertificateFiles,
    /// Limits of scrapes.
    pub limits: ScrapeLimits,
    /// Time limits of connections.
    pub timeouts: Timeouts,
}

/// Default time limits of connections.
pub const TIMEOUTS: Timeouts = Timeouts {
    start: Duration::from_secs(30),
    idle: Duration::from_secs(120),
    response: Some(Duration::from_secs(30)),
    endpoint_removal: Duration::from_secs(3),
    drain: Duration::from_secs(15),
};

#[cfg(test)]
mod tests;
