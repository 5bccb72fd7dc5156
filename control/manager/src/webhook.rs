//! Admission webhooks: decisions about requests to the API server before it stores an object.
//!
//! ```text
//! review       AdmissionReview: the request and the response (PURE)
//! handler      the path of each webhook, and its decision (PURE)
//! pod          affinity and tolerations of pods in offloaded namespaces: affinity, repatriation (PURE)
//! daemon_set   keeps the pods of DaemonSets off virtual nodes (PURE)
//! shadow_pod   the creator of a ShadowPod, and which of its fields may change: creator, fields (PURE)
//! patch        JSON Patch (PURE)
//!
//! serving      the certificate of each TLS handshake, from the Secret in the cache
//! server       accepts connections within limits: slots, connection, metrics
//! ```
//!
//! All replicas serve. A review reads objects in the cache, so a standby decides like the leader.

pub(crate) use creator::creator_label;
pub(crate) use handler::Settings;
pub(crate) use metrics::Metrics;
pub(crate) use server::{Limits, Readiness, Server};

use control_runtime::{Registration, Scope};

mod affinity;
mod creator;
mod daemon_set;
mod fields;
mod handler;
mod metrics;
mod patch;
mod pod;
mod repatriation;
mod requests;
mod review;
mod server;
mod serving;
mod shadow_pod;

/// Returns the resources that reviews read.
pub(crate) fn registrations() -> Vec<Registration> {
    vec![Registration::whole::<control_api::NamespaceOffloading>(
        Scope::All,
    )]
}

#[cfg(test)]
mod tests;
