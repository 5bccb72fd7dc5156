//! The demo's two clusters in network namespaces.

use anyhow::{Context as _, Result, bail};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;
use tests::lab::Lab;
use tests::lab::pod::Pod;
use tests::lab::spec::{ClusterSpec, Spec};

/// The name of the cluster whose gateways have the client role.
pub(super) const ROME: &str = "rome";

/// The name of the cluster whose gateways have the server role.
pub(super) const MILAN: &str = "milan";

/// The address of the client pod in rome, and also of the server pod in milan.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 10);

/// The number of gateway replicas in each cluster.
pub(super) const REPLICAS: usize = 2;

const NODES: usize = 2;

/// Time limit for the first handshakes and probes of all gateway replicas, on a busy machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Two connected clusters with one pod each.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) lab: Lab,
    pub(super) rome: Pod,
    /// A pod in milan, which has the same address as the pod in rome.
    pub(super) milan: Pod,
    /// The remapped address under which rome reaches the pod in milan.
    pub(super) milan_seen: Ipv4Addr,
    /// The remapped address under which milan reaches the pod in rome.
    pub(super) rome_seen: Ipv4Addr,
}

impl Scenario {
    /// Creates the clusters, starts their processes, and waits until all gateway replicas are
    /// connected.
    ///
    /// # Errors
    ///
    /// Returns an error that names the missing session or process.
    pub(super) fn build() -> Result<Self> {
        let cluster = |name| ClusterSpec::new(name).nodes(NODES).replicas(REPLICAS);
        let spec = Spec::new()
            .cluster(cluster(ROME))
            .cluster(cluster(MILAN))
            .peering(ROME, MILAN);
        let mut lab = Lab::build(spec)?;
        // Reserves a CIDR in rome. Otherwise both clusters would remap the remote CIDR to the same
        // prefix.
        let office = Ipv4Net::new(Ipv4Addr::new(10, 0, 0, 0), 12).context("a network")?;
        lab.desired_mut(ROME)?
            .reserved
            .insert("office".to_owned(), office);
        lab.start()?;
        lab.wait_until_connected(CONNECT_TIMEOUT)?;
        let rome = lab.add_pod(ROME, 1, ADDRESS)?;
        let milan = lab.add_pod(MILAN, 1, ADDRESS)?;

        Ok(Self {
            milan_seen: lab.seen_from(ROME, MILAN, ADDRESS)?,
            rome_seen: lab.seen_from(MILAN, ROME, ADDRESS)?,
            lab,
            rome,
            milan,
        })
    }

    /// Restarts the gateways that claims have killed, and waits until all gateway replicas are
    /// connected.
    ///
    /// # Errors
    ///
    /// Returns an error that names the missing session or process.
    pub(super) fn restart_killed(&mut self) -> Result<()> {
        for cluster in [ROME, MILAN] {
            for replica in 1..=REPLICAS {
                self.lab.gateway(cluster, replica).start()?;
            }
        }

        self.lab.wait_until_connected(CONNECT_TIMEOUT)
    }

    /// Returns the CIDR to which the cluster `viewer` remaps the pod CIDR of the cluster `remote`.
    ///
    /// # Errors
    ///
    /// Returns an error if the clusters are not peers of each other.
    pub(super) fn pods_seen(&self, viewer: &str, remote: &str) -> Result<String> {
        let original = self.pods(remote)?;
        let (network, length) = original.split_once('/').context("not a network")?;
        let seen =
            self.lab
                .seen_from(viewer, remote, network.parse().context("not an address")?)?;

        Ok(format!("{seen}/{length}"))
    }

    /// Returns the pod CIDR of a cluster.
    ///
    /// # Errors
    ///
    /// Returns an error if the cluster has no pod CIDR.
    pub(super) fn pods(&self, cluster: &str) -> Result<String> {
        let networks = &self.lab.cluster(cluster).spec.pod_cidrs;

        Ok(networks
            .first()
            .context("the cluster has no pod CIDR")?
            .to_string())
    }

    /// Returns the output of `gateway status` for a replica. `replica` is counted from 1.
    ///
    /// # Errors
    ///
    /// Returns an error if the gateway does not respond.
    pub(super) fn gateway_status(&self, cluster: &str, replica: usize) -> Result<String> {
        let mut command = Command::new(&self.lab.binaries().gateway);
        command
            .args(["status", "--instance"])
            .arg(self.lab.gateway_instance(cluster, replica))
            .arg("--run-dir")
            .arg(self.run_dir());
        let output = command.output().context("failed to run gateway")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }

        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the folder of the gateways' status sockets.
    pub(super) fn run_dir(&self) -> std::path::PathBuf {
        self.lab.identity().run_dir().join("run")
    }

    /// Returns the name of the network namespace that contains a gateway's overlay device and TAP.
    pub(super) fn inner_netns(&self, cluster: &str, replica: usize) -> String {
        format!("liqo-{}", self.lab.gateway_instance(cluster, replica))
    }
}
