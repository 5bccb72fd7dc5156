//! The fields that the cache keeps of each kind.

use super::stored::Stored;
use control_api::{
    Configuration, Connection, GatewayClient, GatewayServer, IP, Network, PublicKey, ShadowPod,
    annotations, labels,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EphemeralContainer, Namespace, Node, NodeSpec, NodeStatus, Pod, PodSpec,
    PodStatus, Secret, Service,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use std::collections::BTreeMap;

/// Annotation of the pods that represent static pods of a kubelet.
pub(crate) const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// Annotations that decide whether an object is reflected.
const REFLECTION: [&str; 2] = [annotations::SKIP_REFLECTION, annotations::ALLOW_REFLECTION];

/// Drops all annotations but those of `kept`.
fn keep_annotations(metadata: &mut ObjectMeta, kept: &[&str]) {
    let mut annotations = metadata.annotations.take().unwrap_or_default();
    annotations.retain(|key, _| kept.contains(&key.as_str()));
    metadata.annotations = Some(annotations).filter(|it| !it.is_empty());
}

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
impl Stored for RoleBinding {}

impl Stored for EndpointSlice {
    /// Keeps only the addresses of each Node of those that others write, and the annotations about reflection. There may be many,
    /// in offloaded namespaces.
    fn prune(&mut self) {
        let labels = self.metadata.labels.as_ref();
        if labels.is_some_and(|it| it.contains_key(labels::MANAGED)) {
            return;
        }
        let mut addresses = BTreeMap::<_, Vec<_>>::new();
        for endpoint in self.endpoints.take().unwrap_or_default() {
            let of_node = addresses.entry(endpoint.node_name).or_default();
            of_node.extend(endpoint.addresses);
        }
        let endpoints = addresses.into_iter();
        let endpoints = endpoints.map(|(node_name, addresses)| Endpoint {
            addresses,
            node_name,
            ..Endpoint::default()
        });
        self.endpoints = Some(endpoints.collect());
        self.ports = None;
        keep_annotations(&mut self.metadata, &REFLECTION);
    }
}

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
    /// Keeps the addresses, the CIDRs of a virtual node, the cordon and the condition `Ready`, but no images and heartbeats.
    /// Namespaces are offloaded by the labels of virtual nodes.
    fn prune(&mut self) {
        keep_annotations(&mut self.metadata, &[annotations::REMOTE_POD_CIDRS]);
        let node_type = self
            .metadata
            .labels
            .as_ref()
            .and_then(|it| it.get(labels::NODE_TYPE));
        let is_virtual = node_type.is_some_and(|it| it == labels::NODE_TYPE_VIRTUAL);
        self.metadata.labels = self.metadata.labels.take().map(|labels| {
            let keep = |key: &str| {
                is_virtual
                    || [
                        labels::NODE_TYPE,
                        labels::CONTROL_PLANE_NODE,
                        labels::REMOTE_CLUSTER_ID,
                    ]
                    .contains(&key)
            };
            BTreeMap::from_iter(labels.into_iter().filter(|(key, _)| keep(key)))
        });
        self.spec = self.spec.take().map(|spec| NodeSpec {
            unschedulable: spec.unschedulable,
            ..NodeSpec::default()
        });
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
    /// Keeps node, network of the host, phase, addresses, the condition `Ready`, and the owners and annotations that exempt a pod from the drain of
    /// its Node. Of a consumer's pod it also keeps metadata, which follows the ShadowPod, the names of containers, and the resources that it requests; of
    /// that of a virtual kubelet all owners.
    fn prune(&mut self) {
        let is_of_consumer = is_of_consumer(&self.metadata);
        if !is_of_consumer {
            self.metadata.annotations = self.metadata.annotations.take().map(|annotations| {
                let mirror = annotations.into_iter().filter(|(key, _)| key == MIRROR_POD);
                BTreeMap::from_iter(mirror)
            });
            if let Some(owners) = &mut self.metadata.owner_references {
                let is_of_kubelet = (self.metadata.labels.as_ref())
                    .is_some_and(|it| it.contains_key(labels::VIRTUAL_NODE));
                owners.retain(|owner| owner.kind == "DaemonSet" || is_of_kubelet);
            }
        }
        self.spec = self.spec.take().map(|spec| {
            let node_name = spec.node_name.clone();
            let host_network = spec.host_network;
            let requests = is_of_consumer.then(|| requests(spec));
            PodSpec {
                node_name,
                host_network,
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

/// Returns whether a pod is that of a ShadowPod. The owner shows it for one that has lost its label.
fn is_of_consumer(metadata: &ObjectMeta) -> bool {
    let managed_by = metadata
        .labels
        .as_ref()
        .and_then(|it| it.get(labels::MANAGED_BY));
    let mut owners = metadata.owner_references.iter().flatten();

    managed_by.is_some_and(|it| it == labels::MANAGED_BY_SHADOW_POD)
        || owners.any(|owner| owner.kind == ShadowPod::kind(&()))
}

/// Clears the fields of a pod's spec but those that determine how much it requests, and the names of containers, by which the
/// pod is compared with its ShadowPod.
fn requests(spec: PodSpec) -> PodSpec {
    let of_container = |container: Container| Container {
        name: container.name,
        resources: container.resources,
        restart_policy: container.restart_policy,
        ..Container::default()
    };
    let of_containers =
        |containers: Vec<Container>| containers.into_iter().map(of_container).collect();

    let ephemeral = |containers: Vec<EphemeralContainer>| {
        let names = containers.into_iter().map(|it| EphemeralContainer {
            name: it.name,
            ..EphemeralContainer::default()
        });
        names.collect()
    };

    PodSpec {
        containers: of_containers(spec.containers),
        ephemeral_containers: spec.ephemeral_containers.map(ephemeral),
        init_containers: spec.init_containers.map(of_containers),
        overhead: spec.overhead,
        resources: spec.resources,
        ..PodSpec::default()
    }
}

impl Stored for Namespace {
    /// Keeps the labels that determine the effect of the objects in the namespace, the decisions about its Tenant, the
    /// NamespaceMap that it was created for, and what is reflected of it.
    fn prune(&mut self) {
        let of_tenant = [
            annotations::TENANT_CONDITION,
            annotations::CORDONED_SLICES,
            annotations::NAMESPACE_MAP,
            annotations::ORIGINAL_NAME,
        ];
        keep_annotations(&mut self.metadata, &[&of_tenant[..], &REFLECTION].concat());
        self.metadata.labels = self.metadata.labels.take().map(|labels| {
            let is_kept = |key: &str| {
                [
                    labels::REMOTE_CLUSTER_ID,
                    labels::TENANT_NAMESPACE,
                    labels::ALLOW_INTERNAL_ADDRESSES,
                    labels::SCHEDULING_ENABLED,
                    labels::POD_SECURITY,
                    labels::TENANT_POLICY,
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
