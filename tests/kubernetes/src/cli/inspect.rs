//! The commands `list`, `kubeconfig` and `usage`.

use crate::cgroup::Layout;
use crate::cluster::Cluster;
use anyhow::{Result, bail};
use clap::Args;

/// Shows the clusters and their nodes.
#[derive(Args, Debug)]
pub(super) struct List {}

impl List {
    pub(super) fn run(&self) -> Result<()> {
        let clusters = Cluster::all()?;
        if clusters.is_empty() {
            eprintln!("no cluster is up; `cargo xtask cluster up rome` creates one");
            return Ok(());
        }
        println!(
            "{:<16} {:<26} {:<16} {:<8} {:<16} {:<14} VERSION",
            "CLUSTER", "NODE", "ADDRESS", "STATE", "PODS", "SERVICES"
        );
        for cluster in clusters {
            let specs = cluster.node_specs()?;
            let versions = cluster.artifacts().versions().unwrap_or_default();
            let version = versions.get("kube").map_or("?", String::as_str);
            for (node, spec) in cluster.nodes().iter().zip(specs) {
                let state = if node.pid().is_some() {
                    "runs"
                } else {
                    "stopped"
                };
                println!(
                    "{:<16} {:<26} {:<16} {:<8} {:<16} {:<14} {}",
                    cluster.name(),
                    node.name(),
                    spec.ip.to_string(),
                    state,
                    spec.pod_cidr.to_string(),
                    cluster.spec.service_cidr.to_string(),
                    version
                );
            }
        }

        Ok(())
    }
}

/// Prints the path of a cluster's kubeconfig, without any other output.
#[derive(Args, Debug)]
pub(super) struct Kubeconfig {
    /// Name of the cluster.
    #[arg(value_name = "NAME")]
    pub(super) name: String,
}

impl Kubeconfig {
    pub(super) fn run(&self) -> Result<()> {
        let path = Cluster::find(&self.name)?.kubeconfig();
        if !path.exists() {
            bail!("{} is not up yet: run `up {}`", self.name, self.name);
        }
        println!("{}", path.display());

        Ok(())
    }
}

/// Shows memory and processor time of each node since its start.
#[derive(Args, Debug)]
pub(super) struct Usage {}

impl Usage {
    pub(super) fn run(&self) -> Result<()> {
        let layout = Layout::detect()?;
        println!("{:<26} {:>12} {:>12}", "NODE", "MEMORY MiB", "CPU s");
        for cluster in Cluster::all()? {
            let mut memory = 0;
            let mut processor = 0.0;
            for node in cluster.nodes() {
                if node.pid().is_none() {
                    continue;
                }
                let usage = layout.usage(node.name())?;
                memory += usage.resident_bytes;
                processor += usage.processor.as_secs_f64();
                show(
                    node.name(),
                    usage.resident_bytes,
                    usage.processor.as_secs_f64(),
                );
            }
            show(&format!("{} (all)", cluster.name()), memory, processor);
        }

        Ok(())
    }
}

fn show(name: &str, bytes: u64, seconds: f64) {
    println!("{name:<26} {:>12} {seconds:>12.1}", bytes / (1 << 20));
}
