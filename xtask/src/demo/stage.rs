//! The demo's two clusters.

use anyhow::{Context as _, Result, bail};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;
use tests::lab::Lab;
use tests::lab::pod::Pod;
use tests::lab::spec::{ClusterSpec, Spec};

/// The cluster whose gateways initiate sessions.
pub(super) const ROME: &str = "rome";

/// The cluster whose gateways are exposed.
pub(super) const MILAN: &str = "milan";

/// The address of the client in rome and of the server in milan.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 10);

/// The number of gateway replicas in each cluster.
pub(super) const REPLICAS: usize = 2;

const NODES: usize = 2;

/// The limit on the first handshakes and probes of all pairs, on a busy machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Two clusters, up and connected.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) lab: Lab,
    /// A pod in rome.
    pub(super) rome: Pod,
    /// A pod in milan, with the same address.
    pub(super) milan: Pod,
    /// The remapped address of the pod in milan, which rome uses.
    pub(super) milan_seen: Ipv4Addr,
    /// The remapped address of the pod in rome, which milan uses.
    pub(super) rome_seen: Ipv4Addr,
}

impl Stage {
    /// Creates the clusters, starts their processes and waits until all replicas are
    /// connected.
    ///
    /// # Errors
    ///
    /// Returns an error that names what is missing.
    pub(super) fn build() -> Result<Self> {
        let cluster = |name| ClusterSpec::new(name).nodes(NODES).replicas(REPLICAS);
        let spec = Spec::new()
            .cluster(cluster(ROME))
            .cluster(cluster(MILAN))
            .peering(ROME, MILAN);
        let mut lab = Lab::build(spec)?;
        // Otherwise both clusters would remap the other's CIDR to the same prefix.
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

    /// Starts the gateways that claims have killed, and waits until all are connected.
    ///
    /// # Errors
    ///
    /// Returns an error that names what is missing.
    pub(super) fn revive(&mut self) -> Result<()> {
        for cluster in [ROME, MILAN] {
            for replica in 1..=REPLICAS {
                self.lab.gateway(cluster, replica).start()?;
            }
        }

        self.lab.wait_until_connected(CONNECT_TIMEOUT)
    }

    /// The CIDR to which `viewer` remaps the pod CIDR of `remote`.
    ///
    /// # Errors
    ///
    /// Returns an error if the clusters are not peers.
    pub(super) fn pods_seen(&self, viewer: &str, remote: &str) -> Result<String> {
        let original = self.pods(remote)?;
        let (network, length) = original.split_once('/').context("not a network")?;
        let seen =
            self.lab
                .seen_from(viewer, remote, network.parse().context("not an address")?)?;

        Ok(format!("{seen}/{length}"))
    }

    /// The pod CIDR of a cluster.
    ///
    /// # Errors
    ///
    /// Returns an error if it has none.
    pub(super) fn pods(&self, cluster: &str) -> Result<String> {
        let networks = &self.lab.cluster(cluster).spec.pod_cidrs;

        Ok(networks
            .first()
            .context("the cluster has no pod CIDR")?
            .to_string())
    }

    /// The output of `gateway status` for a replica, counted from 1.
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

    /// The folder of the status sockets.
    pub(super) fn run_dir(&self) -> std::path::PathBuf {
        self.lab.identity().run_dir().join("run")
    }

    /// The network namespace with a gateway's overlay device and TAP.
    pub(super) fn inner_netns(&self, cluster: &str, replica: usize) -> String {
        format!("liqo-{}", self.lab.gateway_instance(cluster, replica))
    }
}
