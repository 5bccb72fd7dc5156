//! The objects of one peer.

use super::objects::{Local, OfPeer};
use control_api::authentication::identity::IdentityType;
use control_api::{
    Configuration, Connection, GatewayClient, GatewayServer, Identity, NamespaceMap, PublicKey,
    Quota, Renew, ResourceSlice, Tenant, VirtualNode,
};
use control_runtime::{Cluster, Key};
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The objects of a peer, in its tenant namespace. Only Nodes are elsewhere.
pub(super) struct Peer<'a> {
    pub(super) id: &'a str,
    /// The tenant namespace in this cluster.
    pub(super) namespace: Option<&'a str>,
    pub(super) has_configuration: bool,
    pub(super) gateway: Option<Gateway>,
    pub(super) connection: Option<&'a Connection>,
    /// The peer as a consumer.
    pub(super) tenant: Option<&'a Tenant>,
    /// The credentials of the control plane at the peer.
    pub(super) identity: Option<&'a Identity>,
    /// A Secret with a kubeconfig for the control plane: of the Identity, or of a user.
    pub(super) secret: Option<&'a Secret>,
    pub(super) slices: Vec<&'a ResourceSlice>,
    pub(super) virtual_nodes: Vec<(&'a Key, &'a VirtualNode)>,
    /// Whether there is an object that belongs to no module.
    has_further: bool,
}

/// The type of the gateway that serves a peer. If there are several, the oldest does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gateway {
    Server,
    Client,
}

impl<'a> Peer<'a> {
    /// Finds the objects of a peer.
    pub(super) fn find(local: Local<'a>, id: &'a str) -> Self {
        let namespace = local.tenant_namespace(id);
        let mut peer = Self {
            id,
            namespace,
            has_configuration: false,
            gateway: None,
            connection: None,
            tenant: None,
            identity: None,
            secret: None,
            slices: Vec::new(),
            virtual_nodes: Vec::new(),
            has_further: false,
        };
        if let Some(namespace) = namespace {
            peer.find_networking(local, namespace);
        }
        // A namespace without the labels, which the settings name, serves networking only.
        let labelled = namespace.filter(|namespace| local.peer_of(namespace) == Some(id));
        if let Some(namespace) = labelled {
            peer.find_authentication(local, namespace);
            peer.virtual_nodes = local.placed(id, namespace).collect();
            peer.has_further |= holds_further(local, id, namespace);
        }
        let nodes = &mut local.objects::<Node>().indexed(super::objects::BY_PEER, id);
        peer.has_further |= nodes.next().is_some();

        peer
    }

    /// An object of this module that is being deleted has no effect any more, so it no longer counts as part of the
    /// module. The ForeignCluster stays until the object is gone.
    fn find_networking(&mut self, local: Local<'a>, namespace: &str) {
        let id = self.id;
        self.has_configuration = staying::<Configuration>(local, id, namespace)
            .next()
            .is_some();
        self.connection = staying(local, id, namespace).map(|(_, it)| it).last();
        let servers = staying::<GatewayServer>(local, id, namespace);
        let servers = servers.map(|(key, it)| (created(it), Gateway::Server, key));
        let clients = staying::<GatewayClient>(local, id, namespace);
        let clients = clients.map(|(key, it)| (created(it), Gateway::Client, key));
        self.gateway = servers.chain(clients).min().map(|(_, gateway, _)| gateway);
        self.has_further |= exists::<Configuration>(local, id, namespace)
            || exists::<Connection>(local, id, namespace)
            || exists::<GatewayServer>(local, id, namespace)
            || exists::<GatewayClient>(local, id, namespace)
            || exists::<PublicKey>(local, id, namespace);
    }

    fn find_authentication(&mut self, local: Local<'a>, namespace: &str) {
        let id = self.id;
        self.tenant = local.placed(id, namespace).map(|(_, it)| it).next();
        let mut identities = local.placed::<Identity>(id, namespace);
        self.has_further |= exists::<Identity>(local, id, namespace);
        self.identity = identities
            .find(|(_, it)| it.spec.type_ != Some(IdentityType::ResourceSlice))
            .map(|(_, it)| it);
        self.secret = match self.identity {
            Some(identity) => {
                let status = identity.status.as_ref();
                let reference = status.and_then(|status| status.kubeconfig_secret_ref.as_ref());
                let key = reference.map(|it| Key::new(namespace, it.name.as_str()));
                key.and_then(|key| local.objects().get(&key))
            }
            None => local.placed(id, namespace).map(|(_, it)| it).next(),
        };
        self.slices = local.placed(id, namespace).map(|(_, it)| it).collect();
    }

    /// Returns whether anything of the peer exists.
    pub(super) fn is_any(&self) -> bool {
        self.has_networking()
            || self.has_authentication()
            || !self.virtual_nodes.is_empty()
            || !self.slices.is_empty()
            || self.has_further
    }

    /// Returns whether the networking module is enabled.
    pub(super) fn has_networking(&self) -> bool {
        self.has_configuration || self.gateway.is_some() || self.connection.is_some()
    }

    /// Returns whether the authentication module is enabled.
    pub(super) fn has_authentication(&self) -> bool {
        self.tenant.is_some() || self.identity.is_some() || self.secret.is_some()
    }
}

/// Returns whether a namespace holds objects of a peer that belong to no module.
fn holds_further(local: Local<'_>, id: &str, namespace: &str) -> bool {
    // Quotas have no label of the peer.
    let mut quotas = local
        .cache
        .objects::<Quota>(&Cluster::Local)
        .within(namespace);
    exists::<Renew>(local, id, namespace)
        || exists::<NamespaceMap>(local, id, namespace)
        || quotas.next().is_some()
}

fn exists<K: OfPeer>(local: Local<'_>, id: &str, namespace: &str) -> bool {
    local.placed::<K>(id, namespace).next().is_some()
}

/// Returns the objects of a peer in a namespace that are not being deleted.
fn staying<'a, K: OfPeer>(
    local: Local<'a>,
    id: &str,
    namespace: &str,
) -> impl Iterator<Item = (&'a Key, &'a K)> + use<'a, K> {
    let placed = local.placed::<K>(id, namespace);
    placed.filter(|(_, object)| object.meta().deletion_timestamp.is_none())
}

fn created<K: OfPeer>(object: &K) -> Option<Time> {
    object.meta().creation_timestamp.clone()
}
