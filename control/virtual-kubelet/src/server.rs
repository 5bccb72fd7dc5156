//! The kubelet's API of the Node (HTTPS, port 10250), by which `kubectl logs`, `exec`, `attach`, `port-forward` and `top`
//! reach pods that run at the provider.
//!
//! ```text
//! listener -> connection -> api -> access        who sends the request, and may they
//!                            |
//!                            +---> target        the remote pod of a pod of this Node
//!                            +---> provider      its API server, with the credentials of this process
//!                            +---> scrape        metrics that it has collected for this cluster
//!
//! route        paths and the names in them (PURE)
//! attributes   the rights that requests need (PURE)
//! query        queries of a kubelet, and those of the provider (PURE)
//! upgrade      headers of requests that switch protocols (PURE)
//! identity     users of certificates and tokens (PURE)
//! review       reviews of tokens and rights (PURE)
//! decisions    reviews that are remembered (PURE)
//! exposition   metrics of the provider, without those of other pods (PURE)
//! summary      usage of the Node and its pods (PURE)
//! target       the pod that a request is about (PURE)
//! authority    authorities of client certificates
//! certificate  the serving certificate, and the watch of the authorities
//! tls, slots, streams, tunnel, splice, body: connections and their limits
//! ```

pub(crate) use access::Access;
pub(crate) use api::Api;
pub(crate) use authority::ClientAuthority;
pub(crate) use certificate::{CertificateController, CertificateType, Serving};
pub(crate) use identity::User;
pub(crate) use listener::{Limits, Server, listen};
pub(crate) use metrics::Metrics;
pub(crate) use provider::Provider;
pub(crate) use scrape::Scraper;
pub(crate) use streams::Streams;

mod access;
mod api;
mod attributes;
mod authority;
mod body;
pub(crate) mod certificate;
mod decisions;
mod exposition;
mod identity;
mod listener;
mod metrics;
mod provider;
mod query;
mod refusal;
mod review;
mod route;
mod scrape;
mod splice;
mod streams;
mod summary;
mod target;
mod tunnel;
mod upgrade;

#[cfg(test)]
mod tests;
