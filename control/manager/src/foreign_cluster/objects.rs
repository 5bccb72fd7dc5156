//! The objects of peers in the cache.

use super::settings::Settings;
use crate::network::id_of;
use control_api::tenant_namespace::{choose, peer_of};
use control_api::{
    Configuration, Connection, ForeignCluster, GatewayClient, GatewayServer, Identity,
    NamespaceMap, PublicKey, Renew, ResourceSlice, Tenant, VirtualNode, labels,
};
use control_runtime::{Cache, Change, Cluster, Key, Objects};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::any::Any;
use std::collections::BTreeSet;

/// Index of objects by the cluster ID of their peer.
pub(super) const BY_PEER: &str = "foreign-cluster/peer";

/// An object that belongs to a peer.
pub(super) trait OfPeer:
    kube::Resource<DynamicType = ()> + Any + PartialEq + Send + Sync
{
    /// Returns the cluster ID of the peer; both, if label and spec differ.
    fn peers(&self) -> Vec<String> {
        label(self.meta(), labels::REMOTE_CLUSTER_ID)
            .into_iter()
            .map(str::to_owned)
            .collect()
    }
}

impl OfPeer for Configuration {}
impl OfPeer for Connection {}
impl OfPeer for GatewayServer {}
impl OfPeer for GatewayClient {}
impl OfPeer for PublicKey {}
impl OfPeer for ResourceSlice {}
impl OfPeer for Renew {}
impl OfPeer for NamespaceMap {}
impl OfPeer for Pod {}

/// Upstream's webhooks add the label, which plain manifests may lack.
impl OfPeer for Tenant {
    fn peers(&self) -> Vec<String> {
        of_label_and_spec(&self.metadata, self.spec.cluster_id.as_deref())
    }
}

impl OfPeer for Identity {
    fn peers(&self) -> Vec<String> {
        of_label_and_spec(&self.metadata, self.spec.cluster_id.as_deref())
    }
}

impl OfPeer for VirtualNode {
    fn peers(&self) -> Vec<String> {
        of_label_and_spec(&self.metadata, self.spec.cluster_id.as_deref())
    }
}

/// Only Secrets with the kubeconfig of a control plane.
impl OfPeer for Secret {
    fn peers(&self) -> Vec<String> {
        let is_control_plane = label(&self.metadata, labels::IDENTITY_TYPE)
            == Some(labels::IDENTITY_TYPE_CONTROL_PLANE);
        let peer = label(&self.metadata, labels::REMOTE_CLUSTER_ID).filter(|_| is_control_plane);
        peer.into_iter().map(str::to_owned).collect()
    }
}

/// Only virtual nodes: `liqoctl test network` labels the workers of this cluster, too.
impl OfPeer for Node {
    fn peers(&self) -> Vec<String> {
        let is_virtual =
            label(&self.metadata, labels::NODE_TYPE) == Some(labels::NODE_TYPE_VIRTUAL);
        let peer = label(&self.metadata, labels::REMOTE_CLUSTER_ID).filter(|_| is_virtual);
        peer.into_iter().map(str::to_owned).collect()
    }
}

impl OfPeer for Namespace {
    fn peers(&self) -> Vec<String> {
        peer_of(&self.metadata)
            .into_iter()
            .map(str::to_owned)
            .collect()
    }
}

impl OfPeer for ForeignCluster {
    fn peers(&self) -> Vec<String> {
        self.metadata.name.iter().cloned().collect()
    }
}

/// The ConfigMap with the ID of this cluster, which is not a peer.
impl OfPeer for ConfigMap {
    fn peers(&self) -> Vec<String> {
        id_of(self).into_iter().map(str::to_owned).collect()
    }
}

/// The objects of the local cluster.
#[derive(Clone, Copy)]
pub(super) struct Local<'a> {
    pub(super) settings: &'a Settings,
    pub(super) cache: &'a Cache,
}

impl<'a> Local<'a> {
    /// Returns all objects of a type.
    pub(super) fn objects<K: OfPeer>(self) -> Objects<'a, K> {
        self.cache.objects(&Cluster::Local)
    }

    /// Returns the objects of a peer in a namespace.
    pub(super) fn placed<K: OfPeer>(
        self,
        peer: &str,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a Key, &'a K)> + use<'a, K> {
        let namespace = namespace.to_owned();
        let objects = self.objects::<K>().indexed(BY_PEER, peer);
        objects.filter(move |(key, _)| key.namespace == namespace)
    }

    /// Returns the only namespace whose objects have an effect for a peer.
    pub(super) fn tenant_namespace(self, peer: &str) -> Option<&'a str> {
        let labelled = self.objects::<Namespace>().indexed(BY_PEER, peer);
        let holds = |name: &str| {
            self.placed::<Configuration>(peer, name).next().is_some()
                || self.placed::<GatewayServer>(peer, name).next().is_some()
                || self.placed::<GatewayClient>(peer, name).next().is_some()
                || self.placed::<PublicKey>(peer, name).next().is_some()
        };
        choose(
            labelled.map(|(_, namespace)| &namespace.metadata),
            &self.settings.tenant_namespaces,
            holds,
        )
    }

    /// Returns the cluster ID of the peer whose tenant namespace this is, by its labels.
    pub(super) fn peer_of(self, namespace: &str) -> Option<&'a str> {
        let namespace = self.objects::<Namespace>().get(&Key::cluster(namespace))?;
        peer_of(&namespace.metadata)
    }

    /// Returns the ID of this cluster.
    pub(super) fn cluster_id(self) -> Option<&'a str> {
        let mut maps = self.objects::<ConfigMap>().within(&self.settings.namespace);
        maps.find_map(|(_, map)| id_of(map))
    }

    /// Returns whether an ID is valid and that of another cluster.
    pub(super) fn is_peer(self, id: &str) -> bool {
        control_fabric::is_cluster_id(id) && self.cluster_id() != Some(id)
    }

    /// Returns the number of ready replicas of the gateway, and of all.
    pub(super) fn replicas(self) -> (usize, usize) {
        let pods = self.objects::<Pod>().within(&self.settings.namespace);
        let replicas = pods.filter_map(|(_, pod)| is_ready_replica(pod));
        replicas.fold((0, 0), |(ready, all), is_ready| {
            (ready + usize::from(is_ready), all + 1)
        })
    }
}

/// Returns the peers of the object before and after a change.
pub(super) fn peers_of(change: &Change<'_>) -> BTreeSet<String> {
    fn of<K: OfPeer>(change: &Change<'_>) -> Vec<String> {
        let states = [change.before::<K>(), change.after::<K>()];
        states.into_iter().flatten().flat_map(K::peers).collect()
    }
    let of_types = [
        of::<Configuration>,
        of::<Connection>,
        of::<GatewayServer>,
        of::<GatewayClient>,
        of::<PublicKey>,
        of::<Tenant>,
        of::<Identity>,
        of::<Secret>,
        of::<ResourceSlice>,
        of::<Renew>,
        of::<NamespaceMap>,
        of::<VirtualNode>,
        of::<Pod>,
        of::<Node>,
        of::<Namespace>,
        of::<ForeignCluster>,
        of::<ConfigMap>,
    ];
    of_types.iter().flat_map(|of| of(change)).collect()
}

/// Returns whether a replica of the gateway is ready; `None` for other pods, and for one that terminates.
pub(super) fn is_ready_replica(pod: &Pod) -> Option<bool> {
    let is_gateway = label(&pod.metadata, labels::COMPONENT) == Some(labels::COMPONENT_GATEWAY);
    let is_counted = is_gateway && pod.metadata.deletion_timestamp.is_none();
    let has_address = || {
        let status = pod.status.as_ref();
        status.is_some_and(|status| status.pod_ip.is_some())
    };

    is_counted.then(|| is_ready(pod) && has_address())
}

/// Returns whether a pod is ready.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Returns a label of an object.
pub(super) fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn of_label_and_spec(metadata: &ObjectMeta, spec: Option<&str>) -> Vec<String> {
    let peers = BTreeSet::from_iter(
        label(metadata, labels::REMOTE_CLUSTER_ID)
            .into_iter()
            .chain(spec),
    );
    peers.into_iter().map(str::to_owned).collect()
}
