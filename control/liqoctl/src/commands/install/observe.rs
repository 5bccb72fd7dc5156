//! Reads the objects for detection and checks. Objects that the user may not read are treated as
//! absent, because flags can replace them.

use super::args::{Options, Provider};
use super::cni;
use super::detect::{NodeFacts, Observed};
use crate::cluster::{Cluster, list_all};
use crate::failure;
use anyhow::Result;
use control_api::labels;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Debug;

const SYSTEM: &str = "kube-system";

/// Reads all objects.
///
/// # Errors
///
/// Returns every error of the API server except a missing right.
pub(crate) async fn observe(cluster: &Cluster, options: &Options) -> Result<Observed> {
    let (kubeadm, kube_proxy, cilium) = tokio::try_join!(
        config_map(cluster, "kubeadm-config"),
        config_map(cluster, "kube-proxy"),
        config_map(cluster, "cilium-config"),
    )?;
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), SYSTEM);
    let (daemon_sets, nodes, pods) = tokio::try_join!(
        all::<DaemonSet>(cluster, Api::all(cluster.client.clone()), ""),
        all::<Node>(cluster, Api::all(cluster.client.clone()), ""),
        all::<Pod>(cluster, pods, "tier=control-plane"),
    )?;
    let is_openshift = options.provider == Some(Provider::Openshift);
    let (service_cidrs, calico_pools, felix, openshift) = tokio::try_join!(
        objects(cluster, "networking.k8s.io/v1/ServiceCIDR/servicecidrs"),
        objects(cluster, "crd.projectcalico.org/v1/IPPool/ippools"),
        objects(
            cluster,
            "crd.projectcalico.org/v1/FelixConfiguration/felixconfigurations"
        ),
        async {
            match is_openshift {
                true => objects(cluster, "config.openshift.io/v1/Network/networks").await,
                false => Ok(Vec::new()),
            }
        },
    )?;
    let names: Vec<String> = daemon_sets.iter().map(|set| set.name_any()).collect();
    let calico_bpf = felix
        .iter()
        .any(|felix| felix.data["spec"]["bpfEnabled"] == true);
    let mut plugin_cidrs = calico(&calico_pools);
    plugin_cidrs.extend(cilium.iter().flat_map(cni::cilium_cidrs));
    Ok(Observed {
        kubeadm: kubeadm.and_then(|mut data| data.remove("ClusterConfiguration")),
        kube_proxy: kube_proxy.and_then(|mut data| data.remove("config.conf")),
        control_plane: pods.iter().flat_map(arguments).collect(),
        service_cidrs: service_cidrs
            .iter()
            .filter(|object| object.name_any() == "kubernetes")
            .flat_map(|object| strings(&object.data["spec"]["cidrs"]))
            .collect(),
        plugin_cidrs,
        openshift: openshift
            .first()
            .map(|network| openshift_cidrs(&network.data)),
        nodes: nodes
            .iter()
            .filter(|node| !is_virtual(node))
            .map(facts)
            .collect(),
        plugin: cni::recognise(&names, cilium, calico_bpf),
    })
}

/// Returns the properties of a node.
pub(crate) fn facts(node: &Node) -> NodeFacts {
    let spec = node.spec.as_ref();
    let cidrs = spec.map(|spec| {
        let several = spec.pod_cidrs.clone().unwrap_or_default();
        let one = spec.pod_cidr.clone().filter(|_| several.is_empty());
        several.into_iter().chain(one).collect::<Vec<String>>()
    });
    let status = node.status.as_ref();
    let addresses = status
        .and_then(|status| status.addresses.clone())
        .unwrap_or_default();
    let kernel = status
        .and_then(|status| status.node_info.as_ref())
        .map(|info| info.kernel_version.clone());
    NodeFacts {
        name: node.name_any(),
        pod_cidrs: cidrs
            .unwrap_or_default()
            .iter()
            .filter_map(|cidr| cidr.parse().ok())
            .collect(),
        addresses: addresses
            .iter()
            .filter_map(|address| address.address.parse().ok())
            .collect(),
        kernel: kernel.unwrap_or_default(),
    }
}

fn is_virtual(node: &Node) -> bool {
    node.labels()
        .get(labels::NODE_TYPE)
        .is_some_and(|type_| type_ == labels::NODE_TYPE_VIRTUAL)
}

/// Returns the CIDRs of Calico's enabled pools.
fn calico(pools: &[DynamicObject]) -> Vec<String> {
    pools
        .iter()
        .filter(|pool| pool.data["spec"]["disabled"] != true)
        .filter_map(|pool| pool.data["spec"]["cidr"].as_str())
        .map(ToOwned::to_owned)
        .collect()
}

fn openshift_cidrs(network: &Value) -> (Vec<String>, Vec<String>) {
    let from = |part: &Value| {
        let pods = part["clusterNetwork"].as_array().into_iter().flatten();
        let pods = pods.filter_map(|entry| entry["cidr"].as_str().map(ToOwned::to_owned));
        (
            pods.collect::<Vec<String>>(),
            strings(&part["serviceNetwork"]),
        )
    };
    let status = from(&network["status"]);
    if status.0.is_empty() {
        from(&network["spec"])
    } else {
        status
    }
}

fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(ToOwned::to_owned))
        .collect()
}

/// Returns the arguments of all containers of a pod.
fn arguments(pod: &Pod) -> Vec<String> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .flat_map(|container| {
            let command = container.command.iter().flatten();
            command.chain(container.args.iter().flatten()).cloned()
        })
        .collect()
}

async fn config_map(cluster: &Cluster, name: &str) -> Result<Option<BTreeMap<String, String>>> {
    let api = Api::<ConfigMap>::namespaced(cluster.client.clone(), SYSTEM);
    match api.get_opt(name).await {
        Ok(map) => Ok(map.and_then(|map| map.data)),
        Err(error) if failure::is_forbidden(&error) => Ok(None),
        Err(error) => Err(cluster.failed(&format!("read ConfigMap {name}"))(error)),
    }
}

async fn all<K>(cluster: &Cluster, api: Api<K>, selector: &str) -> Result<Vec<K>>
where
    K: Clone + Debug + DeserializeOwned + kube::Resource<DynamicType = ()>,
{
    match list_all(&api, selector).await {
        Ok(found) => Ok(found),
        Err(error) if failure::is_forbidden(&error) => Ok(Vec::new()),
        Err(error) => Err(cluster.failed(&format!("list {}", K::plural(&())))(error)),
    }
}

/// Lists objects of a kind that may not be served, named `group/version/Kind/plural`.
async fn objects(cluster: &Cluster, resource: &str) -> Result<Vec<DynamicObject>> {
    let mut parts = resource.split('/');
    let mut next = || parts.next().unwrap_or_default();
    let gvk = GroupVersionKind::gvk(next(), next(), next());
    let resource = ApiResource::from_gvk_with_plural(&gvk, next());
    let api = Api::<DynamicObject>::all_with(cluster.client.clone(), &resource);
    match list_all(&api, "").await {
        Ok(found) => Ok(found),
        Err(error) if failure::is_forbidden(&error) || failure::is_not_found(&error) => {
            Ok(Vec::new())
        }
        Err(error) => Err(cluster.failed(&format!("list {}", resource.plural))(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn a_node_has_one_or_several_cidrs() {
        let node: Node = from_value(json!({
            "metadata": {"name": "rome-worker"},
            "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00::/64"]},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "172.18.1.3"}, {"type": "Hostname", "address": "rome-worker"}],
                "nodeInfo": {
                    "kernelVersion": "6.1.0-28-amd64", "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                    "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
                },
            },
        }))
        .unwrap();

        let facts = facts(&node);

        assert_eq!(
            facts.pod_cidrs,
            ["10.244.1.0/24".parse::<ipnet::Ipv4Net>().unwrap()]
        );
        assert_eq!(facts.addresses, [std::net::Ipv4Addr::new(172, 18, 1, 3)]);
        assert_eq!(facts.kernel, "6.1.0-28-amd64");
    }

    #[test]
    fn the_status_of_openshifts_network_precedes_its_spec() {
        let network = json!({
            "spec": {"clusterNetwork": [{"cidr": "10.0.0.0/14"}], "serviceNetwork": []},
            "status": {"clusterNetwork": [{"cidr": "10.128.0.0/14"}], "serviceNetwork": ["172.30.0.0/16"]},
        });

        let (pods, services) = openshift_cidrs(&network);

        assert_eq!(
            (pods.as_slice(), services.as_slice()),
            (
                ["10.128.0.0/14".to_owned()].as_slice(),
                ["172.30.0.0/16".to_owned()].as_slice()
            )
        );
    }
}
