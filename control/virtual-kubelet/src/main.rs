//! Represents resources of a provider as a Node of this cluster, and has the pods of the Node run there.
//!
//! ```text
//! connection  kubeconfig of the provider -> its API server, and whether that responds (PURE)
//! node        VirtualNode -> Node, its Lease and conditions (PURE)
//! workload    Pod -> ShadowPod at the provider, and the status back (PURE)
//! pod         the transformation of pods and their statuses (PURE)
//! reflection  Services, EndpointSlices, Ingresses, ConfigMaps, Secrets and tokens at the provider (PURE)
//! server      the kubelet's API: logs, exec, attach, port-forward and metrics of pods at the provider
//! cli         arguments; starts the runtime with the controllers
//! ```

#![forbid(unsafe_code)]

mod cli;
mod connection;
mod kubeconfig;
mod node;
mod pod;
mod reflected;
mod reflection;
mod server;
mod settings;
#[cfg(test)]
mod side;
mod workload;

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
