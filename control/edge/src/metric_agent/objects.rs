//! The objects that the agent follows, in the form in which its cache keeps them.

use super::request_header::RequestHeader;
use control_api::{annotations, labels};
use control_fabric::is_cluster_id;
use control_runtime::{Cache, Change, Controller, Env, Kept, Plan, Registration, Resource, Scope};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use serde::Deserialize;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

/// Namespace and name of the ConfigMap with which the API server publishes how extension API servers authenticate it.
pub(super) const AUTHENTICATION: (&str, &str) =
    ("kube-system", "extension-apiserver-authentication");

/// Index of pods by the cluster ID of their consumer.
pub(super) const ORIGIN: &str = "origin";

/// Returns the resources that the agent follows.
pub fn registrations() -> Vec<Registration> {
    let (namespace, name) = AUTHENTICATION;
    let of_consumers = format!(
        "{}={},{}",
        labels::MANAGED_BY,
        labels::MANAGED_BY_SHADOW_POD,
        labels::ORIGIN
    );

    vec![
        Registration::of(Scope::All, KeptPod::of)
            .labels(of_consumers)
            .index(ORIGIN, |pod: &KeptPod| vec![pod.origin.clone()]),
        Registration::of(Scope::All, KeptNode::of),
        Registration::of(Scope::All, KeptNamespace::of).labels(labels::REMOTE_CLUSTER_ID),
        Registration::of(Scope::Namespace(namespace.to_owned()), |it: ConfigMap| {
            RequestHeader::of(&it.data.unwrap_or_default())
        })
        .name(name),
    ]
}

impl Kept for RequestHeader {
    fn resource() -> Resource {
        Resource::of::<ConfigMap>()
    }
}

/// A pod of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeptPod {
    /// Cluster ID of the consumer.
    pub(super) origin: String,
    /// Name of the node that runs the pod; empty if none does yet.
    pub(super) node: String,
}

impl Kept for KeptPod {
    fn resource() -> Resource {
        Resource::of::<Pod>()
    }
}

impl KeptPod {
    fn of(pod: PlacedPod) -> Self {
        let origin = pod.labels().get(labels::ORIGIN).cloned();

        Self {
            origin: origin.unwrap_or_default(),
            node: pod.spec.node_name.unwrap_or_default(),
        }
    }
}

/// The fields of a pod that the agent needs: decoding all others takes most of its CPU time.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Pod)]
struct PlacedPod {
    metadata: ObjectMeta,
    spec: Placement,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Placement {
    node_name: Option<String>,
}

/// A node, without its state that changes often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeptNode {
    /// Whether the node represents resources of another cluster.
    pub(super) is_virtual: bool,
    /// Whether its kubelet reports to be ready.
    pub(super) is_ready: bool,
    /// InternalIP and port of the kubelet; `None` if the Node does not state them.
    pub(super) kubelet: Option<SocketAddr>,
}

impl Kept for KeptNode {
    fn resource() -> Resource {
        Resource::of::<Node>()
    }
}

impl KeptNode {
    fn of(node: Node) -> Self {
        let kind = node.labels().get(labels::NODE_TYPE);
        let is_virtual = kind.is_some_and(|kind| kind == labels::NODE_TYPE_VIRTUAL);
        let status = node.status.unwrap_or_default();
        let mut conditions = status.conditions.iter().flatten();
        let is_ready = conditions.any(|it| it.type_ == "Ready" && it.status == "True");
        let addresses = status.addresses.iter().flatten();
        let mut internal = addresses.filter(|it| it.type_ == "InternalIP");
        let address = internal.find_map(|it| it.address.parse::<IpAddr>().ok());
        let endpoints = status.daemon_endpoints.unwrap_or_default();
        let port = endpoints.kubelet_endpoint.map(|it| it.port);
        let port = port.and_then(|port| u16::try_from(port).ok());
        let port = port.filter(|port| *port != 0);

        Self {
            is_virtual,
            is_ready,
            kubelet: address
                .zip(port)
                .map(|(address, port)| SocketAddr::new(address, port)),
        }
    }
}

/// A namespace of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeptNamespace {
    /// Cluster ID of the peer.
    pub(super) peer: String,
    /// Name of the namespace in the peer's cluster; `None` if the namespace is not one that the peer offloads.
    pub(super) original: Option<String>,
}

impl Kept for KeptNamespace {
    fn resource() -> Resource {
        Resource::of::<Namespace>()
    }
}

impl KeptNamespace {
    fn of(namespace: Namespace) -> Self {
        let peer = namespace.labels().get(labels::REMOTE_CLUSTER_ID).cloned();
        let original = namespace.annotations().get(annotations::ORIGINAL_NAME);
        // Names of namespaces are labels of DNS, as cluster IDs. The name becomes part of the output.
        let original = original.filter(|name| is_cluster_id(name)).cloned();

        Self {
            peer: peer.unwrap_or_default(),
            original,
        }
    }
}

/// A controller without work: the agent only reads the cache.
pub struct Follower;

impl Controller for Follower {
    type Item = Infallible;
    const NAME: &'static str = "metric-agent";
    const FIELD_MANAGER: &'static str = "metric-agent.liqo.io";

    fn resources(&self) -> Vec<Registration> {
        registrations()
    }

    fn observe(&mut self, _: &Change<'_>, _: &Cache) -> Vec<Infallible> {
        Vec::new()
    }

    fn plan(&mut self, item: &Infallible, _: &Cache, _: &mut Env<'_>) -> Plan<Infallible> {
        match *item {}
    }
}
