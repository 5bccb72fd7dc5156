//! The fields that the cache keeps of each kind.

use super::stored::Stored;
use control_api::{
    Configuration, Connection, GatewayClient, GatewayServer, IP, Network, PublicKey, ShadowPod,
    annotations, labels,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, Namespace, Node, NodeStatus, Pod, PodSpec, PodStatus, Secret, Service,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Resource as _;
use std::collections::BTreeMap;

impl Stored for Network {}
impl Stored for IP {}
impl Stored for Configuration {
    const IS_OF_PEER: bool = true;
}
impl Stored for GatewayServer {
    const IS_OF_PEER: bool = true;
}
impl Stored for GatewayClient {
    const IS_OF_PEER: bool = true;
}
impl Stored for ConfigMap {}
impl Stored for EndpointSlice {}
impl Stored for RoleBinding {}

impl Stored for PublicKey {
    const IS_OF_PEER: bool = true;

    fn prune(&mut self) {
        self.spec.truncate();
    }
}

impl Stored for Connection {
    const IS_OF_PEER: bool = true;

    /// Clears the latency, which changes every few seconds.
    fn prune(&mut self) {
        if let Some(status) = &mut self.status {
            status.latency = None;
        }
    }
}

impl Stored for Node {
    /// Keeps the addresses and the condition `Ready`, but no images, heartbeats and annotations.
    fn prune(&mut self) {
        self.metadata.annotations = None;
        self.metadata.labels = self.metadata.labels.take().map(|labels| {
            let keep = |key: &str| {
                [
                    labels::NODE_TYPE,
                    labels::CONTROL_PLANE_NODE,
                    labels::REMOTE_CLUSTER_ID,
                ]
                .contains(&key)
            };
            BTreeMap::from_iter(labels.into_iter().filter(|(key, _)| keep(key)))
        });
        self.spec = None;
        self.status = self.status.take().map(|status| NodeStatus {
            addresses: status.addresses,
            conditions: status.conditions.map(|conditions| {
                let ready = conditions.into_iter().filter(|it| it.type_ == "Ready");
                let plain = ready.map(|mut condition| {
                    condition.last_heartbeat_time = None;
                    condition.last_transition_time = None;
                    condition.message = None;
                    condition.reason = None;
                    condition
                });
                plain.collect()
            }),
            ..NodeStatus::default()
        });
    }
}

impl Stored for Pod {
    /// Keeps node, addresses and the condition `Ready`. Of the pods of consumers it also keeps metadata, which follows the
    /// ShadowPod, and the resources that they request.
    fn prune(&mut self) {
        let owners = self.metadata.owner_references.iter().flatten();
        // The owner shows whose a pod is that has lost its label.
        let is_owned = |kind: &str| kind == ShadowPod::kind(&());
        let is_of_consumer = owners.into_iter().any(|owner| is_owned(&owner.kind))
            || self.metadata.labels.as_ref().is_some_and(|labels| {
                labels.get(labels::MANAGED_BY).map(String::as_str)
                    == Some(labels::MANAGED_BY_SHADOW_POD)
            });
        if !is_of_consumer {
            self.metadata.annotations = None;
            self.metadata.owner_references = None;
        }
        self.spec = self.spec.take().map(|spec| {
            let node_name = spec.node_name.clone();
            let requests = is_of_consumer.then(|| requests(spec));
            PodSpec {
                node_name,
                ..requests.unwrap_or_default()
            }
        });
        self.status = self.status.take().map(|status| PodStatus {
            phase: status.phase,
            pod_ip: status.pod_ip,
            conditions: status.conditions.map(|conditions| {
                let ready = conditions.into_iter().filter(|it| it.type_ == "Ready");
                let plain = ready.map(|mut condition| {
                    condition.last_probe_time = None;
                    condition.last_transition_time = None;
                    condition.message = None;
                    condition
                });
                plain.collect()
            }),
            ..PodStatus::default()
        });
    }
}

/// Clears the fields of a pod's spec but those that determine how much it requests.
fn requests(spec: PodSpec) -> PodSpec {
    let of_container = |container: Container| Container {
        resources: container.resources,
        restart_policy: container.restart_policy,
        ..Container::default()
    };
    let of_containers =
        |containers: Vec<Container>| containers.into_iter().map(of_container).collect();

    PodSpec {
        containers: of_containers(spec.containers),
        init_containers: spec.init_containers.map(of_containers),
        overhead: spec.overhead,
        resources: spec.resources,
        ..PodSpec::default()
    }
}

impl Stored for Namespace {
    /// Keeps the labels that determine the effect of the objects in the namespace, the decisions about its Tenant, and the
    /// NamespaceMap that it was created for.
    fn prune(&mut self) {
        self.metadata.annotations = self.metadata.annotations.take().map(|annotations| {
            let is_kept = |key: &str| {
                [
                    annotations::TENANT_CONDITION,
                    annotations::CORDONED_SLICES,
                    annotations::NAMESPACE_MAP,
                    annotations::ORIGINAL_NAME,
                ]
                .contains(&key)
            };
            BTreeMap::from_iter(annotations.into_iter().filter(|(key, _)| is_kept(key)))
        });
        self.metadata.labels = self.metadata.labels.take().map(|labels| {
            let is_kept = |key: &str| {
                [
                    labels::REMOTE_CLUSTER_ID,
                    labels::TENANT_NAMESPACE,
                    labels::ALLOW_INTERNAL_ADDRESSES,
                ]
                .contains(&key)
            };
            BTreeMap::from_iter(labels.into_iter().filter(|(key, _)| is_kept(key)))
        });
        self.spec = None;
        self.status = None;
    }
}

impl Stored for Secret {
    const IS_OF_PEER: bool = true;

    fn prune(&mut self) {
        self.metadata.annotations = None;
    }
}

impl Stored for Service {
    fn prune(&mut self) {
        if let Some(status) = &mut self.status {
            status.conditions = None;
        }
    }
}

impl Stored for Deployment {
    const IS_OF_PEER: bool = true;

    /// Keeps the spec, which is small because the manager created it.
    fn prune(&mut self) {
        self.status = None;
        self.metadata.annotations = None;
    }
}
