//! The controller-manager: its Deployment, and the settings that other programs read from its arguments.

use crate::cluster::{Cluster, list_all};
use crate::failure;
use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt as _};

/// Label selector of the controller-manager.
const MANAGER: &str =
    "app.kubernetes.io/name=controller-manager,app.kubernetes.io/component=controller-manager";
/// Name of its container.
const CONTAINER: &str = "controller-manager";

/// Label of the nodes that run API servers.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Returns the installation's version: the tag of the controller-manager's image.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn version(cluster: &Cluster, namespace: &str) -> Result<Option<String>> {
    Ok(find(cluster, namespace).await?.as_ref().and_then(tag))
}

/// Returns the controller-manager's Deployment, if there is exactly one and the user may read it.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn find(cluster: &Cluster, namespace: &str) -> Result<Option<Deployment>> {
    let api = Api::<Deployment>::namespaced(cluster.client.clone(), namespace);
    let mut found = match list_all(&api, MANAGER).await {
        // Peering users may not read it.
        Err(error) if failure::is_forbidden(&error) => Vec::new(),
        other => other.map_err(cluster.failed("list Deployments"))?,
    };
    Ok((found.len() == 1).then(|| found.remove(0)))
}

/// Returns the value of a flag of the controller-manager, written `--flag=value`.
pub(crate) fn argument(manager: &Deployment, flag: &str) -> Option<String> {
    let args = container(manager)?.args.as_ref()?;
    args.iter().find_map(|arg| {
        let value = arg.strip_prefix(flag)?.strip_prefix('=')?;
        (!value.is_empty()).then(|| value.to_owned())
    })
}

/// Returns whether the controller-manager connects to providers at loopback and link-local addresses.
pub(crate) fn permits_local_api_servers(manager: &Deployment) -> bool {
    is_set(manager, "--local-api-servers")
}

/// Returns whether the controller-manager runs the controllers of peerings.
pub(crate) fn has_authentication(manager: &Deployment) -> bool {
    is_set(manager, "--authentication-enabled")
}

fn is_set(manager: &Deployment, flag: &str) -> bool {
    let args = container(manager).and_then(|it| it.args.as_ref());
    let is_bare = args.is_some_and(|args| args.iter().any(|arg| arg == flag));
    is_bare || argument(manager, flag).is_some_and(|value| value == "true")
}

/// Returns the tag of the controller-manager's image.
pub(crate) fn tag(manager: &Deployment) -> Option<String> {
    let image = container(manager)?.image.as_ref()?;
    let (_, tag) = image.rsplit_once(':')?;
    // The registry's port is no tag.
    (!tag.contains('/')).then(|| tag.to_owned())
}

fn container(manager: &Deployment) -> Option<&k8s_openapi::api::core::v1::Container> {
    let containers = &manager.spec.template.spec.as_ref()?.containers;
    containers
        .iter()
        .find(|container| container.name == CONTAINER)
}

/// Returns the URL of the API server for peers: that of the settings, or the default one.
pub(crate) async fn api_server(cluster: &Cluster, manager: Option<&Deployment>) -> String {
    let address = manager.and_then(|it| argument(it, "--api-server-address-override"));
    if let Some(address) = address {
        return url(&address);
    }
    let nodes = Api::<Node>::all(cluster.client.clone());
    let nodes = cluster.list(&nodes, "Nodes", CONTROL_PLANE).await;
    of_nodes(&nodes.unwrap_or_default())
}

/// Returns an address as a URL.
pub(crate) fn url(address: &str) -> String {
    if address.contains("://") {
        address.to_owned()
    } else {
        format!("https://{address}")
    }
}

/// Returns the default URL of the API server for peers: an address of the first node that runs one.
pub(crate) fn of_nodes(nodes: &[Node]) -> String {
    const PREFERENCE: [&str; 5] = [
        "ExternalDNS",
        "ExternalIP",
        "InternalDNS",
        "InternalIP",
        "Hostname",
    ];
    let addresses = nodes
        .iter()
        .min_by_key(|node| node.name_any())
        .and_then(|node| node.status.as_ref()?.addresses.clone())
        .unwrap_or_default();
    PREFERENCE
        .iter()
        .find_map(|type_| addresses.iter().find(|address| address.type_ == *type_))
        .map_or_else(String::new, |address| {
            format!("https://{}:6443", address.address)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager_of(image: &str) -> Deployment {
        serde_json::from_value(serde_json::json!({
            "spec": {"selector": {}, "template": {"spec": {"containers": [
                {"name": "controller-manager", "image": image, "args": [
                    "--cluster-labels=provider=Azure,region=A", "--api-server-address-override=",
                ]},
            ]}}},
        }))
        .unwrap()
    }

    #[test]
    fn the_version_is_the_tag() {
        assert_eq!(
            tag(&manager_of("ghcr.io/liqo/manager:v1.2.0")).as_deref(),
            Some("v1.2.0")
        );
        assert_eq!(tag(&manager_of("localhost:5000/manager")), None);
    }

    #[test]
    fn flags_are_read_by_name() {
        let manager = manager_of("a:b");

        assert_eq!(
            argument(&manager, "--cluster-labels").as_deref(),
            Some("provider=Azure,region=A")
        );
        assert_eq!(argument(&manager, "--api-server-address-override"), None);
        assert_eq!(argument(&manager, "--cluster"), None);
    }

    #[test]
    fn providers_on_this_machine_are_permitted_by_a_flag() {
        let with = |args: &[&str]| {
            let mut manager = manager_of("a:b");
            let pod = manager.spec.template.spec.as_mut().unwrap();
            let args = args.iter().map(|arg| (*arg).to_owned()).collect();
            pod.containers[0].args = Some(args);
            permits_local_api_servers(&manager)
        };

        assert!(with(&["--local-api-servers"]) && with(&["--local-api-servers=true"]));
        assert!(!with(&["--local-api-servers=false"]) && !with(&[]));
    }

    #[test]
    fn the_api_server_is_at_the_first_node_that_runs_one() {
        let node = |name: &str, address: &str| -> Node {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name},
                "status": {"addresses": [
                    {"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address},
                ]},
            }))
            .unwrap()
        };
        let nodes = [
            node("rome-cp2", "172.18.1.9"),
            node("rome-cp", "172.18.1.2"),
        ];

        assert_eq!(of_nodes(&nodes), "https://172.18.1.2:6443");
        assert_eq!(url("172.18.1.2:6443"), "https://172.18.1.2:6443");
    }
}
