//! Pieces of work, each about one thing.

use crate::network::kind::Key;
use std::fmt;

/// A piece of work; the order is that of a manager that has just begun.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum WorkItem {
    /// The manager's rights in a namespace, by its name.
    Tenant(String),
    /// The CIDR of a Network.
    Network(Key),
    /// The IP object of a node.
    Node(String),
    /// The address of an IP, and its Service.
    Ip(Key),
    /// The Networks of a Configuration, and its status.
    Configuration(Key),
    /// A Service of the gateway, by the hash of what was asked for.
    Service(String),
    /// Gateway, keys, Connection and summary of a peer, by cluster id.
    Peer(String),
    /// The watches of Secrets, which follow the manager's rights.
    SecretWatches,
}

impl WorkItem {
    /// Returns a word for what it is about, for metrics.
    pub(crate) fn concern(&self) -> &'static str {
        match self {
            Self::Tenant(_) => "tenant",
            Self::Network(_) => "network",
            Self::Node(_) => "node",
            Self::Ip(_) => "ip",
            Self::Configuration(_) => "configuration",
            Self::Service(_) => "service",
            Self::Peer(_) => "peer",
            Self::SecretWatches => "secret_watches",
        }
    }
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(key) | Self::Ip(key) | Self::Configuration(key) => {
                write!(f, "{} {key}", self.concern())
            }
            Self::Tenant(name) | Self::Node(name) | Self::Service(name) | Self::Peer(name) => {
                write!(f, "{} {name}", self.concern())
            }
            Self::SecretWatches => f.write_str(self.concern()),
        }
    }
}
