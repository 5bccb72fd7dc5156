//! The units in which the objects of an API server are resolved.

use crate::objects::Object;
use control_api::labels;

/// Key of an object. Objects are sorted by kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    kind: Kind,
    namespace: Option<String>,
    name: Option<String>,
}

/// The kinds in the order in which errors of several objects are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    ConfigMap,
    Node,
    EndpointSlice,
    Network,
    Ip,
    Configuration,
    GatewayServer,
    GatewayClient,
    PublicKey,
    Connection,
}

impl ObjectKey {
    /// Returns the key of an object.
    pub fn of(object: &Object) -> Self {
        let kind = match object {
            Object::ConfigMap(_) => Kind::ConfigMap,
            Object::Node(_) => Kind::Node,
            Object::EndpointSlice(_) => Kind::EndpointSlice,
            Object::Network(_) => Kind::Network,
            Object::IP(_) => Kind::Ip,
            Object::Configuration(_) => Kind::Configuration,
            Object::GatewayServer(_) => Kind::GatewayServer,
            Object::GatewayClient(_) => Kind::GatewayClient,
            Object::PublicKey(_) => Kind::PublicKey,
            Object::Connection(_) => Kind::Connection,
        };
        let metadata = object.metadata();

        Self {
            kind,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        }
    }

    /// Returns whether the object is a Node.
    pub(super) fn is_node(&self) -> bool {
        self.kind == Kind::Node
    }

    /// Returns namespace and name of a Configuration.
    pub(super) fn configuration(&self) -> Option<(Option<String>, Option<String>)> {
        let is_configuration = self.kind == Kind::Configuration;
        is_configuration.then(|| (self.namespace.clone(), self.name.clone()))
    }
}

/// An object or a group of objects with one outcome.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Entity {
    /// The cluster ID, and the Networks of the cluster itself. Everything depends on them.
    Cluster,
    /// The EndpointSlices of the gateway.
    Replicas,
    /// A node, by name.
    Node(String),
    /// Any other Network, by namespace and name.
    Network(String, String),
    /// An IP, by namespace and name.
    Ip(String, String),
    /// The objects of a peer, by cluster ID.
    Peer(String),
}

impl Entity {
    /// Returns the entity that an object belongs to; `None` if the object is no part of a fabric. `liqo` is Liqo's
    /// namespace.
    pub(super) fn of(object: &Object, liqo: &str) -> Option<Self> {
        let metadata = object.metadata();
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let name = metadata.name.clone().unwrap_or_default();
        let entity = match object {
            Object::ConfigMap(_) => Self::Cluster,
            Object::Node(_) => Self::Node(name),
            Object::EndpointSlice(_) => Self::Replicas,
            Object::Network(_) => {
                let is_typed = object.label_value(labels::NETWORK_TYPE).is_some();
                if is_typed && namespace == liqo {
                    Self::Cluster
                } else {
                    Self::Network(namespace, name)
                }
            }
            Object::IP(_) => Self::Ip(namespace, name),
            Object::Configuration(_)
            | Object::GatewayServer(_)
            | Object::GatewayClient(_)
            | Object::PublicKey(_) => Self::Peer(object.peer().unwrap_or_default().to_owned()),
            Object::Connection(_) => return None,
        };

        Some(entity)
    }

    pub(super) fn is_peer(&self) -> bool {
        self.peer().is_some()
    }

    /// Returns the cluster ID of a peer.
    pub(super) fn peer(&self) -> Option<&String> {
        if let Self::Peer(peer) = self {
            Some(peer)
        } else {
            None
        }
    }
}
