//! The process that `cargo xtask bench runtime` measures: the control runtime with a controller that
//! follows all Pods, all EndpointSlices and the Secrets of tenant namespaces, as offloading will.
//!
//! It connects to the API server of KUBECONFIG. The only argument is the number of tenant namespaces.
//! It prints a line `listed` when all objects are in the cache, and a line `seen VALUE` for each
//! value of the annotation `bench.liqo.io/marker` of an EndpointSlice. It ends with its input.

#![forbid(unsafe_code)]

mod controller;
mod kept;

use anyhow::{Context as _, Result};
use control_runtime::{Metrics, Replicas, Runtime, Settings, transport};
use controller::Reflection;
use kube::Config;
use std::env;
use std::io::Read as _;
use tokio::sync::{mpsc, oneshot};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let tenants = env::args().nth(1).context("the argument is missing")?;
    let tenants = tenants.parse().context("the argument is no number")?;
    let config = Config::infer().await.context("KUBECONFIG is unusable")?;
    let settings = Settings {
        name: "follower",
        identity: "follower".to_owned(),
        random: || [0; 32],
    };
    let client = transport::client(&config)?;
    let (reports, mut reported) = mpsc::unbounded_channel();
    let mut runtime = Runtime::new(client, settings, Metrics::default());
    runtime.add(Reflection::new(tenants, reports), &Replicas::Active)?;

    let print = async {
        while let Some(report) = reported.recv().await {
            println!("{report}");
        }
    };
    tokio::select! {
        () = runtime.run(input_ends()) => {}
        () = print => {}
    }
    Ok(())
}

/// Completes at the end of the standard input.
async fn input_ends() {
    let (sender, ended) = oneshot::channel();
    std::thread::spawn(move || sender.send(std::io::stdin().read_to_end(&mut Vec::new())));
    drop(ended.await);
}
