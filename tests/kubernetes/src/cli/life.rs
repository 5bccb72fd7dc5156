//! The commands `up` and `down`.

use super::build::Build;
use super::{Interrupted, runtime};
use crate::cluster::{self, Cluster, Options};
use crate::diagnosis;
use crate::place::{self, Artifacts};
use crate::spec::{KubeProxy, Spec};
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use ipnet::Ipv4Net;
use nix::unistd::Uid;
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinSet, LocalSet};

/// Creates clusters in parallel. Builds missing artifacts first.
///
/// Does not change a cluster that is up. Creates missing parts of an existing cluster.
#[derive(Args, Debug)]
pub(super) struct Up {
    /// Names of clusters.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// Number of nodes of each cluster, including the control plane [default: 2].
    #[arg(long, value_name = "N")]
    nodes: Option<u8>,

    /// Number of additional hollow nodes of each cluster, which are ready but run no containers.
    #[arg(long, value_name = "N")]
    hollow: Option<u16>,

    /// CIDR of pods [default: 10.244.0.0/16].
    #[arg(long, value_name = "CIDR")]
    pod_cidr: Option<Ipv4Net>,

    /// CIDR of Services [default: 10.96.0.0/16].
    #[arg(long, value_name = "CIDR")]
    service_cidr: Option<Ipv4Net>,

    /// Mode of kube-proxy [default: nftables].
    #[arg(long, value_name = "MODE")]
    kube_proxy: Option<KubeProxy>,

    /// Also assign IPv6 addresses to nodes, pods and Services.
    #[arg(long)]
    ipv6: bool,

    /// The Kubernetes version, such as 1.35.
    #[arg(long, value_name = "VERSION")]
    k8s_version: Option<String>,

    /// Lifetime of certificates, in seconds [default: ten years].
    #[arg(long, value_name = "SECONDS")]
    certificate_lifetime: Option<u64>,

    /// Network of the nodes of all clusters [default: 172.18.0.0/16].
    #[arg(long, value_name = "CIDR")]
    underlay: Option<Ipv4Net>,
}

impl Up {
    pub(super) fn run(self) -> Result<()> {
        ensure!(
            Uid::effective().is_root(),
            "a cluster needs namespaces and mounts: run this as root"
        );
        let specs = self.specs()?;
        check_modes(&specs)?;
        let artifacts = Build {
            k8s_version: specs.first().and_then(|spec| spec.version.clone()),
            quick: false,
        }
        .run()?;

        let start = Instant::now();
        eprintln!("==> Creating {}", self.names.join(", "));
        let options = Options {
            underlay: self.underlay,
        };
        let tasks = LocalSet::new();
        runtime()?.block_on(tasks.run_until(all(specs, artifacts, options)))?;
        eprintln!("    done ({:.1} s)", start.elapsed().as_secs_f64());

        Ok(())
    }

    /// Returns the spec of each cluster.
    ///
    /// # Errors
    ///
    /// Returns an error that names the invalid flag.
    pub(super) fn specs(&self) -> Result<Vec<Spec>> {
        let specs: Vec<Spec> = self
            .names
            .iter()
            .map(|name| self.spec(name))
            .collect::<Result<_>>()?;
        for (index, spec) in specs.iter().enumerate() {
            spec.check()?;
            ensure!(
                !specs[..index].iter().any(|other| other.name == spec.name),
                "{} is repeated",
                spec.name
            );
        }

        Ok(specs)
    }

    /// Returns the spec of the existing cluster or the default spec, with the changes of the flags.
    fn spec(&self, name: &str) -> Result<Spec> {
        let mut spec = match cluster::names()?.iter().any(|known| known == name) {
            true => Cluster::find(name)?.spec,
            false => Spec::new(name),
        };
        spec.nodes = self.nodes.unwrap_or(spec.nodes);
        spec.hollow = self.hollow.unwrap_or(spec.hollow);
        spec.pod_cidr = self.pod_cidr.unwrap_or(spec.pod_cidr);
        spec.service_cidr = self.service_cidr.unwrap_or(spec.service_cidr);
        spec.kube_proxy = self.kube_proxy.unwrap_or(spec.kube_proxy);
        spec.ipv6 |= self.ipv6;
        spec.version = self.k8s_version.clone().or(spec.version);
        spec.certificate_seconds = self
            .certificate_lifetime
            .unwrap_or(spec.certificate_seconds);

        Ok(spec)
    }
}

/// Checks that the kernel has the IP virtual server (IPVS) if a cluster uses it.
fn check_modes(specs: &[Spec]) -> Result<()> {
    if !specs.iter().any(|spec| spec.kube_proxy == KubeProxy::Ipvs) {
        return Ok(());
    }
    let loaded = std::path::Path::new("/proc/net/ip_vs").exists();
    if !loaded && crate::host::run("modprobe", &["ip_vs"]).is_err() {
        bail!(
            "--kube-proxy ipvs: this kernel has no IP virtual server (module ip_vs); use nftables or iptables"
        );
    }

    Ok(())
}

/// Creates all clusters. An interrupt removes the clusters that did not exist before.
async fn all(specs: Vec<Spec>, artifacts: Artifacts, options: Options) -> Result<()> {
    let before = cluster::names()?;
    let new: Vec<String> = specs
        .iter()
        .map(|spec| spec.name.clone())
        .filter(|name| !before.contains(name))
        .collect();
    let mut tasks = JoinSet::new();
    for spec in specs {
        let (artifacts, options) = (artifacts.clone(), options.clone());
        tasks.spawn_local(async move { cluster::up(spec, &artifacts, &options).await });
    }
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to receive signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("failed to receive signals")?;
    let mut hangup = signal(SignalKind::hangup()).context("failed to receive signals")?;
    let mut failure = None;
    let outcome: Result<()> = loop {
        let ended = tokio::select! {
            ended = tasks.join_next() => ended,
            _ = interrupt.recv() => break Err(Interrupted.into()),
            _ = terminate.recv() => break Err(Interrupted.into()),
            _ = hangup.recv() => break Err(Interrupted.into()),
        };
        match ended {
            None => break failure.map_or(Ok(()), Err),
            Some(Ok(Ok(_))) => {}
            Some(Ok(Err(error))) => failure = Some(error),
            Some(Err(error)) => failure = Some(error.into()),
        }
    };
    let Err(error) = outcome else {
        return Ok(());
    };
    tasks.shutdown().await;
    cluster::wait_for_starts();
    match clean_up(&new, !error.is::<Interrupted>()) {
        Ok(()) => Err(error),
        Err(left) => {
            Err(error.context(format!("cleanup after a failure is incomplete ({left:#})")))
        }
    }
}

/// Removes each new cluster that is incomplete. After a failure, writes a diagnosis of the cluster
/// first.
fn clean_up(new: &[String], failed: bool) -> Result<()> {
    for name in new {
        let cluster = Cluster::find(name);
        if cluster.as_ref().is_ok_and(Cluster::is_complete) {
            continue;
        }
        if let Ok(cluster) = cluster
            && failed
        {
            let folder = place::cache().join("failed");
            diagnosis::gather(&[cluster], &folder)?;
            eprintln!(
                "    the state of {name} is in {}",
                folder.join(name).display()
            );
        }
        if cluster::names()?.contains(name) {
            eprintln!("    removing {name}, which is incomplete");
            cluster::remove(name)?;
        }
    }

    cluster::clear_machine()
}

/// Removes clusters. With the last cluster, removes all state of the laboratory except built
/// artifacts.
#[derive(Args, Debug)]
pub(super) struct Down {
    /// Names of clusters.
    #[arg(required_unless_present = "all", value_name = "NAME")]
    pub(super) names: Vec<String>,

    /// Removes all clusters.
    #[arg(long, conflicts_with = "names")]
    pub(super) all: bool,
}

impl Down {
    pub(super) fn run(self) -> Result<()> {
        let start = Instant::now();
        let names = if self.all {
            cluster::names()?
        } else {
            self.names
        };
        let known = cluster::names()?;
        for name in names.iter().filter(|name| !known.contains(name)) {
            // The error of this call lists the existing clusters.
            Cluster::find(name)?;
        }
        let failures: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = names
                .iter()
                .map(|name| scope.spawn(move || (name, cluster::remove(name))))
                .collect();
            threads
                .into_iter()
                .filter_map(|thread| match thread.join() {
                    Ok((_, Ok(()))) => None,
                    Ok((name, Err(error))) => Some(format!("{name}: {error:#}")),
                    Err(_) => Some("a thread has panicked".to_owned()),
                })
                .collect()
        });
        cluster::clear_machine()?;
        ensure!(
            failures.is_empty(),
            "some parts were not removed: {}",
            failures.join("; ")
        );
        let names = if names.is_empty() {
            "nothing was up".to_owned()
        } else {
            names.join(", ")
        };
        eprintln!("    down: {names} ({:.1} s)", start.elapsed().as_secs_f64());

        Ok(())
    }
}
