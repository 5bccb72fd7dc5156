//! Creates a cluster, or its missing parts.

use super::ready::{self, Progress};
use super::{Cluster, registry};
use crate::kernel_settings;
use crate::manifest;
use crate::node::{Plan, components, control};
use crate::pki::{self, Pki};
use crate::place::Artifacts;
use crate::spec::{NodeSpec, Spec, underlay_address};
use crate::underlay::Underlay;
use anyhow::{Context as _, Result, ensure};
use ipnet::Ipv4Net;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::fs;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// The field manager of objects that the laboratory applies.
const MANAGER: &str = "liqo-lab";

/// Settings that are not part of a cluster's spec.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The network of the underlay. `None` means the existing network or the default.
    pub underlay: Option<Ipv4Net>,
}

/// Creates a cluster, and waits until it is ready.
///
/// Does not change a cluster that is up. Creates missing parts of an existing cluster.
///
/// # Errors
///
/// Returns an error if the cluster exists with another spec, or if a part does not become ready in
/// time.
pub async fn up(spec: Spec, artifacts: &Artifacts, options: &Options) -> Result<Cluster> {
    let progress = Progress::new(&spec.name);
    spec.check()?;
    let (artifacts, options) = (artifacts.clone(), options.clone());
    let since = Timestamp::now();
    let begun = tokio::task::spawn_blocking(move || -> Result<_> {
        let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
        let (cluster, nodes, underlay) = place(spec, &artifacts, &options)?;
        let started = start(&cluster, &nodes, underlay)?;
        Ok((cluster, nodes, started))
    });
    let (cluster, nodes, started) = begun.await.context("the start has panicked")??;

    let client = cluster.client().await?;
    ready::api(&client).await?;
    progress.print("the API server is ready");
    register(&client, &cluster, &nodes).await?;
    let versions = cluster.artifacts().versions()?;
    manifest::apply(
        &client,
        &crate::addons::all(&cluster.spec, &versions)?,
        None,
    )
    .await?;
    ready::nodes(&client, usize::from(cluster.spec.nodes), &started, since).await?;
    kernel_settings::survive_oops()?;
    progress.print(&format!("{} nodes are ready", cluster.spec.nodes));
    if cluster.spec.kube_proxy.mode().is_some() {
        ready::addons(&client).await?;
    } else {
        progress.print("DNS and storage wait for a replacement of kube-proxy");
    }
    fs::write(cluster.folder().join(super::COMPLETE), "")
        .context("failed to mark the cluster as complete")?;
    let kubeconfig = cluster.kubeconfig();
    progress.print(&format!("up; export KUBECONFIG={}", kubeconfig.display()));

    Ok(cluster)
}

/// Locked for reading while nodes are started. A separate thread starts the nodes, and continues if
/// the future of [`up`] is dropped.
static STARTING: RwLock<()> = RwLock::new(());

/// Waits until no node is being started, which takes a second or two. A start that is still running
/// would create a removed node again.
pub fn wait_for_starts() {
    drop(STARTING.write().unwrap_or_else(PoisonError::into_inner));
}

/// Registers the cluster, and connects it to the underlay.
fn place(
    spec: Spec,
    artifacts: &Artifacts,
    options: &Options,
) -> Result<(Cluster, Vec<NodeSpec>, Underlay)> {
    let _lock = registry::lock()?;
    kernel_settings::prepare()?;
    let underlay = Underlay::ensure(options.underlay)?;
    for (flag, cidr) in [
        ("--pod-cidr", spec.pod_cidr),
        ("--service-cidr", spec.service_cidr),
    ] {
        ensure!(
            !cidr.contains(&underlay.net()) && !underlay.net().contains(&cidr),
            "{flag} {cidr} and the underlay's network {} overlap: choose another {flag}",
            underlay.net()
        );
    }
    let cluster = match registry::read(&spec.name)? {
        Some(cluster) => {
            ensure!(
                cluster.spec == spec,
                "{} is up with other settings ({}): run `down {}` first",
                spec.name,
                difference(&cluster.spec, &spec),
                spec.name
            );
            cluster
        }
        None => registry::enter(spec, artifacts.folder())?,
    };
    underlay.attach_cluster(cluster.number)?;
    if crate::fault::restore(underlay, cluster.number)? {
        eprintln!(
            "    {}: the uplink was missing, and is restored",
            cluster.spec.name
        );
    }
    let nodes = NodeSpec::all(&cluster.spec, cluster.number, underlay.net());

    Ok((cluster, nodes, underlay))
}

fn difference(is: &Spec, desired: &Spec) -> String {
    let fields = |spec: &Spec| match serde_json::to_value(spec) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let desired = fields(desired);

    fields(is)
        .into_iter()
        .filter(|(name, value)| desired.get(name) != Some(value))
        .map(|(name, value)| format!("{name} is {value}, not {}", desired[&name]))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Starts the nodes that do not run, and returns their names. Does not wait for components, because
/// components wait for each other.
fn start(cluster: &Cluster, specs: &[NodeSpec], underlay: Underlay) -> Result<Vec<String>> {
    let pki = issue(cluster, specs)?;
    let mut started = Vec::new();
    let [a, b, c, _] = underlay_address(underlay.net(), cluster.number, 0).octets();
    for (node, spec) in cluster.nodes().iter().zip(specs) {
        underlay.attach_node(cluster.number, spec)?;
        let plan = Plan {
            spec: cluster.spec.clone(),
            node: spec.clone(),
            nodes: specs.to_vec(),
            artifacts: cluster.artifacts.clone(),
            folder: node.folder().to_owned(),
            socket: control::socket(&spec.name),
            load_balancers: [a, b, c],
        };
        let to = node.root().join("etc/kubernetes/pki");
        if !to.exists() {
            let partial = to.with_extension("partial");
            fs::create_dir_all(&partial).context("failed to create a folder for keys")?;
            for file in fs::read_dir(pki.folder()).context("failed to read the keys")? {
                let file = file.context("failed to read the keys")?;
                fs::copy(file.path(), partial.join(file.file_name()))
                    .context("failed to copy a key")?;
            }
            fs::rename(&partial, &to).context("failed to rename the folder of keys")?;
        }
        if node.start(&plan)? {
            started.push(spec.name.clone());
        }
    }
    for node in cluster.nodes() {
        node.wait_until_set_up()?;
    }

    Ok(started)
}

/// Creates keys and certificates, unless they exist.
fn issue(cluster: &Cluster, specs: &[NodeSpec]) -> Result<Pki> {
    let lifetime = Duration::from_secs(cluster.spec.certificate_seconds);
    let folder = cluster.folder().join("pki");
    if !folder.exists() {
        let partial = cluster.folder().join("pki.partial");
        Pki::new(&partial, lifetime).create(&cluster.spec, specs)?;
        fs::rename(&partial, &folder).context("failed to rename the folder of keys")?;
    }
    let pki = Pki::new(folder, lifetime);
    pki.complete(&cluster.spec, specs)?;
    let config = pki.kubeconfig(&cluster.spec.name, &pki::server(specs), "admin")?;
    fs::write(cluster.kubeconfig(), config).context("failed to write the kubeconfig")?;

    Ok(pki)
}

/// Creates the Node objects with their pod CIDRs before the kubelets register. Nodes have routes to
/// these pod CIDRs.
async fn register(client: &Client, cluster: &Cluster, specs: &[NodeSpec]) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let spec = &cluster.spec;
    for node in specs {
        let role = node
            .control_plane
            .then_some(("node-role.kubernetes.io/control-plane", ""));
        let labels: Value = role.into_iter().collect();
        let object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node.name, "labels": labels},
            "spec": {"podCIDR": node.pod_cidr, "podCIDRs": node.pod_cidrs()},
        });
        apply_node(&api, &node.name, &object).await?;
    }
    for index in 0..spec.hollow {
        let name = spec.hollow_name(index);
        let object = hollow(spec, index, &name);
        apply_node(&api, &name, &object).await?;
    }
    for node in cluster.nodes() {
        let flag = node
            .root()
            .join(components::REGISTERED.trim_start_matches('/'));
        fs::write(&flag, "").context("failed to mark a node as registered")?;
    }

    Ok(())
}

async fn apply_node(api: &Api<Node>, name: &str, object: &Value) -> Result<()> {
    api.patch(
        name,
        &PatchParams::apply(MANAGER).force(),
        &Patch::Apply(object),
    )
    .await
    .with_context(|| format!("failed to create the Node {name}"))?;

    Ok(())
}

/// Returns a Node object that kwok simulates. Its taint repels pods without a toleration.
fn hollow(spec: &Spec, index: u16, name: &str) -> Value {
    let cidr = spec.node_pod_cidr(u16::from(spec.nodes) + index);

    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "spec": {
            "podCIDR": cidr, "podCIDRs": [cidr],
            "taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}],
        },
    })
}
