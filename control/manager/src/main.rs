//! Reconciles the networking objects of a cluster: addresses, Services, keys and statuses.
//!
//! ```text
//! authentication  identities of consumers: keys, nonces, Tenants, certificates, Identities (PURE)
//! offloading  what a consumer may use at a provider: Quotas, VirtualNodes (PURE)
//! namespace   offloaded namespaces, and those of consumers (PURE)
//! shadow_pod  the pods of consumers (PURE)
//! node_failure  pods of consumers that a failed node cannot terminate (PURE)
//! shadow_endpoint_slice  endpoints of consumers (PURE)
//! endpoint_ip  IP objects by which providers reach endpoints outside of the pod CIDRs (PURE)
//! multicluster  Services that clusters export to their peers (PURE)
//! replication  objects of a consumer at its providers, and their statuses (PURE)
//! foreign_cluster  the summary of each peer (PURE)
//! network     networking: CIDRs and addresses, gateways, keys, Connections (PURE)
//! daemon_set  DaemonSets that the webhook has not changed (PURE)
//! certificates  certificates of the servers that API servers connect to, and their authorities (PURE, but for the keys)
//! webhook     admission webhooks, and their server
//! cli         arguments; starts the runtime with the controllers
//! ```
//!
//! All decisions are stored in objects, so a manager that starts reads the statuses and continues.
//! There are no finalizers: at its start, a manager removes leftovers of objects that were deleted
//! while no manager ran. `docs/security.md` lists its rights.

#![forbid(unsafe_code)]

mod authentication;
mod certificates;
mod cli;
mod daemon_set;
mod endpoint_ip;
mod foreign_cluster;
#[cfg(test)]
mod golden;
mod installation;
mod metrics;
mod multicluster;
mod namespace;
mod network;
mod node_failure;
mod offloading;
mod replication;
#[cfg(test)]
mod rights;
mod shadow_endpoint_slice;
mod shadow_pod;
mod state;
mod webhook;

use clap::Parser as _;
use std::process::ExitCode;

/// With musl's allocator, a process that decodes objects spends a quarter of its CPU time on allocations.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    telemetry::logging::init();
    match cli.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
