//! The tenant namespaces: the objects of peers have an effect, and the manager has rights, only there.

use super::index::is_of_peer;
use super::{Derived, IndexKey, Local, is_terminating};
use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind, SERVICE_ACCOUNT, TENANT_ROLE};
use crate::network::service_request::ServiceRequest;
use control_api::tenant_namespace::{Misplaced, Seniority, choose, peer_of, seniority};
use control_runtime::{Cache, Cluster as ClusterName};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::RoleBinding;
use std::collections::BTreeSet;

/// Returns whether users create objects of a kind for a peering.
pub(super) fn is_of_peering(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Configuration | Kind::GatewayServer | Kind::GatewayClient | Kind::PublicKey
    )
}

/// Largest number of misplaced objects of one kind that are reported for one peer. Each change of one of them
/// examines all, so without a limit the work would grow with the square of the number of objects that a user
/// creates.
const MISPLACED_MAX: usize = 32;

/// Returns whether the manager has the right to read the Secrets of the namespace `tenant`.
pub(crate) fn is_bound(
    cache: &Cache,
    namespace: &str,
    named_tenants: &[String],
    tenant: &str,
) -> bool {
    let derived = Derived::default();
    Local::new(cache, namespace, named_tenants, &derived).is_bound(tenant)
}

impl<'a> Local<'a> {
    /// Returns the only namespace whose objects have an effect for a peer.
    pub(crate) fn tenant_namespace(&self, peer: &str) -> Option<&'a str> {
        let index_key = IndexKey::peer(peer);
        let entries: Vec<_> = self.indexed(&index_key).collect();
        let namespaces = entries.iter().filter(|(kind, _)| *kind == Kind::Namespace);
        let labelled = namespaces.filter_map(|(_, key)| Some(&self.namespaces.get(key)?.metadata));
        let holds = |name: &str| {
            let mut objects = entries.iter().filter(|(kind, _)| is_of_peering(*kind));
            objects.any(|(_, key)| key.namespace == name)
        };

        choose(labelled, self.named_tenants, holds)
    }

    /// Returns the objects of a peer in its tenant namespace.
    pub(crate) fn of_peer(&self, peer: &str) -> Vec<(Kind, &'a Key)> {
        let tenant = self.tenant_namespace(peer);
        let index_key = IndexKey::peer(peer);
        let placed = self
            .indexed(&index_key)
            .filter(|(_, key)| Some(key.namespace.as_str()) == tenant);
        placed.collect()
    }

    /// Returns the objects of a peer that users have created in other namespaces, with the reason why they have no
    /// effect; at most [`MISPLACED_MAX`] of each kind.
    pub(crate) fn misplaced(&self, peer: &str, kinds: &[Kind]) -> Vec<(Kind, &'a Key, Misplaced)> {
        let tenant = self.tenant_namespace(peer);
        let index_key = IndexKey::peer(peer);
        let of_kind = |kind: Kind| {
            let entries = self.indexed(&index_key).filter(move |(it, _)| *it == kind);
            let misplaced = entries.filter(move |(_, key)| Some(key.namespace.as_str()) != tenant);
            misplaced.take(MISPLACED_MAX)
        };
        kinds
            .iter()
            .flat_map(|kind| of_kind(*kind))
            .filter_map(|(kind, key)| {
                let misplaced = Misplaced::check(&key.namespace, peer, tenant).err()?;
                Some((kind, key, misplaced))
            })
            .collect()
    }

    /// Checks that an object about a peer is in the peer's tenant namespace.
    ///
    /// # Errors
    ///
    /// Returns the reason why the object has no effect.
    pub(crate) fn check_place(&self, kind: Kind, key: &Key) -> Result<(), Misplaced> {
        let peer = self.peer_of(kind, key);
        Misplaced::check(&key.namespace, &peer, self.tenant_namespace(&peer))
    }

    /// Returns the seniority of the peer of an object in its tenant namespace.
    pub(crate) fn seniority(&self, kind: Kind, key: &Key) -> Seniority {
        let peer = self.peer_of(kind, key);
        let namespace = self.meta(Kind::Namespace, &Key::cluster(&key.namespace));
        let labelled = namespace.filter(|namespace| peer_of(namespace) == Some(peer.as_str()));

        seniority(labelled)
    }

    /// Returns whether a namespace may hold objects of peers.
    pub(crate) fn is_tenant(&self, namespace: &str) -> bool {
        let found = self.namespaces.get(&Key::cluster(namespace));
        found.is_some_and(|found| {
            let is_named = self.named_tenants.iter().any(|named| named == namespace);
            (is_named || peer_of(&found.metadata).is_some()) && !is_terminating(&found.metadata)
        })
    }

    /// Returns whether a RoleBinding binds the role of tenant namespaces to the manager only.
    pub(crate) fn binds_manager(&self, binding: &RoleBinding) -> bool {
        let subjects = binding.subjects.as_deref().unwrap_or_default();
        let is_manager = matches!(subjects, [subject] if subject.kind == "ServiceAccount"
            && subject.name == SERVICE_ACCOUNT
            && subject.namespace.as_deref() == Some(self.namespace));

        is_manager && binding.role_ref.kind == "ClusterRole" && binding.role_ref.name == TENANT_ROLE
    }

    /// Returns the namespaces whose Secrets the manager has the right to read.
    pub(crate) fn bound_namespaces(&self) -> BTreeSet<String> {
        let names = self.namespaces.iter().map(|(key, _)| &key.name);
        names.filter(|name| self.is_bound(name)).cloned().collect()
    }

    /// Returns whether the manager has the right to read the Secrets of a namespace.
    pub(crate) fn is_bound(&self, namespace: &str) -> bool {
        let binding = (self.role_bindings).get(&Key::new(namespace, TENANT_ROLE));
        self.is_tenant(namespace) && binding.is_some_and(|binding| self.binds_manager(binding))
    }

    /// Returns whether the Secrets of a namespace are watched and listed.
    pub(crate) fn is_readable(&self, namespace: &str) -> bool {
        self.derived.watched.contains(namespace)
            && (self.cache).is_listed::<Secret>(&ClusterName::Local, namespace)
    }

    /// Returns whether a namespace has a gateway.
    pub(crate) fn has_gateway(&self, namespace: &str) -> bool {
        let mut servers = self.servers.within(namespace);
        let mut clients = self.clients.within(namespace);

        servers.next().is_some() || clients.next().is_some()
    }

    /// Returns the work items of the peers that have a gateway in a namespace.
    pub(crate) fn items_of_gateways(&self, namespace: &str) -> BTreeSet<WorkItem> {
        let servers = self.servers.within(namespace);
        let servers = servers.map(|(key, _)| self.peer_of(Kind::GatewayServer, key));
        let clients = self.clients.within(namespace);
        let clients = clients.map(|(key, _)| self.peer_of(Kind::GatewayClient, key));

        servers.chain(clients).map(WorkItem::Peer).collect()
    }

    /// Returns the work items of a peer that a change of one of its objects causes.
    pub(super) fn items_of_peer(&self, peer: &str, kind: Kind, key: &Key) -> Vec<WorkItem> {
        let mut items = vec![WorkItem::Peer(peer.to_owned())];
        // These kinds determine the tenant namespace.
        let is_named = || self.named_tenants.contains(&key.namespace);
        let is_decisive = kind == Kind::Namespace || is_of_peering(kind) && is_named();
        if is_decisive {
            let index_key = IndexKey::peer(peer);
            for (kind, key) in self
                .indexed(&index_key)
                .filter(|(kind, _)| is_of_peer(*kind))
            {
                if kind == Kind::Configuration {
                    items.push(WorkItem::Configuration(key.clone()));
                }
                let server = self
                    .servers
                    .get(key)
                    .filter(|_| kind == Kind::GatewayServer);
                let request = server.and_then(ServiceRequest::of);
                items.extend(request.map(|request| WorkItem::Service(request.hash())));
            }
        }

        items
    }
}
