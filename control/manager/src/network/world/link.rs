//! An index: which objects have to do with a peer, an owner, a Service or a key.

use super::{World, cluster};
use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind};
use crate::network::plan::service;
use control_api::{labels, tenant_namespace};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Secret;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// What objects have to do with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IndexKey {
    /// A peer, by cluster id; empty where an object does not tell.
    Peer(String),
    /// The object that owns it.
    Owner(Kind, Key),
    /// A Service of the gateway, by the hash of what was asked for.
    Service(String),
    /// A public key.
    PublicKey(Vec<u8>),
    /// IPs with a Service template, which the addresses of the cluster itself affect.
    ServiceTemplate,
}

/// One object has to do with one subject.
pub(crate) type IndexEntry = (IndexKey, Kind, Key);

/// Returns the objects linked to a subject.
pub(super) fn of<'a>(
    links: &'a BTreeSet<IndexEntry>,
    subject: &IndexKey,
) -> impl Iterator<Item = (Kind, &'a Key)> {
    let first = (subject.clone(), Kind::Network, Key::default());
    let subject = subject.clone();
    links
        .range(first..)
        .take_while(move |link| link.0 == subject)
        .map(|(_, kind, key)| (*kind, key))
}

/// Returns the links of an object.
pub(super) fn links(world: &World, kind: Kind, key: &Key) -> Vec<IndexEntry> {
    let Some(meta) = world.meta(kind, key) else {
        return Vec::new();
    };
    let label = |label| meta.labels.as_ref().and_then(|labels| labels.get(label));
    let mut subjects = Vec::new();
    if kind == Kind::Namespace {
        let peer = tenant_namespace::peer_of(meta).map(str::to_owned);
        subjects.extend(peer.map(IndexKey::Peer));
    } else if is_of_peer(kind) {
        let peer = label(labels::REMOTE_CLUSTER_ID).cloned();
        subjects.push(IndexKey::Peer(peer.unwrap_or_default()));
    }
    for owner in meta.owner_references.iter().flatten() {
        if let Some(owner_kind) = Kind::of_owner(&owner.kind) {
            let owner = Key::new(key.namespace.clone(), owner.name.clone());
            subjects.push(IndexKey::Owner(owner_kind, owner));
        }
    }
    subjects.extend(world.service_of(kind, key).map(IndexKey::Service));
    if kind == Kind::Ip
        && let Some(ip) = world.ips.get(key)
        && ip.spec.service_template.is_some()
    {
        subjects.push(IndexKey::ServiceTemplate);
    }
    if kind == Kind::Service
        && let Some(hash) = label(labels::GATEWAY_SERVICE)
    {
        subjects.push(IndexKey::Service(hash.clone()));
    }
    if kind == Kind::PublicKey
        && let Some(public_key) = world.public_keys.get(key)
        && let Some(bytes) = &public_key.spec.public_key
    {
        subjects.push(IndexKey::PublicKey(bytes.0.clone()));
    }

    subjects
        .into_iter()
        .map(|subject| (subject, kind, key.clone()))
        .collect()
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
            | Kind::ForeignCluster
            | Kind::Namespace
            | Kind::Secret
            | Kind::Deployment
    )
}

impl World {
    /// Returns the work that a link makes when it comes, changes or goes.
    pub(super) fn tasks_of_link(&self, link: &IndexEntry) -> Vec<WorkItem> {
        match &link.0 {
            IndexKey::Peer(peer) => self.tasks_of_peer(peer, link.1, &link.2),
            IndexKey::Owner(Kind::Configuration, owner) => {
                vec![WorkItem::Configuration(owner.clone())]
            }
            IndexKey::Owner(Kind::Ip, owner) => vec![WorkItem::Ip(owner.clone())],
            IndexKey::Owner(..) => Vec::new(),
            IndexKey::Service(hash) => {
                let peers = self.peers_linked(&link.0);
                peers.chain([WorkItem::Service(hash.clone())]).collect()
            }
            IndexKey::PublicKey(_) => self.peers_linked(&link.0).collect(),
            IndexKey::ServiceTemplate => Vec::new(),
        }
    }

    /// Returns the work about the peers whose objects are linked to a subject.
    pub(crate) fn peers_linked(&self, subject: &IndexKey) -> impl Iterator<Item = WorkItem> {
        self.linked(subject).filter_map(|(kind, key)| {
            let peer = is_of_peer(kind).then(|| self.peer_of(kind, key))?;
            Some(WorkItem::Peer(peer))
        })
    }

    /// Returns the peer that an object is about, empty if it does not tell.
    pub(crate) fn peer_of(&self, kind: Kind, key: &Key) -> String {
        let labels = self.meta(kind, key).and_then(|meta| meta.labels.as_ref());
        let peer = labels.and_then(|labels| labels.get(labels::REMOTE_CLUSTER_ID));
        peer.cloned().unwrap_or_default()
    }

    /// Returns the work about an object itself.
    pub(super) fn own_tasks(&self, kind: Kind, key: &Key) -> Vec<WorkItem> {
        match kind {
            Kind::Network => {
                let ips = self.cidr_of_peer(key).into_iter();
                let ips = ips.flat_map(|cidr| self.tasks_of_templates_in(cidr));
                ips.chain([WorkItem::Network(key.clone())]).collect()
            }
            Kind::Ip => {
                let node = key.name.strip_prefix(crate::network::plan::node::PREFIX);
                let node = node.filter(|_| key.namespace == self.namespace);
                let node = node.map(|name| WorkItem::Node(name.to_owned()));
                node.into_iter()
                    .chain([WorkItem::Ip(key.clone())])
                    .collect()
            }
            Kind::Configuration => vec![WorkItem::Configuration(key.clone())],
            Kind::ForeignCluster => vec![WorkItem::Peer(key.name.clone())],
            Kind::Node => vec![WorkItem::Node(key.name.clone())],
            // Only the peers whose entries change: see `tasks_of_gateway_keys`.
            Kind::GatewayKeys => Vec::new(),
            Kind::Namespace => {
                let ips = self.tasks_of_templates();
                let ips =
                    ips.filter(|task| matches!(task, WorkItem::Ip(ip) if ip.namespace == key.name));
                ips.chain([WorkItem::Tenant(key.name.clone())]).collect()
            }
            Kind::RoleBinding => vec![WorkItem::Tenant(key.namespace.clone())],
            Kind::GatewayServer
            | Kind::GatewayClient
            | Kind::PublicKey
            | Kind::Connection
            | Kind::Pod
            | Kind::ConfigMap
            | Kind::Secret
            | Kind::Service
            | Kind::EndpointSlice
            | Kind::Deployment => Vec::new(),
        }
    }

    /// Returns the work about the IPs with a Service template.
    pub(super) fn tasks_of_templates(&self) -> impl Iterator<Item = WorkItem> {
        let ips = self.linked(&IndexKey::ServiceTemplate);
        ips.map(|(_, key)| WorkItem::Ip(key.clone()))
    }

    /// Returns the work about the IPs with a Service template whose address is in a CIDR.
    pub(super) fn tasks_of_templates_in(&self, cidr: Ipv4Net) -> impl Iterator<Item = WorkItem> {
        let ips = self.linked(&IndexKey::ServiceTemplate);
        let inside = ips.filter(move |(_, key)| {
            let address = self.ips.get(key).and_then(|ip| ip.spec.ip.parse().ok());
            address.is_some_and(|address: Ipv4Addr| cidr.contains(&address))
        });
        inside.map(|(_, key)| WorkItem::Ip(key.clone()))
    }

    /// Returns the hash of the gateway Service that a GatewayServer needs.
    pub(super) fn service_of(&self, kind: Kind, key: &Key) -> Option<String> {
        let server = self
            .servers
            .get(key)
            .filter(|_| kind == Kind::GatewayServer);
        Some(service::Request::of(server?)?.hash())
    }

    /// Returns the CIDR of a Network of a peer.
    fn cidr_of_peer(&self, key: &Key) -> Option<Ipv4Net> {
        let network = self.networks.get(key)?;
        let labels = network.metadata.labels.as_ref()?;
        let is_of_peer = labels.contains_key(labels::CONFIGURATION_CIDR_TYPE);
        is_of_peer.then(|| cluster::decided(network))?
    }

    /// Returns the work about the peers whose private keys differ between two states of the gateway's
    /// Secret. If the Secret itself comes or goes, all peers are concerned.
    pub(super) fn tasks_of_gateway_keys(
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
        let all = (old.is_none() || new.is_none()).then(|| self.peer_tasks());

        changed.chain(all.into_iter().flatten()).collect()
    }

    /// Returns the work about every peer.
    pub(super) fn peer_tasks(&self) -> impl Iterator<Item = WorkItem> {
        self.links.iter().filter_map(|(subject, ..)| match subject {
            IndexKey::Peer(peer) => Some(WorkItem::Peer(peer.clone())),
            IndexKey::Owner(..)
            | IndexKey::Service(_)
            | IndexKey::PublicKey(_)
            | IndexKey::ServiceTemplate => None,
        })
    }
}
