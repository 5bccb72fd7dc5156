//! Indexes of the cache: the objects of a peer, an owner, a Service or a public key.

use super::{Local, Stored, objects};
use crate::network::item::WorkItem;
use crate::network::kind::{KINDS, Key, Kind, NODE_IP_PREFIX, ReachedService};
use crate::network::service_request::ServiceRequest;
use control_api::{GatewayServer, IP, PublicKey, labels, tenant_namespace};
use control_runtime::{Objects, Registration};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

const PEER: &str = "peer";
const OWNER: &str = "owner";
const SERVICE: &str = "gateway-service";
const PUBLIC_KEY: &str = "public-key";
const TEMPLATE: &str = "service-template";

/// A value of an index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IndexKey {
    index: &'static str,
    value: String,
}

impl IndexKey {
    fn new(index: &'static str, value: impl Into<String>) -> Self {
        Self {
            index,
            value: value.into(),
        }
    }

    /// Objects of a peer, by cluster ID; empty for objects without the label.
    pub(crate) fn peer(peer: &str) -> Self {
        Self::new(PEER, peer)
    }

    /// Objects that an object owns.
    pub(crate) fn owner(kind: Kind, key: &Key) -> Self {
        Self::new(OWNER, format!("{kind} {key}"))
    }

    /// Objects related to a Service of the gateway, by the hash of the request.
    pub(crate) fn service(hash: &str) -> Self {
        Self::new(SERVICE, hash)
    }

    /// Objects with a public key.
    pub(crate) fn public_key(bytes: &[u8]) -> Self {
        let mut text = String::new();
        for byte in bytes {
            // Writing to a String does not fail.
            write!(text, "{byte:02x}").ok();
        }
        Self::new(PUBLIC_KEY, text)
    }

    /// IPs with a Service template.
    pub(crate) fn template() -> Self {
        Self::new(TEMPLATE, "")
    }
}

/// Adds the indexes to the registration of a type.
pub(crate) fn with_indexes<K: Stored>(registration: Registration) -> Registration {
    fn values<K: Stored>(object: &K, index: &'static str) -> Vec<String> {
        let keys = index_keys(object).into_iter();
        let of_index = keys.filter(|key| key.index == index);
        of_index.map(|key| key.value).collect()
    }
    registration
        .index(PEER, |object: &K| values(object, PEER))
        .index(OWNER, |object: &K| values(object, OWNER))
        .index(SERVICE, |object: &K| values(object, SERVICE))
        .index(PUBLIC_KEY, |object: &K| values(object, PUBLIC_KEY))
        .index(TEMPLATE, |object: &K| values(object, TEMPLATE))
}

/// Returns the index keys of an object of the type of `objects`.
pub(super) fn of<K: Stored>(_: &Objects<'_, K>, object: Option<&K>) -> Vec<IndexKey> {
    object.map(index_keys).unwrap_or_default()
}

fn index_keys<K: Stored>(object: &K) -> Vec<IndexKey> {
    let meta = object.meta();
    let label = |label| meta.labels.as_ref().and_then(|labels| labels.get(label));
    let any: &dyn Any = object;
    let mut keys = Vec::new();
    if any.is::<Namespace>() {
        keys.extend(tenant_namespace::peer_of(meta).map(IndexKey::peer));
    } else if K::IS_OF_PEER && !is_other_secret(any) {
        let peer = label(labels::REMOTE_CLUSTER_ID).map(String::as_str);
        keys.push(IndexKey::peer(peer.unwrap_or_default()));
    }
    let namespace = meta.namespace.clone().unwrap_or_default();
    for owner in meta.owner_references.iter().flatten() {
        if let Some(kind) = Kind::of_owner(&owner.kind) {
            let owner = Key::new(namespace.clone(), owner.name.clone());
            keys.push(IndexKey::owner(kind, &owner));
        }
    }
    if let Some(server) = any.downcast_ref::<GatewayServer>() {
        let request = ServiceRequest::of(server);
        keys.extend(request.map(|request| IndexKey::service(&request.hash())));
    } else if any.is::<Service>() {
        let hash = label(labels::GATEWAY_SERVICE);
        keys.extend(hash.map(|hash| IndexKey::service(hash)));
    } else if let Some(key) = any.downcast_ref::<PublicKey>() {
        let bytes = key.spec.public_key.as_ref();
        keys.extend(bytes.map(|bytes| IndexKey::public_key(&bytes.0)));
    } else if any
        .downcast_ref::<IP>()
        .is_some_and(|ip| ip.spec.service_template.is_some())
    {
        keys.push(IndexKey::template());
    }

    keys
}

/// Returns whether an object is a Secret, but not one with the keys of a peer's gateway.
fn is_other_secret(object: &dyn Any) -> bool {
    let secret = object.downcast_ref::<Secret>();
    secret.is_some_and(|secret| {
        let labels = secret.metadata.labels.as_ref();
        let value = labels.and_then(|labels| labels.get(labels::GATEWAY_RESOURCE));
        value.is_none_or(|value| value != "true")
    })
}

/// Returns whether objects of a kind belong to a peer each.
pub(super) fn is_of_peer(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Configuration
            | Kind::GatewayServer
            | Kind::GatewayClient
            | Kind::PublicKey
            | Kind::Connection
            | Kind::Namespace
            | Kind::Secret
            | Kind::Deployment
    )
}

impl<'a> Local<'a> {
    /// Returns the objects with an index key, by kind and key.
    pub(crate) fn indexed(
        &self,
        index_key: &IndexKey,
    ) -> impl Iterator<Item = (Kind, &'a Key)> + use<'a> {
        let mut found = Vec::new();
        // Their objects are also among those of another kind.
        let is_part = |kind: &Kind| {
            matches!(
                kind,
                Kind::GatewayKeys | Kind::ApiServerService | Kind::ProxyService
            )
        };
        for kind in KINDS.into_iter().filter(|kind| !is_part(kind)) {
            let IndexKey { index, value } = index_key;
            objects!(self, kind, objects => {
                let keys = objects.indexed(index, value).map(|(key, _)| key);
                found.extend(keys.map(|key| (kind, key)));
            });
        }

        found.into_iter()
    }

    /// Returns the work items of an object of the changed kind and key with an index key.
    pub(super) fn items_of_entry(
        &self,
        index_key: &IndexKey,
        kind: Kind,
        key: &Key,
    ) -> Vec<WorkItem> {
        let value = &index_key.value;
        match index_key.index {
            PEER => self.items_of_peer(value, kind, key),
            OWNER => item_of_owner(value).into_iter().collect(),
            SERVICE => {
                // A GatewayServer affects its own peer only, also if others request the same Service.
                let peers = (kind == Kind::Service).then(|| self.peers_indexed(index_key));
                let peers = peers.into_iter().flatten();
                peers.chain([WorkItem::Service(value.clone())]).collect()
            }
            PUBLIC_KEY => self.peers_indexed(index_key).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the work items of the peers whose objects have an index key.
    pub(crate) fn peers_indexed(
        &self,
        index_key: &IndexKey,
    ) -> impl Iterator<Item = WorkItem> + use<'a> {
        let objects = self.indexed(index_key);
        let peers = objects.filter(|(kind, _)| is_of_peer(*kind));
        let peers: Vec<_> = peers.map(|(kind, key)| self.peer_of(kind, key)).collect();
        peers.into_iter().map(WorkItem::Peer)
    }

    /// Returns the peer of an object; empty if it has no label.
    pub(crate) fn peer_of(&self, kind: Kind, key: &Key) -> String {
        let labels = self.meta(kind, key).and_then(|meta| meta.labels.as_ref());
        let peer = labels.and_then(|labels| labels.get(labels::REMOTE_CLUSTER_ID));
        peer.cloned().unwrap_or_default()
    }

    /// Returns the work items of an object itself.
    pub(super) fn own_items(&self, kind: Kind, key: &Key) -> BTreeSet<WorkItem> {
        let mut items = BTreeSet::new();
        match kind {
            Kind::Network => {
                items.insert(WorkItem::Network(key.clone()));
            }
            Kind::Ip => {
                let node = key.name.strip_prefix(NODE_IP_PREFIX);
                let node = node.filter(|_| key.namespace == self.namespace);
                items.extend(node.map(|name| WorkItem::Node(name.to_owned())));
                let services = ReachedService::ALL.into_iter();
                let is_own = key.namespace == self.namespace;
                let service = services.filter(|it| is_own && it.ip() == key.name);
                items.extend(service.map(WorkItem::ServiceIp));
                items.insert(WorkItem::Ip(key.clone()));
            }
            Kind::Configuration => {
                items.insert(WorkItem::Configuration(key.clone()));
            }
            Kind::Node => {
                items.insert(WorkItem::Node(key.name.clone()));
            }
            Kind::ApiServerService => {
                items.insert(WorkItem::ServiceIp(ReachedService::ApiServer));
            }
            Kind::ProxyService => {
                items.insert(WorkItem::ServiceIp(ReachedService::Proxy));
            }
            Kind::Namespace => {
                let ips = self.indexed(&IndexKey::template());
                let ips = ips.filter(|(_, ip)| ip.namespace == key.name);
                items.extend(ips.map(|(_, ip)| WorkItem::Ip(ip.clone())));
                items.insert(WorkItem::Tenant(key.name.clone()));
                items.insert(WorkItem::SecretWatch(key.name.clone()));
            }
            Kind::RoleBinding => {
                items.insert(WorkItem::Tenant(key.namespace.clone()));
                items.insert(WorkItem::SecretWatch(key.namespace.clone()));
            }
            Kind::GatewayServer | Kind::GatewayClient => {
                items.insert(WorkItem::SecretWatch(key.namespace.clone()));
            }
            Kind::GatewayKeys
            | Kind::PublicKey
            | Kind::Connection
            | Kind::Pod
            | Kind::ConfigMap
            | Kind::Secret
            | Kind::Service
            | Kind::EndpointSlice
            | Kind::Deployment => {}
        }

        items
    }

    /// Returns the work items of the peers whose private keys differ between two states of the gateway's
    /// Secret. If the Secret itself is created or deleted, these are all peers.
    pub(super) fn items_of_gateway_keys(
        &self,
        old: Option<&Secret>,
        new: Option<&Secret>,
    ) -> BTreeSet<WorkItem> {
        let entries = |secret: Option<&Secret>| {
            let data = secret.and_then(|secret| secret.data.clone());
            data.unwrap_or_default()
        };
        let (before, after) = (entries(old), entries(new));
        let peers = before.keys().chain(after.keys());
        let changed = peers.filter(|peer| before.get(*peer) != after.get(*peer));
        let changed = changed.map(|peer| WorkItem::Peer(peer.clone()));
        let all = (old.is_none() || new.is_none()).then(|| self.peer_items());

        changed.chain(all.into_iter().flatten()).collect()
    }

    /// Returns the work items of the IPs with a Service template whose address is in a CIDR.
    pub(super) fn templates_in(&self, cidr: Ipv4Net) -> impl Iterator<Item = WorkItem> {
        let ips = self.indexed(&IndexKey::template());
        let inside = ips.filter(move |(_, key)| {
            let address = self.ips.get(key).and_then(|ip| ip.spec.ip.parse().ok());
            address.is_some_and(|address: Ipv4Addr| cidr.contains(&address))
        });
        inside.map(|(_, key)| WorkItem::Ip(key.clone()))
    }

    /// Returns the work items of all peers.
    pub(super) fn peer_items(&self) -> BTreeSet<WorkItem> {
        let mut peers = BTreeSet::new();
        for kind in KINDS.into_iter().filter(|kind| is_of_peer(*kind)) {
            objects!(self, kind, objects => {
                let keys = objects.iter().flat_map(|(_, object)| index_keys(object));
                let of_peers = keys.filter(|key| key.index == PEER);
                peers.extend(of_peers.map(|key| WorkItem::Peer(key.value)));
            });
        }

        peers
    }
}

/// Returns the work item of an owner, from the value of its index key.
fn item_of_owner(value: &str) -> Option<WorkItem> {
    let (kind, key) = value.split_once(' ')?;
    let (namespace, name) = key.split_once('/')?;
    let key = Key::new(namespace, name);
    let kind = Kind::of_owner(kind)?;
    if kind == Kind::Configuration {
        Some(WorkItem::Configuration(key))
    } else {
        (kind == Kind::Ip).then_some(WorkItem::Ip(key))
    }
}
