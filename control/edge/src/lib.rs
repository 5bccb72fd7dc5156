//! Services of this cluster that other clusters reach, besides its pods.
//!
//! ```text
//! proxy         a CONNECT proxy in front of the API server, for peerings whose only path is the tunnel
//! metric_agent  an aggregated API: metrics of the kubelets, filtered to the pods of one consumer
//!
//! ```
//!
//! The two are processes of their own. The proxy has no credentials: a client of the proxy has the rights of its own
//! credentials at the API server. The metric agent reads kubelets with its own credentials, so it decides what a
//! requester may read.

#![forbid(unsafe_code)]

pub mod metric_agent;
pub mod proxy;
