//! Each transition, compared with the texts of upstream.

use super::*;

const CONFIGURED: &str = "NetworkConfigurationStatus Ready NetworkConfigurationPresence: The network configuration of the peer cluster is present";
const UNCONFIGURED: &str = "NetworkConfigurationStatus NotReady NetworkConfigurationMissing: The network configuration for the connection with the foreign cluster is missing";
const GATEWAY: &str = "NetworkGatewayPresence Ready GatewayPresence: There is a gateway connecting to the foreign cluster";
const NO_GATEWAY: &str = "NetworkGatewayPresence NotReady GatewayMissing: The gateway resource connecting to the foreign cluster is missing";
const SERVER: &str =
    "NetworkGatewayServerStatus Ready GatewaysReady: All gateway replicas are ready";
const SERVER_PART: &str = "NetworkGatewayServerStatus SomeNotReady GatewaysSomeNotReady: Some gateway replicas are not ready";
const SERVER_DOWN: &str =
    "NetworkGatewayServerStatus NotReady GatewaysNotReady: All gateway replicas are not ready";
const CLIENT: &str =
    "NetworkGatewayClientStatus Ready GatewaysReady: All gateway replicas are ready";
const ESTABLISHED: &str = "NetworkConnectionStatus Established ConnectionEstablished: The network connection with the foreign cluster is established";
const PENDING: &str = "NetworkConnectionStatus Pending ConnectionPending: The network connection with the foreign cluster is connecting";
const BROKEN: &str = "NetworkConnectionStatus Error ConnectionError: The network connection with the foreign cluster is in error";
const NO_CONNECTION: &str = "NetworkConnectionStatus NotReady ConnectionMissing: There is no network connection with the foreign cluster";
const TENANT_READY: &str =
    "AuthTenantStatus Ready TenantReady: The tenant has been successfully configured";
const TENANT_NOT_READY: &str =
    "AuthTenantStatus NotReady TenantNotReady: The tenant is not correctly configured";
const IDENTITY: &str = "AuthIdentityControlPlaneStatus Ready IdentityReady: The identity has been successfully configured";
const IDENTITY_NOT_READY: &str = "AuthIdentityControlPlaneStatus NotReady IdentityNotReady: The identity is not correctly configured";
const KUBELETS: &str =
    "OffloadingVirtualNodeStatus Ready VirtualNodesReady: All virtual nodes are ready";
const KUBELETS_PART: &str = "OffloadingVirtualNodeStatus SomeNotReady VirtualNodesSomeNotReady: Some virtual nodes are not ready";
const KUBELETS_DOWN: &str =
    "OffloadingVirtualNodeStatus NotReady VirtualNodesNotReady: All virtual nodes are not ready";
const NODES: &str = "OffloadingNodeStatus Ready NodesReady: All nodes are ready";
const NODES_PART: &str =
    "OffloadingNodeStatus SomeNotReady NodesSomeNotReady: Some nodes are not ready";
const NODES_DOWN: &str = "OffloadingNodeStatus NotReady NodesNotReady: All nodes are not ready";

/// A change, and the lines after it: the role, then the conditions.
enum Step {
    Put(Value, &'static [&'static str]),
    Remove(Value, &'static [&'static str]),
}

use Step::{Put, Remove};

fn follow(steps: Vec<Step>) {
    let mut rome = Rome::new();
    for (number, step) in steps.into_iter().enumerate() {
        let lines = match step {
            Put(object, lines) => {
                rome.put(object);
                lines
            }
            Remove(object, lines) => {
                rome.remove(&object);
                lines
            }
        };
        rome.settle();
        assert_eq!(rome.lines(), lines, "step {number}");
    }
    assert!(rome.simulation.redundant().is_empty());
    assert!(rome.replan().is_empty());
}

#[test]
fn networking_follows_configuration_gateway_and_connection() {
    follow(vec![
        Put(
            configuration(),
            &["Unknown", CONFIGURED, NO_GATEWAY, NO_CONNECTION],
        ),
        Put(
            server(),
            &["Unknown", CONFIGURED, GATEWAY, SERVER, NO_CONNECTION],
        ),
        Put(
            gateway_pod("b", false),
            &["Unknown", CONFIGURED, GATEWAY, SERVER_PART, NO_CONNECTION],
        ),
        Put(
            gateway_pod("a", false),
            &["Unknown", CONFIGURED, GATEWAY, SERVER_DOWN, NO_CONNECTION],
        ),
        Put(
            gateway_pod("a", true),
            &["Unknown", CONFIGURED, GATEWAY, SERVER_PART, NO_CONNECTION],
        ),
        Remove(
            gateway_pod("b", false),
            &["Unknown", CONFIGURED, GATEWAY, SERVER, NO_CONNECTION],
        ),
        Put(
            connection(""),
            &["Unknown", CONFIGURED, GATEWAY, SERVER, PENDING],
        ),
        Put(
            connection("Connecting"),
            &["Unknown", CONFIGURED, GATEWAY, SERVER, PENDING],
        ),
        Put(
            connection("Connected"),
            &["Unknown", CONFIGURED, GATEWAY, SERVER, ESTABLISHED],
        ),
        Put(
            connection("Error"),
            &["Unknown", CONFIGURED, GATEWAY, SERVER, BROKEN],
        ),
        Remove(
            configuration(),
            &["Unknown", UNCONFIGURED, GATEWAY, SERVER, BROKEN],
        ),
        Remove(server(), &["Unknown", UNCONFIGURED, NO_GATEWAY, BROKEN]),
        Put(
            client(),
            &["Unknown", UNCONFIGURED, GATEWAY, CLIENT, BROKEN],
        ),
        Remove(client(), &["Unknown", UNCONFIGURED, NO_GATEWAY, BROKEN]),
        Remove(connection(""), &["none"]),
    ]);
}

/// An addition to upstream's: the fault of the path names the broken hop.
#[test]
fn a_fault_of_the_path_is_the_reason() {
    let mut rome = Rome::new();
    rome.put(connection("Connected"));
    for (value, line) in [
        (
            "Connected",
            "NetworkConnectionStatus SomeNotReady LocalOverlay: node rome-1: no overlay",
        ),
        (
            "Error",
            "NetworkConnectionStatus Error ConnectionError: node rome-1: no overlay",
        ),
        (
            "Connecting",
            "NetworkConnectionStatus Pending ConnectionPending: node rome-1: no overlay",
        ),
    ] {
        rome.put(faulty(value));
        rome.settle();
        assert_eq!(rome.lines()[3], line);
    }
    for (field, value) in [("status", "True"), ("status", "Unknown"), ("type", "Other")] {
        let mut healthy = faulty("Connected");
        healthy["status"]["conditions"][0][field] = json!(value);
        rome.put(healthy);
        rome.settle();
        assert_eq!(rome.lines()[3], ESTABLISHED);
    }
}

/// Virtual nodes and endpoints follow it. Other changes are written half a second later, together with those that follow.
#[test]
fn the_loss_of_the_connection_is_shown_at_once() {
    let mut rome = Rome::new();
    rome.put(connection("Connected"));
    rome.settle();
    let is_shown = |rome: &mut Rome, status: &str| {
        let line = format!("NetworkConnectionStatus {status} ");
        rome.lines().iter().any(|it| it.starts_with(&line))
    };
    assert!(is_shown(&mut rome, "Established"));

    rome.put(connection("Error"));
    rome.run(Duration::from_millis(100));
    assert!(is_shown(&mut rome, "Error"));
    rome.settle();
}

#[test]
fn a_replica_that_terminates_is_not_counted() {
    let mut rome = Rome::new();
    rome.put(server());
    let mut pod = gateway_pod("b", true);
    pod["metadata"]["finalizers"] = json!(["example.com/wait"]);
    rome.put(pod.clone());
    rome.settle();
    assert_eq!(rome.lines()[3], SERVER);

    rome.remove(&pod);
    rome.remove(&gateway_pod("a", true));
    rome.settle();
    assert_eq!(rome.lines()[3], SERVER_DOWN);
}

#[test]
fn the_oldest_gateway_serves_the_peer() {
    let created = |mut object: Value, time: &str| {
        object["metadata"]["creationTimestamp"] = json!(time);
        object
    };
    follow(vec![
        Put(
            created(server(), "2026-11-22T00:00:00Z"),
            &["Unknown", UNCONFIGURED, GATEWAY, SERVER, NO_CONNECTION],
        ),
        Put(
            created(client(), "2026-11-21T00:00:00Z"),
            &["Unknown", UNCONFIGURED, GATEWAY, CLIENT, NO_CONNECTION],
        ),
    ]);
}

#[test]
fn the_tenant_is_ready_with_credentials_or_without_a_handshake() {
    let tolerant = |status: Value| {
        let spec = json!({"clusterID": "milan", "authzPolicy": "TolerateNoHandshake"});
        with(with(tenant(), "spec", spec), "status", status)
    };
    let place = json!({"tenantNamespace": TENANT});
    follow(vec![
        Put(tenant(), &["Consumer", TENANT_NOT_READY]),
        Put(
            with(tenant(), "status", place.clone()),
            &["Consumer", TENANT_NOT_READY],
        ),
        Put(ready_tenant(), &["Consumer", TENANT_READY]),
        Put(tolerant(json!({})), &["Consumer", TENANT_NOT_READY]),
        Put(tolerant(place), &["Consumer", TENANT_READY]),
        Put(tenant(), &["Consumer", TENANT_NOT_READY]),
        Remove(tenant(), &["none"]),
    ]);
}

#[test]
fn the_identity_is_ready_with_its_secret() {
    follow(vec![
        Put(slice_identity(), &["Unknown"]),
        Put(identity(), &["Provider", IDENTITY_NOT_READY]),
        Put(ready_identity(), &["Provider", IDENTITY_NOT_READY]),
        Put(secret(), &["Provider", IDENTITY]),
        Put(
            tenant(),
            &["ConsumerAndProvider", TENANT_NOT_READY, IDENTITY],
        ),
        Put(
            ready_tenant(),
            &["ConsumerAndProvider", TENANT_READY, IDENTITY],
        ),
        Remove(
            secret(),
            &["ConsumerAndProvider", TENANT_READY, IDENTITY_NOT_READY],
        ),
        Remove(ready_identity(), &["Consumer", TENANT_READY]),
        Remove(slice_identity(), &["Consumer", TENANT_READY]),
        Remove(tenant(), &["none"]),
    ]);
}

#[test]
fn the_identity_is_ready_while_the_manager_may_read_its_secret() {
    follow(vec![
        Put(secret(), &["Provider", IDENTITY]),
        Put(ready_identity(), &["Provider", IDENTITY]),
        Remove(role_binding(), &["Provider", IDENTITY_NOT_READY]),
        Put(role_binding(), &["Provider", IDENTITY]),
    ]);
}

#[test]
fn a_secret_of_a_user_needs_no_identity() {
    let of_slice = {
        let mut other = secret();
        other["metadata"]["name"] = json!("other");
        other["metadata"]["labels"]["liqo.io/identity-type"] = json!("ResourceSlice");
        other
    };
    follow(vec![
        Put(of_slice, &["none"]),
        Put(secret(), &["Provider", IDENTITY]),
        Remove(secret(), &["none"]),
    ]);
}

/// The input of replication: on 403 it sets the condition of the slice in this cluster.
#[test]
fn the_identity_is_not_ready_while_the_provider_refuses_it() {
    let of_consumer = {
        let mut other = slice("Denied", "ReplicationForbidden");
        other["spec"] = json!({"providerClusterID": "rome", "consumerClusterID": "milan"});
        other
    };
    follow(vec![
        Put(secret(), &["Provider", IDENTITY]),
        Put(
            slice("Denied", "ReplicationForbidden"),
            &["Provider", IDENTITY_NOT_READY],
        ),
        Put(slice("Denied", "TenantCordoned"), &["Provider", IDENTITY]),
        Put(
            slice("Denied", "ReplicationForbidden"),
            &["Provider", IDENTITY_NOT_READY],
        ),
        Put(
            slice("Accepted", "ReplicationForbidden"),
            &["Provider", IDENTITY],
        ),
        Put(of_consumer, &["Provider", IDENTITY]),
    ]);
}

#[test]
fn offloading_counts_ready_kubelets_and_nodes() {
    let a = || virtual_node("a", json!({"createNode": true}));
    let b = || virtual_node("b", json!({}));
    let no_node = virtual_node("b", json!({"createNode": false}));
    follow(vec![
        Put(a(), &["Provider", KUBELETS, NODES_DOWN]),
        Put(node("a", false), &["Provider", KUBELETS, NODES_DOWN]),
        Put(node("a", true), &["Provider", KUBELETS, NODES]),
        Put(kubelet("a", false), &["Provider", KUBELETS_DOWN, NODES]),
        Put(b(), &["Provider", KUBELETS_PART, NODES_PART]),
        Put(kubelet("a", true), &["Provider", KUBELETS, NODES_PART]),
        Put(
            kubelet("b", false),
            &["Provider", KUBELETS_PART, NODES_PART],
        ),
        Put(no_node, &["Provider", KUBELETS_PART, NODES]),
        Put(node("a", false), &["Provider", KUBELETS_PART, NODES_DOWN]),
        Remove(b(), &["Provider", KUBELETS, NODES_DOWN]),
        Remove(a(), &["Unknown"]),
        Remove(node("a", false), &["none"]),
    ]);
}

#[test]
fn a_virtual_node_without_node_expects_none() {
    let lines = &["Provider", KUBELETS, NODES];
    follow(vec![Put(
        virtual_node("a", json!({"createNode": false})),
        lines,
    )]);
}
