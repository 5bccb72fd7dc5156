//! Work items of the network controller.

use crate::network::kind::{Key, ReachedService};
use std::fmt;

/// A work item. At the start of a manager, the items are planned in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum WorkItem {
    /// The manager's rights in a namespace, by its name.
    Tenant(String),
    /// The CIDR of a Network.
    Network(Key),
    /// The IP object of a node.
    Node(String),
    /// The IP object of a Service that peers reach.
    ServiceIp(ReachedService),
    /// The address of an IP, and its Service.
    Ip(Key),
    /// The Networks of a Configuration, and its status.
    Configuration(Key),
    /// A Service of the gateway, by the hash of the request.
    Service(String),
    /// Gateway, keys, Connection and summary of a peer, by cluster id.
    Peer(String),
    /// The watch of the Secrets of a namespace, which follows the manager's rights.
    SecretWatch(String),
    /// The watches of Secrets of all namespaces, at the start.
    SecretWatches,
}

impl WorkItem {
    /// Returns the kind of the item, for metrics and logs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Tenant(_) => "tenant",
            Self::Network(_) => "network",
            Self::Node(_) => "node",
            Self::ServiceIp(ReachedService::ApiServer) => "api_server",
            Self::ServiceIp(ReachedService::Proxy) => "proxy",
            Self::Ip(_) => "ip",
            Self::Configuration(_) => "configuration",
            Self::Service(_) => "service",
            Self::Peer(_) => "peer",
            Self::SecretWatch(_) => "secret_watch",
            Self::SecretWatches => "secret_watches",
        }
    }
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(key) | Self::Ip(key) | Self::Configuration(key) => {
                write!(f, "{} {key}", self.kind())
            }
            Self::Tenant(name)
            | Self::Node(name)
            | Self::Service(name)
            | Self::Peer(name)
            | Self::SecretWatch(name) => write!(f, "{} {name}", self.kind()),
            Self::ServiceIp(_) | Self::SecretWatches => f.write_str(self.kind()),
        }
    }
}
