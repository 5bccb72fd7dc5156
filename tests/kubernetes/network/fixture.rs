//! Two connected clusters, and helper functions of several tests.

use crate::{MILAN, NAPLES, ROME, rounds};
use anyhow::{Context as _, Result, ensure};
use control_api::{Configuration, Connection};
use ipam::Remap;
use kube::Api;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::liqo::Release;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::spec::Spec;
use kubernetes_lab::suite::{self, Shared};
use kubernetes_lab::wait::{Deadline, until};
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) use kubernetes_lab::liqo::INSTALL;
pub(crate) use kubernetes_lab::wait::SOON;
pub(crate) use kubernetes_lab::{parallel, serial};

/// The tests of this program, which share one [`Peering`].
pub(crate) type Suite = suite::Suite<Peering>;

/// The namespace in which Liqo is installed.
pub(crate) const LIQO: &str = "liqo";

/// Pods on both nodes, and their Service. Each pod replies with the client's address, its own
/// address, its name and the name of its node.
const WEB: &str = include_str!("../it/manifests/web.yaml");

/// A manifest with [`ON_NODE`] pods like those of [`WEB`], on a single node. Tests replace the word
/// `NODE` by the name of the node.
const WEB_ON_NODE: &str = include_str!("manifests/on-node.yaml");

/// The number of pods on a single node. With this number, each stream of a test has its own pair of
/// pods.
const ON_NODE: usize = 4;

/// The time limit of a test with a single round. Each further round adds the same time. The longest
/// test takes five minutes on an idle machine.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Two connected clusters with the same CIDRs, with Liqo installed.
#[derive(Debug)]
pub(crate) struct Peering {
    pub(crate) rome: Cluster,
    pub(crate) milan: Cluster,
}

impl Shared for Peering {
    const NAMES: &'static [&'static str] = &[ROME, MILAN, NAPLES];

    fn make() -> Result<Self> {
        let specs = [ROME, MILAN].map(Spec::new).into();
        let mut clusters = suite::up(specs)?.into_iter();
        let mut next = || clusters.next().context("a cluster is missing");
        let peering = Self {
            rome: next()?,
            milan: next()?,
        };
        peering.prepare()?;

        Ok(peering)
    }

    fn restore(&self) -> Result<()> {
        suite::up(self.clusters().map(|it| it.spec.clone()).into())?;
        self.prepare()
    }

    fn limit() -> Duration {
        LIMIT * rounds::count().unwrap_or(1)
    }
}

impl Peering {
    /// Returns both clusters. The first is the client of the peering.
    pub(crate) fn clusters(&self) -> [&Cluster; 2] {
        [&self.rome, &self.milan]
    }

    /// Installs Liqo, and connects the clusters. The function is idempotent.
    fn prepare(&self) -> Result<()> {
        for cluster in self.clusters() {
            prepare(cluster)?;
        }
        self.connect()
    }

    /// Connects the clusters, and waits until both Connections are `Connected`.
    pub(crate) fn connect(&self) -> Result<()> {
        let start = Instant::now();
        self.network("connect", &["--gw-server-service-type=NodePort", "--wait"])?;
        eprintln!("connected ({:.1} s)", start.elapsed().as_secs_f64());

        Ok(())
    }

    /// Runs `liqoctl network` for both clusters.
    pub(crate) fn network(&self, verb: &str, flags: &[&str]) -> Result<String> {
        network([&self.rome, &self.milan], verb, flags)
    }

    /// Creates a namespace with the pods of [`WEB`] in each cluster.
    pub(crate) async fn web(&self, name: &str) -> Result<[Web; 2]> {
        let rome = Web::up(&self.rome, name).await?;
        let milan = Web::up(&self.milan, name).await?;

        Ok([rome, milan])
    }
}

/// Runs `liqoctl network` on two clusters. The second cluster is the server.
pub(crate) fn network(pair: [&Cluster; 2], verb: &str, flags: &[&str]) -> Result<String> {
    let [local, remote] = pair;
    let remote = format!("--remote-kubeconfig={}", remote.kubeconfig().display());
    let words = [&["network", verb, &remote, "--skip-confirm"], flags].concat();
    liqoctl(local, &words)
}

/// The pods of [`WEB`] or [`WEB_ON_NODE`] in a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Web {
    pub(crate) namespace: Namespace,
    pub(crate) pods: Vec<WebPod>,
}

/// A pod of [`WEB`] or [`WEB_ON_NODE`].
#[derive(Clone, Debug)]
pub(crate) struct WebPod {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
}

impl Web {
    /// Starts a pod on each node, in a new namespace.
    pub(crate) async fn up(cluster: &Cluster, name: &str) -> Result<Self> {
        Self::of(cluster, name, WEB, 2).await
    }

    /// Starts [`ON_NODE`] pods on one node, in a new namespace.
    pub(crate) async fn on_node(cluster: &Cluster, name: &str, node: &str) -> Result<Self> {
        let manifest = WEB_ON_NODE.replace("NODE", node);
        Self::of(cluster, name, &manifest, ON_NODE).await
    }

    async fn of(cluster: &Cluster, name: &str, manifest: &str, count: usize) -> Result<Self> {
        let namespace = Namespace::create(cluster, name).await?;
        namespace.apply(manifest).await?;
        namespace.rolled_out("deployment/web").await?;
        let mut pods = Vec::new();
        for name in namespace.pods("app=web").await? {
            let address = namespace
                .get(&format!("pod/{name}"), "{.status.podIP}")
                .await?;
            let address = address.parse().context("the pod has no address")?;
            pods.push(WebPod { name, address });
        }
        ensure!(pods.len() == count, "{pods:?}");

        Ok(Self { namespace, pods })
    }

    /// Sends an HTTP request from a pod, and returns the response of a [`Web`] pod.
    pub(crate) async fn get(&self, pod: &WebPod, to: &str) -> Result<String> {
        let url = format!("http://{to}/");
        let words = ["exec", &pod.name, "--", "curl", "--silent", "--show-error"];
        let words = [&words, ["--max-time", "5", &url].as_slice()].concat();
        self.namespace.kubectl(&words).await
    }
}

/// Returns the remaps of `here` for the CIDRs of `there`.
pub(crate) async fn remaps(here: &Cluster, there: &str) -> Result<Vec<Remap>> {
    let tenant = format!("liqo-tenant-{there}");
    let api: Api<Configuration> = Api::namespaced(here.client().await?, &tenant);
    let configuration = api.get(there).await?;
    let spec = configuration.spec.remote.context("no spec.remote")?.cidr;
    let status = configuration.status.context("no status")?;
    let status = status.remote.context("no status.remote")?.cidr;
    let pairs = [(spec.pod, status.pod), (spec.external, status.external)];
    let mut remaps = Vec::new();
    for (from, to) in pairs {
        for (from, to) in from.iter().zip(&to) {
            remaps.push(
                Remap::new(from.parse()?, to.parse()?)
                    .context("a CIDR has another prefix length than its remap")?,
            );
        }
    }

    Ok(remaps)
}

/// Returns the address at which `here` reaches an address of `there`.
pub(crate) async fn remapped(here: &Cluster, there: &str, address: Ipv4Addr) -> Result<Ipv4Addr> {
    let remaps = remaps(here, there).await?;
    let mut remapped = remaps.iter().filter_map(|remap| remap.apply(address));
    remapped
        .next()
        .context("the address is in no CIDR of the peer")
}

/// Returns the Connection of `here` to `there`.
pub(crate) async fn connection(here: &Cluster, there: &str) -> Result<Connection> {
    let tenant = format!("liqo-tenant-{there}");
    let api: Api<Connection> = Api::namespaced(here.client().await?, &tenant);
    let list = api.list(&kube::api::ListParams::default()).await?;
    list.items.into_iter().next().context("no Connection")
}

/// Waits until both Connections have this `status.value`.
pub(crate) async fn until_connections_are(peering: &Peering, value: &str) -> Result<()> {
    until_pair_is(peering.clusters(), value).await
}

/// Waits until the Connections of two clusters with each other have this `status.value`.
pub(crate) async fn until_pair_is(pair: [&Cluster; 2], value: &str) -> Result<()> {
    let what = format!("both Connections to be {value}");
    let [one, other] = pair;
    until(Deadline::after(SOON), &what, async || {
        for (here, there) in [(one, other), (other, one)] {
            let status = connection(here, there.name()).await?.status;
            let status = status.unwrap_or_default();
            let shown = status.value.unwrap_or_default();
            ensure!(shown == value, "{}: {shown}", here.name());
        }
        Ok(())
    })
    .await
}

/// Returns a `liqoctl` command for a cluster's administrator; see [`Release::command`].
pub(crate) fn liqoctl_command(cluster: &Cluster) -> Result<Command> {
    Ok(Release::from_environment()?.command(cluster))
}

/// Runs `liqoctl` as the administrator of a cluster, and returns its standard output.
pub(crate) fn liqoctl(cluster: &Cluster, words: &[&str]) -> Result<String> {
    Release::from_environment()?.liqoctl(cluster, words)
}

/// Installs Liqo, or upgrades an existing installation.
pub(crate) fn install(cluster: &Cluster) -> Result<()> {
    install_with(cluster, &[])
}

/// Installs Liqo, or upgrades an existing installation, with further flags.
pub(crate) fn install_with(cluster: &Cluster, flags: &[&str]) -> Result<()> {
    Release::from_environment()?.install(cluster, flags)
}

/// Returns the path of the chart under test.
pub(crate) fn chart() -> Result<String> {
    Ok(Release::from_environment()?.chart().display().to_string())
}

/// Loads Liqo's images into a new cluster, and installs Liqo.
pub(crate) fn prepare(cluster: &Cluster) -> Result<()> {
    load_images(cluster)?;
    install(cluster)
}

/// Loads Liqo's images into all nodes of a cluster.
pub(crate) fn load_images(cluster: &Cluster) -> Result<()> {
    Release::from_environment()?.load_images(cluster)
}
