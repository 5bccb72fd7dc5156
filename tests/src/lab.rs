//! A laboratory: clusters, nodes and pods as network namespaces on one machine.
//!
//! ```text
//!  pod eth0 -- vethN  node  eth0 -- node-N  edge  up -- to-CLUSTER  core
//! ```
//!
//! The namespaces are `pod`, `node`, `edge` and `core`. The other names are those of devices. A
//! node routes between its pods and its cluster's edge router, and masquerades pods as CNIs do. The
//! edge router has a route to every pod of its cluster. The core router between the clusters has
//! routes to nodes only, because the clusters' pod addresses overlap. The program `gateway` runs in
//! pods, and `route-agent` on nodes.
//!
//! The name of each object of a laboratory contains the laboratory's id: the namespaces
//! `lq-<id>-<name>`, the instance names `lq-<id>-<name>` of gateways and route agents, and the run
//! directory `/run/liqo-lab/<id>`. Several laboratories can thus run at the same time, and
//! [`clean()`] finds the objects of a crashed laboratory.

mod address;
pub mod binaries;
mod change;
mod clean;
pub mod cluster;
mod diagnosis;
pub mod fabric;
mod identity;
pub mod key;
pub mod link;
pub mod netns;
pub mod node;
pub mod pod;
pub mod process;
pub mod spec;
pub mod status;
pub mod underlay;
pub mod wait;

pub use clean::{clean, clean_crashed, clean_on_signal};
pub use identity::Identity;

use anyhow::{Context as _, Result, ensure};
use binaries::Binaries;
use cluster::Cluster;
use fabric::Desired;
use key::Key;
use pod::Pod;
use process::Process;
use serde_json::Value;
use spec::{PeeringSpec, Spec};
use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use underlay::{Host, Underlay};

/// A running laboratory. Dropping the value removes the laboratory.
#[derive(Debug)]
pub struct Lab {
    // Rust drops fields in the order of declaration. Processes must end before their namespaces.
    processes: BTreeMap<String, Process>,
    clusters: BTreeMap<String, Cluster>,
    desired: BTreeMap<String, Desired>,
    peerings: Vec<PeeringSpec>,
    underlay: Underlay,
    binaries: Binaries,
    identity: Arc<Identity>,
}

impl Lab {
    /// Builds the network without starting gateways and route agents.
    ///
    /// # Errors
    ///
    /// Returns an error if the specification is invalid, or if the kernel refuses a request.
    pub fn build(spec: Spec) -> Result<Self> {
        let identity = Identity::claim()?;
        let underlay = Underlay::build(&identity)?;
        let mut lab = Self {
            processes: BTreeMap::new(),
            clusters: BTreeMap::new(),
            desired: BTreeMap::new(),
            peerings: Vec::new(),
            underlay,
            binaries: Binaries::find(),
            identity,
        };

        fs::create_dir_all(lab.log_dir()).context("failed to create the log directory")?;
        for cluster in spec.clusters {
            lab.build_cluster(cluster)?;
        }
        for peering in spec.peerings {
            lab.agree(peering)?;
        }

        Ok(lab)
    }

    /// Builds the network, starts all gateways and route agents, and waits until they are
    /// connected.
    ///
    /// # Errors
    ///
    /// Returns an error that names the missing sessions and the directory of the diagnosis.
    pub fn up(spec: Spec) -> Result<Self> {
        let mut lab = Self::build(spec)?;
        lab.start()
            .and_then(|()| lab.wait_until_connected(CONNECT_TIMEOUT))
            .map_err(|error| lab.diagnosed(error))?;

        Ok(lab)
    }

    /// Writes the fabric files of all clusters, and starts all gateways and route agents.
    ///
    /// # Errors
    ///
    /// Returns an error if `gateway plan` fails, or if a program cannot be started.
    pub fn start(&mut self) -> Result<()> {
        self.write_fabrics()?;

        let names: Vec<String> = self.clusters.keys().cloned().collect();
        for name in names {
            for number in 1..=self.cluster(&name).gateways.len() {
                self.start_gateway(&name, number)?;
            }
            for number in 1..=self.cluster(&name).nodes.len() {
                self.start_agent(&name, number)?;
            }
        }

        Ok(())
    }

    /// Returns the laboratory's id, run directory and lock.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Returns the network between the clusters.
    pub fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// Returns the clusters, ordered by name.
    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.values()
    }

    /// Returns the peerings between clusters of this laboratory, without those of
    /// [`Lab::add_remote`].
    pub fn peerings(&self) -> &[PeeringSpec] {
        &self.peerings
    }

    /// Returns the paths of the programs under test.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Returns the cluster with this ID.
    ///
    /// # Panics
    ///
    /// Panics if there is no such cluster.
    pub fn cluster(&self, name: &str) -> &Cluster {
        let cluster = self.clusters.get(name);
        cluster.unwrap_or_else(|| panic!("there is no cluster {name}"))
    }

    /// Returns a mutable reference to the cluster with this ID.
    ///
    /// # Panics
    ///
    /// Panics if there is no such cluster.
    pub fn cluster_mut(&mut self, name: &str) -> &mut Cluster {
        let cluster = self.clusters.get_mut(name);
        cluster.unwrap_or_else(|| panic!("there is no cluster {name}"))
    }

    /// Adds a pod with this address to the node with this number. Node numbers start at 1.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is taken or the node does not exist.
    ///
    /// # Panics
    ///
    /// Panics if there is no such cluster.
    pub fn add_pod(
        &mut self,
        cluster: &str,
        node: usize,
        address: impl Into<Ipv4Addr>,
    ) -> Result<Pod> {
        self.cluster_mut(cluster).add_pod(node, address.into())
    }

    /// Adds a machine to the underlay. The machine belongs to no cluster.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses to create the machine's namespace or link.
    pub fn add_host(&mut self) -> Result<Host> {
        self.underlay.add_host(&self.identity)
    }

    /// Returns the remapped address at which the cluster `viewer` reaches a pod of the cluster
    /// `remote`. `address` is the pod's original address.
    ///
    /// # Errors
    ///
    /// Returns an error if the two clusters do not peer, or if the address is in no remapped CIDR.
    pub fn seen_from(&self, viewer: &str, remote: &str, address: Ipv4Addr) -> Result<Ipv4Addr> {
        fabric::seen(&self.objects(viewer)?, remote, address)
            .with_context(|| format!("{viewer} has no remapped address for {address} of {remote}"))
    }

    /// Returns the address in the external CIDR that `gateway plan` has allocated to an IP object.
    /// The IP object of a node has the name `node-<name>`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such object, or if the object has no address.
    pub fn mapped(&self, cluster: &str, name: &str) -> Result<Ipv4Addr> {
        fabric::mapped(&self.objects(cluster)?, name)
            .with_context(|| format!("IP object {name} of {cluster} has no address"))
    }

    /// Returns the objects of a cluster's fabric file. The statuses contain the addresses that
    /// `gateway plan` has allocated.
    ///
    /// # Errors
    ///
    /// Returns an error if the file does not exist yet.
    pub fn objects(&self, cluster: &str) -> Result<Vec<Value>> {
        let path = self.fabric_path(cluster);
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {path:?}"))?;

        fabric::parse(&text)
    }

    /// Returns the path of a cluster's fabric file, which contains the cluster's desired state.
    pub fn fabric_path(&self, cluster: &str) -> PathBuf {
        self.cluster_dir(cluster).join("fabric.yaml")
    }

    /// Returns the directory of a cluster's private keys, which has one subdirectory per peer.
    pub fn key_dir(&self, cluster: &str) -> PathBuf {
        self.cluster_dir(cluster).join("keys")
    }

    /// Returns the public key that the gateways of `cluster` use for the peer `remote`.
    ///
    /// # Errors
    ///
    /// Returns an error if the key cannot be read or generated.
    pub fn public_key(&self, cluster: &str, remote: &str) -> Result<[u8; 32]> {
        let directory = self.key_dir(cluster).join(fabric::secret_name(remote));

        Ok(Key::open(&directory)?.public())
    }

    /// Keeps the laboratory running after this process has ended, until [`clean()`] removes it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file that marks the laboratory cannot be written.
    pub fn keep(&mut self) -> Result<()> {
        self.identity.keep()?;
        self.processes.values_mut().for_each(Process::release);

        Ok(())
    }

    fn cluster_dir(&self, cluster: &str) -> PathBuf {
        self.identity.run_dir().join(cluster)
    }

    fn log_dir(&self) -> PathBuf {
        self.identity.run_dir().join("logs")
    }

    /// Returns the directory of the status sockets of gateways and route agents.
    fn socket_dir(&self) -> PathBuf {
        self.identity.run_dir().join("run")
    }

    fn build_cluster(&mut self, spec: spec::ClusterSpec) -> Result<()> {
        let name = spec.name.clone();
        ensure!(
            (1..=CLUSTER_NAME_MAX).contains(&name.len()),
            "the name of cluster {name:?} must have 1 to {CLUSTER_NAME_MAX} letters"
        );
        ensure!(
            !self.clusters.contains_key(&name),
            "cluster {name} already exists"
        );

        let number = u8::try_from(self.desired.len() + 1).context("too many clusters")?;
        let cluster = Cluster::build(&self.identity, spec, number, &self.underlay)?;
        fs::create_dir_all(self.key_dir(&name)).context("failed to create a key directory")?;
        self.clusters.insert(name.clone(), cluster);
        self.desired.insert(name, Desired::default());

        Ok(())
    }
}

/// Time-out until all gateways and route agents are connected, long enough for a busy machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum length of a cluster's name. The device name `to-<name>` may have 15 characters
/// (`IFNAMSIZ`).
const CLUSTER_NAME_MAX: usize = 12;
