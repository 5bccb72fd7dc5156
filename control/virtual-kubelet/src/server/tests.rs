//! The server over real sockets, with an API server of this cluster and one of the provider.

mod access;
pub(crate) mod certificates;
mod client;
mod fake;
mod fixture;
mod limits;
mod logs;
mod metrics;
mod pods;
mod streams;
