//! An index: which objects have to do with a peer, an owner, a Service or a key.

use super::World;
use crate::kind::{Key, Kind};
use crate::plan::service;
use crate::task::Task;
use control_api::{labels, tenant_namespace};
use std::collections::BTreeSet;

/// What objects have to do with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
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
pub(crate) type Link = (Subject, Kind, Key);

/// Returns the objects linked to a subject.
pub(super) fn of<'a>(
    links: &'a BTreeSet<Link>,
    subject: &Subject,
) -> impl Iterator<Item = (Kind, &'a Key)> {
    let first = (subject.clone(), Kind::Network, Key::default());
    let subject = subject.clone();
    links
        .range(first..)
        .take_while(move |link| link.0 == subject)
        .map(|(_, kind, key)| (*kind, key))
}

/// Returns the links of an object.
pub(super) fn links(world: &World, kind: Kind, key: &Key) -> Vec<Link> {
    let Some(meta) = world.meta(kind, key) else {
        return Vec::new();
    };
    let label = |label| meta.labels.as_ref().and_then(|labels| labels.get(label));
    let mut subjects = Vec::new();
    if kind == Kind::Namespace {
        let peer = tenant_namespace::peer_of(meta).map(str::to_owned);
        subjects.extend(peer.map(Subject::Peer));
    } else if is_of_peer(kind) {
        let peer = label(labels::REMOTE_CLUSTER_ID).cloned();
        subjects.push(Subject::Peer(peer.unwrap_or_default()));
    }
    for owner in meta.owner_references.iter().flatten() {
        if let Some(owner_kind) = Kind::of_owner(&owner.kind) {
            let owner = Key::new(key.namespace.clone(), owner.name.clone());
            subjects.push(Subject::Owner(owner_kind, owner));
        }
    }
    subjects.extend(world.service_of(kind, key).map(Subject::Service));
    if kind == Kind::Ip
        && let Some(ip) = world.ips.get(key)
        && ip.spec.service_template.is_some()
    {
        subjects.push(Subject::ServiceTemplate);
    }
    if kind == Kind::Service
        && let Some(hash) = label(labels::GATEWAY_SERVICE)
    {
        subjects.push(Subject::Service(hash.clone()));
    }
    if kind == Kind::PublicKey
        && let Some(public_key) = world.public_keys.get(key)
        && let Some(bytes) = &public_key.spec.public_key
    {
        subjects.push(Subject::PublicKey(bytes.0.clone()));
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
    pub(super) fn tasks_of_link(&self, link: &Link) -> Vec<Task> {
        match &link.0 {
            Subject::Peer(peer) => self.tasks_of_peer(peer, link.1, &link.2),
            Subject::Owner(Kind::Configuration, owner) => vec![Task::Configuration(owner.clone())],
            Subject::Owner(Kind::Ip, owner) => vec![Task::Ip(owner.clone())],
            Subject::Owner(..) => Vec::new(),
            Subject::Service(hash) => {
                let peers = self.peers_linked(&link.0);
                peers.chain([Task::Service(hash.clone())]).collect()
            }
            Subject::PublicKey(_) => self.peers_linked(&link.0).collect(),
            Subject::ServiceTemplate => Vec::new(),
        }
    }

    /// Returns the work about the peers whose objects are linked to a subject.
    pub(crate) fn peers_linked(&self, subject: &Subject) -> impl Iterator<Item = Task> {
        self.linked(subject).filter_map(|(kind, key)| {
            let peer = is_of_peer(kind).then(|| self.peer_of(kind, key))?;
            Some(Task::Peer(peer))
        })
    }

    /// Returns the peer that an object is about, empty if it does not tell.
    pub(crate) fn peer_of(&self, kind: Kind, key: &Key) -> String {
        let labels = self.meta(kind, key).and_then(|meta| meta.labels.as_ref());
        let peer = labels.and_then(|labels| labels.get(labels::REMOTE_CLUSTER_ID));
        peer.cloned().unwrap_or_default()
    }

    /// Returns the work about an object itself.
    pub(super) fn own_tasks(&self, kind: Kind, key: &Key) -> Vec<Task> {
        match kind {
            Kind::Network => {
                let of_peer = self.is_of_configuration(key);
                let ips = of_peer.then(|| self.tasks_of_templates());
                let ips = ips.into_iter().flatten();
                ips.chain([Task::Network(key.clone())]).collect()
            }
            Kind::Ip => {
                let node = key.name.strip_prefix(crate::plan::node::PREFIX);
                let node = node.filter(|_| key.namespace == self.namespace);
                let node = node.map(|name| Task::Node(name.to_owned()));
                node.into_iter().chain([Task::Ip(key.clone())]).collect()
            }
            Kind::Configuration => vec![Task::Configuration(key.clone())],
            Kind::ForeignCluster => vec![Task::Peer(key.name.clone())],
            Kind::Node => vec![Task::Node(key.name.clone())],
            Kind::GatewayKeys => {
                let keys = self.gateway_keys.get(key);
                let held = keys
                    .and_then(|keys| keys.data.as_ref())
                    .into_iter()
                    .flatten();
                let held = held.map(|(peer, _)| Task::Peer(peer.clone()));
                held.chain(self.peer_tasks()).collect()
            }
            Kind::Namespace => {
                let ips = self.tasks_of_templates();
                let ips =
                    ips.filter(|task| matches!(task, Task::Ip(ip) if ip.namespace == key.name));
                ips.chain([Task::Tenant(key.name.clone())]).collect()
            }
            Kind::RoleBinding => vec![Task::Tenant(key.namespace.clone())],
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
    pub(super) fn tasks_of_templates(&self) -> impl Iterator<Item = Task> {
        let ips = self.linked(&Subject::ServiceTemplate);
        ips.map(|(_, key)| Task::Ip(key.clone()))
    }

    /// Returns the hash of the gateway Service that a GatewayServer needs.
    pub(super) fn service_of(&self, kind: Kind, key: &Key) -> Option<String> {
        let server = self
            .servers
            .get(key)
            .filter(|_| kind == Kind::GatewayServer);
        Some(service::Request::of(server?)?.hash())
    }

    /// Returns whether a Network is that of a peer's CIDR.
    fn is_of_configuration(&self, key: &Key) -> bool {
        let labels = self
            .networks
            .meta(key)
            .and_then(|meta| meta.labels.as_ref());
        labels.is_some_and(|labels| labels.contains_key(labels::CONFIGURATION_CIDR_TYPE))
    }

    /// Returns the work about every peer.
    pub(super) fn peer_tasks(&self) -> impl Iterator<Item = Task> {
        self.links.iter().filter_map(|(subject, ..)| match subject {
            Subject::Peer(peer) => Some(Task::Peer(peer.clone())),
            Subject::Owner(..)
            | Subject::Service(_)
            | Subject::PublicKey(_)
            | Subject::ServiceTemplate => None,
        })
    }
}
