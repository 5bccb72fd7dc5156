//! The objects that endpoints depend on, in the cache.

use super::item::WorkItem;
use super::peers::{Peers, consumer_of};
use super::settings::Settings;
use crate::authentication::label;
use crate::network::is_real;
use control_api::authentication::tenant_policy;
use control_api::tenant_namespace::peer_of;
use control_api::{
    ForeignCluster, Network, ShadowEndpointSlice, TenantPolicy, annotations, labels,
};
use control_runtime::{Cache, Cluster, Key, Objects, Ref};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Index of ShadowEndpointSlices by the cluster IDs of other providers that have addresses.
pub(super) const BY_DIRECT: &str = "shadow-endpoint-slice/direct";

/// Index of Nodes by address.
pub(super) const BY_ADDRESS: &str = "shadow-endpoint-slice/address";

/// Index of EndpointSlices by the subnets of their addresses, which are fewer than the addresses.
pub(super) const BY_SUBNET: &str = "shadow-endpoint-slice/subnet";

/// Prefix length of those subnets.
const SUBNET_LEN: u8 = 24;

/// The objects of the local cluster.
pub(crate) struct Local<'a> {
    pub(super) settings: &'a Settings,
    pub(super) shadows: Objects<'a, ShadowEndpointSlice>,
    pub(super) slices: Objects<'a, EndpointSlice>,
    pub(super) peers: Peers<'a>,
    namespaces: Objects<'a, Namespace>,
    foreign_clusters: Objects<'a, ForeignCluster>,
    policies: Objects<'a, TenantPolicy>,
    networks: Objects<'a, Network>,
    nodes: Objects<'a, Node>,
    cache: &'a Cache,
}

impl<'a> Local<'a> {
    /// Creates the view of a cache.
    pub(crate) fn new(cache: &'a Cache, settings: &'a Settings) -> Self {
        let local = &Cluster::Local;
        Self {
            settings,
            shadows: cache.objects(local),
            slices: cache.objects(local),
            namespaces: cache.objects(local),
            peers: Peers::new(cache, &settings.tenant_namespaces),
            foreign_clusters: cache.objects(local),
            policies: cache.objects(local),
            networks: cache.objects(local),
            nodes: cache.objects(local),
            cache,
        }
    }

    /// Returns the cluster ID of the consumer that a namespace was created for.
    pub(super) fn consumer(&self, namespace: &str) -> Option<&'a str> {
        let metadata = &self.namespaces.get(&Key::cluster(namespace))?.metadata;
        let peer = consumer_of(metadata)?;
        let map = metadata
            .annotations
            .as_ref()?
            .get(annotations::NAMESPACE_MAP)?;
        let (tenant, _) = map.split_once('/')?;
        let tenant = self.namespaces.get(&Key::cluster(tenant))?;

        (peer_of(&tenant.metadata) == Some(peer)).then_some(peer)
    }

    /// Returns whether a namespace is absent or being deleted, so that nothing can be created in it.
    pub(super) fn is_terminating(&self, namespace: &str) -> bool {
        let namespace = self.namespaces.get(&Key::cluster(namespace));
        namespace.is_none_or(|it| it.metadata.deletion_timestamp.is_some())
    }

    /// Returns the work item of a ShadowEndpointSlice.
    pub(super) fn item(&self, key: &Key) -> WorkItem {
        WorkItem {
            peer: self.consumer(&key.namespace).unwrap_or_default().to_owned(),
            key: key.clone(),
        }
    }

    /// Returns the items in a namespace.
    pub(super) fn items_within(&self, namespace: &str) -> BTreeSet<WorkItem> {
        let shadows = self.shadows.within(namespace);
        shadows.map(|(key, _)| self.item(key)).collect()
    }

    /// Returns the items whose endpoints depend on a peer.
    pub(super) fn items_of_peer(&self, peer: &str) -> BTreeSet<WorkItem> {
        let namespaces = self.peers.namespaces_of(peer);
        let of_consumer = namespaces.flat_map(|namespace| self.items_within(namespace));
        let direct = self.shadows.indexed(BY_DIRECT, peer);

        of_consumer
            .chain(direct.map(|(key, _)| self.item(key)))
            .collect()
    }

    /// Returns all items.
    pub(super) fn items(&self) -> BTreeSet<WorkItem> {
        self.shadows.iter().map(|(key, _)| self.item(key)).collect()
    }

    /// Returns the items whose EndpointSlices may contain an address.
    pub(super) fn items_with(&self, address: Ipv4Addr) -> BTreeSet<WorkItem> {
        let slices = self.slices.indexed(BY_SUBNET, &subnet(address));
        slices.map(|(key, _)| self.item(key)).collect()
    }

    /// Returns the state of the connection with a peer; `None` until its ForeignCluster has a status.
    pub(crate) fn health(&self, peer: &str) -> Option<Health> {
        Health::of(self.foreign_clusters.get(&Key::cluster(peer))?)
    }

    /// Returns whether a consumer has a TenantPolicy of its own.
    pub(super) fn has_policy(&self, peer: &str) -> bool {
        let key = Key::new(&*self.settings.namespace, peer);
        self.policies.get(&key).is_some()
    }

    /// Returns the CIDRs that the TenantPolicy of a consumer allows besides its own.
    pub(super) fn allowed(&self, peer: &str) -> Vec<Ipv4Net> {
        let policy = |name: &str| {
            self.policies
                .get(&Key::new(&*self.settings.namespace, name))
        };
        let policy = policy(peer).or_else(|| policy(tenant_policy::DEFAULT));
        let cidrs = policy.and_then(|it| it.spec.endpoint_cidrs.as_ref());
        let cidrs = cidrs.into_iter().flatten();

        cidrs.filter_map(|cidr| cidr.parse().ok()).collect()
    }

    /// Returns the CIDRs of Services and of the fabric of this cluster.
    pub(super) fn internal(&self) -> Vec<Ipv4Net> {
        let networks = self.networks.within(&self.settings.namespace);
        networks
            .filter_map(|(_, network)| internal_cidr(network))
            .collect()
    }

    /// Returns whether a node has an address.
    pub(super) fn is_node(&self, address: Ipv4Addr) -> bool {
        let mut nodes = self.nodes.indexed(BY_ADDRESS, &address.to_string());
        nodes.next().is_some()
    }

    /// Returns the version of an EndpointSlice.
    pub(super) fn version(&self, key: &Key) -> Option<String> {
        let object = Ref::of::<EndpointSlice>(&Cluster::Local, key);
        let version = self.cache.entry(&object)?.version;
        version.map(|version| version.to_string())
    }
}

/// State of the connection with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    /// Whether the networking module of the peering is enabled.
    pub(super) is_networked: bool,
    /// Whether the networks are connected.
    pub(super) is_connected: bool,
    /// Since when the networks are not connected; `None` if they are.
    pub(super) lost: Option<Timestamp>,
    /// Since when the API server of the peer has not responded; `None` if it does, or is not probed.
    pub(super) outage: Option<Timestamp>,
}

impl Health {
    /// Reads the state; `None` if there is no status yet.
    pub(crate) fn of(foreign_cluster: &ForeignCluster) -> Option<Self> {
        let status = foreign_cluster.status.as_ref()?;
        let networking = &status.modules.as_ref()?.networking;

        Some(Self {
            is_networked: networking.enabled,
            is_connected: networking.is_connected(),
            lost: networking.lost_since().filter(|_| networking.enabled),
            outage: foreign_cluster.api_server_outage(),
        })
    }

    /// Returns whether endpoints of the peer are reached, as far as this cluster knows, and for how long that holds if nothing
    /// changes; `None` for ever.
    ///
    /// The last state that its API server has reported counts for the grace period while the networks are connected: an upgrade of
    /// the control plane does not concern pods.
    pub(crate) fn is_ready(self, grace: Duration, now: Timestamp) -> (bool, Option<Duration>) {
        let Some(since) = self.outage else {
            return (self.is_connected || !self.is_networked, None);
        };
        let rest = rest(since, grace, now).filter(|_| self.is_networked && self.is_connected);

        (rest.is_some(), rest)
    }

    /// Returns whether the last state that the peer has reported counts for endpoints that this cluster reaches without it, and for
    /// how long that holds if nothing changes; `None` for ever. Other pods may get the addresses of pods that end meanwhile.
    pub(super) fn is_current(self, grace: Duration, now: Timestamp) -> (bool, Option<Duration>) {
        let Some(since) = self.lost.into_iter().chain(self.outage).min() else {
            return (true, None);
        };
        let rest = rest(since, grace, now);

        (rest.is_some(), rest)
    }
}

/// Returns the rest of a grace period that began at `since`; `None` if it is over.
fn rest(since: Timestamp, grace: Duration, now: Timestamp) -> Option<Duration> {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();

    Some(grace.saturating_sub(passed)).filter(|it| !it.is_zero())
}

/// Returns the CIDR of a Network of Services or of the fabric; `None` for other Networks.
pub(super) fn internal_cidr(network: &Network) -> Option<Ipv4Net> {
    let type_ = label(&network.metadata, labels::NETWORK_TYPE)?;
    if ![labels::NETWORK_TYPE_SERVICE, labels::NETWORK_TYPE_INTERNAL].contains(&type_) {
        return None;
    }
    let allocated = network
        .status
        .as_ref()
        .and_then(|status| status.cidr.as_ref());

    allocated.unwrap_or(&network.spec.cidr).parse().ok()
}

/// Returns the addresses of a node that runs pods. A virtual node has that of a pod.
pub(super) fn addresses(node: &Node) -> BTreeSet<Ipv4Addr> {
    let status = node.status.as_ref().filter(|_| is_real(node));
    let addresses = status.and_then(|it| it.addresses.as_ref());
    let addresses = addresses.into_iter().flatten();

    addresses.filter_map(|it| it.address.parse().ok()).collect()
}

/// Returns the subnets of the addresses of an EndpointSlice that belongs to a ShadowEndpointSlice.
pub(super) fn subnets(slice: &EndpointSlice) -> Vec<String> {
    if !is_reflected(&slice.metadata) {
        return Vec::new();
    }
    let texts = slice
        .endpoints
        .iter()
        .flatten()
        .flat_map(|it| &it.addresses);
    let addresses = texts.filter_map(|text| text.parse().ok());
    let subnets: BTreeSet<_> = addresses.map(subnet).collect();

    subnets.into_iter().collect()
}

fn subnet(address: Ipv4Addr) -> String {
    let subnet = Ipv4Net::new(address, SUBNET_LEN).map(|net| net.trunc());
    subnet.map(|net| net.to_string()).unwrap_or_default()
}

/// Returns whether an EndpointSlice is labelled as that of a ShadowEndpointSlice.
pub(super) fn is_reflected(slice: &ObjectMeta) -> bool {
    label(slice, labels::MANAGED_BY) == Some(labels::MANAGED_BY_SHADOW_ENDPOINT_SLICE)
}
