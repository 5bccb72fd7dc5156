//! Two clusters that are connected, and what tests do with them.

use crate::{MILAN, NAPLES, ROME, rounds};
use anyhow::{Context as _, Result, ensure};
use control_api::{Configuration, Connection};
use ipam::Remap;
use kube::Api;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::spec::Spec;
use kubernetes_lab::suite::{self, Shared};
use kubernetes_lab::wait::{Deadline, until};
use std::env;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) use kubernetes_lab::wait::SOON;
pub(crate) use kubernetes_lab::{parallel, serial};

/// All tests of this program.
pub(crate) type Suite = suite::Suite<Peering>;

/// Tells where `cargo xtask test --kubernetes` has put what is tested.
const LIQOCTL: &str = "LIQO_LAB_LIQOCTL";
const IMAGES: &str = "LIQO_LAB_IMAGES";
const CHART: &str = "LIQO_LAB_CHART";

/// Liqo's namespace.
pub(crate) const LIQO: &str = "liqo";

/// Pods on both nodes that tell who asks, and a Service of them.
const WEB: &str = include_str!("../it/manifests/web.yaml");

/// More of them, all on the node NODE.
const WEB_ON_NODE: &str = include_str!("manifests/on-node.yaml");

/// How many those are: as many as there are streams, so that some take each gateway.
const ON_NODE: usize = 4;

/// The limit of a test for each of its rounds: the longest takes five minutes on an idle machine.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Two clusters with the same networks, with Liqo, connected.
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
    /// Both clusters.
    pub(crate) fn clusters(&self) -> [&Cluster; 2] {
        [&self.rome, &self.milan]
    }

    /// Installs what is missing, and connects the clusters.
    fn prepare(&self) -> Result<()> {
        for cluster in self.clusters() {
            prepare(cluster)?;
        }
        self.connect()
    }

    /// Connects them, and waits until they are.
    pub(crate) fn connect(&self) -> Result<()> {
        let start = Instant::now();
        self.network("connect", &["--gw-server-service-type=NodePort", "--wait"])?;
        eprintln!("connected ({:.1} s)", start.elapsed().as_secs_f64());

        Ok(())
    }

    /// Runs `liqoctl network` on both.
    pub(crate) fn network(&self, verb: &str, flags: &[&str]) -> Result<String> {
        network([&self.rome, &self.milan], verb, flags)
    }

    /// A namespace in each, with pods of [`WEB`] on both nodes.
    pub(crate) async fn web(&self, name: &str) -> Result<[Web; 2]> {
        let rome = Web::up(&self.rome, name).await?;
        let milan = Web::up(&self.milan, name).await?;

        Ok([rome, milan])
    }
}

/// Runs `liqoctl network` on two clusters, of which the second is the server.
pub(crate) fn network(pair: [&Cluster; 2], verb: &str, flags: &[&str]) -> Result<String> {
    let [local, remote] = pair;
    let remote = format!("--remote-kubeconfig={}", remote.kubeconfig().display());
    let words = [&["network", verb, &remote, "--skip-confirm"], flags].concat();
    liqoctl(local, &words)
}

/// Pods on both nodes of a cluster that tell who asks.
#[derive(Clone, Debug)]
pub(crate) struct Web {
    pub(crate) namespace: Namespace,
    pub(crate) pods: Vec<WebPod>,
}

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct WebPod {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
}

impl Web {
    /// One on each node, in a new namespace of this name.
    pub(crate) async fn up(cluster: &Cluster, name: &str) -> Result<Self> {
        Self::of(cluster, name, WEB, 2).await
    }

    /// Several on one node, in a new namespace of this name.
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
            let address = address.parse().context("a pod's address")?;
            pods.push(WebPod { name, address });
        }
        ensure!(pods.len() == count, "{pods:?}");

        Ok(Self { namespace, pods })
    }

    /// Asks from a pod, and returns the answer: client, pod and node.
    pub(crate) async fn ask(&self, pod: &WebPod, to: &str) -> Result<String> {
        let url = format!("http://{to}/");
        let words = ["exec", &pod.name, "--", "curl", "--silent", "--show-error"];
        let words = [&words, ["--max-time", "5", &url].as_slice()].concat();
        self.namespace.kubectl(&words).await
    }
}

/// How `here` sees the addresses of `there`.
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
            remaps.push(Remap::new(from.parse()?, to.parse()?).context("unlike lengths")?);
        }
    }

    Ok(remaps)
}

/// How `here` sees an address of `there`.
pub(crate) async fn seen(here: &Cluster, there: &str, address: Ipv4Addr) -> Result<Ipv4Addr> {
    let remaps = remaps(here, there).await?;
    let mut seen = remaps.iter().filter_map(|remap| remap.apply(address));
    seen.next().context("in no CIDR of the peer")
}

/// The state that the Connection of `here` shows.
pub(crate) async fn connection(here: &Cluster, there: &str) -> Result<Connection> {
    let tenant = format!("liqo-tenant-{there}");
    let api: Api<Connection> = Api::namespaced(here.client().await?, &tenant);
    let list = api.list(&kube::api::ListParams::default()).await?;
    list.items.into_iter().next().context("no Connection")
}

/// Waits until both Connections show this value.
pub(crate) async fn until_connections_are(peering: &Peering, value: &str) -> Result<()> {
    until_pair_is(peering.clusters(), value).await
}

/// Waits until the Connections of two clusters with each other show this value.
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

/// Returns a call of `liqoctl` as the cluster's administrator.
///
/// It is the released program, and has nothing but a kubeconfig: no PATH, no home.
pub(crate) fn liqoctl_command(cluster: &Cluster) -> Result<Command> {
    let mut command = Command::new(variable(LIQOCTL)?);
    command.env_clear().env("KUBECONFIG", cluster.kubeconfig());

    Ok(command)
}

/// Runs `liqoctl` as the cluster's administrator, and returns what it printed.
pub(crate) fn liqoctl(cluster: &Cluster, words: &[&str]) -> Result<String> {
    let mut command = liqoctl_command(cluster)?;
    command.args(words);
    let output = command.output().context("failed to start liqoctl")?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "`liqoctl {}` failed ({}):\n{out}{}",
        words.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );

    Ok(out)
}

/// Flags of `liqoctl install` on the laboratory's clusters.
pub(crate) const INSTALL: &[&str] = &[
    "--pod-cidr=10.244.0.0/16",
    "--set=tag=dev",
    "--set=pullPolicy=IfNotPresent",
];

/// Installs Liqo, or upgrades it.
pub(crate) fn install(cluster: &Cluster) -> Result<()> {
    let start = Instant::now();
    let chart = format!("--local-chart-path={}", variable(CHART)?.display());
    let id = format!("--cluster-id={}", cluster.name());
    liqoctl(cluster, &[&["install", &id, &chart], INSTALL].concat())?;
    eprintln!(
        "{}: installed ({:.1} s)",
        cluster.name(),
        start.elapsed().as_secs_f64()
    );

    Ok(())
}

/// Where the chart is.
pub(crate) fn chart() -> Result<String> {
    Ok(variable(CHART)?.display().to_string())
}

/// Puts what is tested on a new cluster.
pub(crate) fn prepare(cluster: &Cluster) -> Result<()> {
    load_images(cluster)?;
    install(cluster)
}

/// Puts Liqo's images on all nodes.
pub(crate) fn load_images(cluster: &Cluster) -> Result<()> {
    let folder = variable(IMAGES)?;
    let entries = std::fs::read_dir(&folder)
        .with_context(|| format!("failed to read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("liqo-") && name.ends_with(".tar") {
            cluster.load(&path)?;
        }
    }

    Ok(())
}

fn variable(name: &str) -> Result<PathBuf> {
    env::var_os(name)
        .map(PathBuf::from)
        .with_context(|| format!("{name} is not set: run `cargo xtask test --kubernetes`"))
}
