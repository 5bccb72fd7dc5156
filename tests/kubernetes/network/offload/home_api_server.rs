//! The address of the consumer's API server in offloaded pods, which the options of a virtual kubelet may set.

use super::tools::{Offloaded, pod};
use super::{is_client_of_home, is_offloaded, peered};
use crate::MILAN;
use crate::fixture::{LIQO, Peering, Suite, liqoctl, serial};
use crate::removal::kubectl;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        pods_reach_the_api_server_at_the_address_of_the_vk_options_template,
    );
}

/// The name of the ResourceSlice, the VirtualNode and the VkOptionsTemplate with the address.
const FIXED: &str = "fixed";

/// The port of the API server on the control-plane node.
const PORT: u16 = 6443;

/// The options of virtual kubelets that the chart creates.
const DEFAULT_OPTIONS: &str = "virtual-kubelet-default";

/// The name of the API server in the hosts file of a pod whose virtual kubelet has no address of it.
const ALIAS: &str = "kubernetes.default";

async fn pods_reach_the_api_server_at_the_address_of_the_vk_options_template(
    peering: &'static Peering,
) -> Result<()> {
    let offloaded = Offloaded::namespace(peered(peering).await?, "home-api").await?;
    let Offloaded {
        rome, home, remote, ..
    } = &offloaded;
    let nodes = rome.node_specs()?;
    let control_plane = nodes.iter().find(|it| it.control_plane);
    let address = control_plane.context("no control-plane node")?.ip;
    create_virtual_node(rome, home, address).await?;

    for (name, node) in [("fixed", FIXED), ("aliased", MILAN)] {
        let mut pod = pod(name, &["sleep", "infinity"]);
        pod["spec"]["nodeName"] = json!(node);
        home.apply(&pod.to_string()).await?;
        home.wait(&format!("pod/{name}"), "Ready").await?;
    }

    let fixed = Access::of(remote, "fixed").await?;
    ensure!(
        fixed.variables == variables(&address.to_string(), PORT),
        "{fixed:?}"
    );
    ensure!(
        fixed.aliases.is_empty() && !fixed.hosts.contains(ALIAS),
        "{fixed:?}"
    );
    let user = format!("system:serviceaccount:{}:default", home.name());
    is_client_of_home(remote, "fixed", &user).await?;

    // The pods of the other virtual node have the alias.
    is_offloaded(home, offloaded.milan, "aliased").await?;
    let aliased = Access::of(remote, "aliased").await?;
    ensure!(aliased.variables == variables(ALIAS, 443), "{aliased:?}");
    ensure!(
        aliased.aliases.contains(ALIAS) && aliased.hosts.contains(ALIAS),
        "{aliased:?}"
    );
    is_client_of_home(remote, "aliased", &user).await?;

    offloaded.end().await
}

/// Creates the VirtualNode [`FIXED`] of the provider, with the address of the API server in its VkOptionsTemplate, and waits
/// until its Node is ready.
async fn create_virtual_node(rome: &Cluster, home: &Namespace, address: Ipv4Addr) -> Result<()> {
    home.apply(&options(rome, address)?.to_string()).await?;
    let provider = format!("--remote-cluster-id={MILAN}");
    let slice = ["create", "resourceslice", FIXED, &provider];
    let amounts = ["--cpu=1", "--memory=1Gi", "--no-virtual-node"];
    liqoctl(rome, &[&slice[..], &amounts].concat())?;
    let template = format!("--vk-options-template={}/{FIXED}", home.name());
    let slice = format!("--resource-slice-name={FIXED}");
    let node = ["create", "virtualnode", FIXED, &provider, &slice, &template];
    liqoctl(rome, &node)?;
    let node = format!("node/{FIXED}");
    let created = ["wait", &node, "--for=create", "--timeout=120s"];
    home.kubectl(&created).await?;

    home.wait(&node, "Ready").await
}

/// Returns the default options with the address of the API server.
fn options(rome: &Cluster, address: Ipv4Addr) -> Result<Value> {
    let get = ["get", "vkoptionstemplate", DEFAULT_OPTIONS, "-n", LIQO];
    let default = kubectl(rome, &[&get[..], &["-o", "json"]].concat())?;
    let default: Value = serde_json::from_str(&default)?;
    let mut spec = default["spec"].clone();
    let arguments = spec["extraArgs"].as_array_mut();
    arguments.context("no extraArgs")?.extend([
        json!(format!("--home-api-server-host={address}")),
        json!(format!("--home-api-server-port={PORT}")),
    ]);

    Ok(json!({
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "VkOptionsTemplate",
        "metadata": {"name": FIXED},
        "spec": spec,
    }))
}

/// How a pod finds the API server of its cluster.
#[derive(Debug)]
struct Access {
    /// The variables of [`variables`].
    variables: String,
    /// `spec.hostAliases` of the pod at the provider.
    aliases: String,
    /// `/etc/hosts` in the container.
    hosts: String,
}

impl Access {
    async fn of(remote: &Namespace, name: &str) -> Result<Self> {
        let variables = "echo $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT $KUBERNETES_PORT \
             $KUBERNETES_PORT_443_TCP $KUBERNETES_PORT_443_TCP_ADDR $KUBERNETES_PORT_443_TCP_PORT";
        let pod = format!("pod/{name}");

        Ok(Self {
            variables: remote.sh(name, variables).await?,
            aliases: remote.get(&pod, "{.spec.hostAliases}").await?,
            hosts: remote.sh(name, "cat /etc/hosts").await?,
        })
    }
}

/// Returns the values that [`Access`] reads of a container's environment.
fn variables(host: &str, port: u16) -> String {
    let url = format!("tcp://{host}:{port}");

    format!("{host} {port} {url} {url} {host} {port}\n")
}
