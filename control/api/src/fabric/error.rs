//! What is wrong with a fabric's objects, where, and what to do about it.

use ipam::{AddressError, NetworkError};
use ipnet::Ipv4Net;
use std::fmt;
use std::net::Ipv4Addr;

/// Everything that is wrong with the objects; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors(pub(super) Vec<Error>);

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Where.
    pub place: Place,
    /// What.
    pub problem: Problem,
}

/// A place in a fabric's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The document, if the object was read from a file.
    pub position: Option<Position>,
    /// Kind and name of the object, as far as they are known.
    pub object: String,
    /// Path of the field, such as `spec.remote.cidr.pod[0]`; empty for the object itself.
    pub field: String,
}

/// A document of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its number, counted from 1 and without empty ones.
    pub document: usize,
    /// The line it starts at, counted from 1.
    pub line: usize,
}

/// What may be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant documents it")]
pub enum Problem {
    // Of the text.
    #[error("there is no object in it")]
    Empty,
    #[error("not valid YAML: {message}")]
    Syntax { message: String },
    #[error("not a mapping of fields to values")]
    NotAnObject,
    #[error("unknown kind `{kind}` of apiVersion `{api_version}`")]
    UnknownKind { api_version: String, kind: String },
    #[error("unknown field")]
    UnknownField { known: Vec<String> },
    #[error("is missing")]
    MissingField,
    #[error("is {found} but must be {expected}")]
    WrongType {
        expected: &'static str,
        found: &'static str,
    },
    #[error("`{value}` is none of {}", allowed.join(", "))]
    NotOneOf { value: String, allowed: Vec<String> },
    #[error("{value} is below {minimum}")]
    BelowMinimum { value: i64, minimum: i64 },
    #[error("cannot be read: {message}")]
    Malformed { message: String },
    #[error("the same object is in {other}")]
    DuplicateObject { other: Box<Place> },

    // Of the cluster.
    #[error("no ConfigMap tells this cluster's id")]
    NoClusterId,
    #[error("the cluster id is told already by {other}")]
    TwoClusterIds { other: Box<Place> },
    #[error("`{value}` is not a cluster id")]
    BadClusterId { value: String },
    #[error("no Network has the type `{network_type}`")]
    NoNetwork { network_type: &'static str },
    #[error("the type `{network_type}` is that of {other} already")]
    TwoNetworks {
        network_type: &'static str,
        other: Box<Place>,
    },
    #[error("unknown network type `{value}`")]
    BadNetworkType { value: String },

    // Of an address.
    #[error("`{value}` is not a CIDR")]
    NotACidr { value: String },
    #[error("`{value}` is not an IPv4 address")]
    NotAnAddress { value: String },
    #[error("`{value}`: IPv6 is not supported yet")]
    Ipv6 { value: String },
    #[error("{cidr} has bits set behind the prefix")]
    HostBits { cidr: Ipv4Net },
    #[error("{cidr} contains addresses that are never routed (of {reserved})")]
    Unroutable { cidr: Ipv4Net, reserved: Ipv4Net },
    #[error("{cidr} overlaps {other} of {of}")]
    Overlap {
        cidr: Ipv4Net,
        other: Ipv4Net,
        of: Box<Place>,
    },
    #[error("{address} is the address of {other} already")]
    DuplicateAddress {
        address: Ipv4Addr,
        other: Box<Place>,
    },

    // Of a node or a gateway replica.
    #[error("the node has no address of type InternalIP")]
    NoInternalIp,
    #[error("the node has no pod CIDR")]
    NoNodePodCidr,
    #[error("{cidr} is not within the cluster's pod CIDRs")]
    NodePodCidrOutside { cidr: Ipv4Net },
    #[error("the gateway replica runs on the unknown node `{node}`")]
    UnknownNode { node: String },
    #[error("the gateway replica `{name}` is in {other} already")]
    DuplicateReplica { name: String, other: Box<Place> },

    // Of a peer.
    #[error("the label does not say which peer the object is about")]
    NoPeerLabel,
    #[error("`{cluster_id}` is this cluster itself")]
    OwnCluster { cluster_id: String },
    #[error("the peer `{cluster_id}` has {other} already")]
    DuplicatePeer {
        cluster_id: String,
        other: Box<Place>,
    },
    #[error("unknown peer `{cluster_id}`")]
    UnknownPeer { cluster_id: String },
    #[error("the peer `{cluster_id}` has no GatewayServer and no GatewayClient")]
    NoGateway { cluster_id: String },
    #[error("the peer `{cluster_id}` has no PublicKey")]
    NoPublicKey { cluster_id: String },
    #[error("the key has {found} bytes but must have 32")]
    KeyLength { found: usize },
    #[error("the peer has no pod CIDR")]
    NoPeerPodCidr,
    #[error("{value} is not between 576 and 9000")]
    BadMtu { value: i64 },
    #[error("{value} is not between 1 and 65535")]
    BadPort { value: i64 },
    #[error("the gateway speaks UDP only")]
    NotUdp,
    #[error("`{value}` is neither an address nor a host name")]
    BadHost { value: String },

    // Of a mapped address.
    #[error("unknown Network `{name}`")]
    UnknownNetwork { name: String },
    #[error("the addresses of the Network `{name}` are not for single use")]
    UnfitNetwork { name: String },
    #[error("{address} is itself of the external CIDR {external}")]
    MappedToItself {
        address: Ipv4Addr,
        external: Ipv4Net,
    },

    // Of the status.
    #[error("is missing")]
    NotPlanned,
    #[error("the node's IP object `{name}` is missing")]
    NoNodeIp { name: String },
    #[error("`{value}` does not fit the spec")]
    StaleStatus { value: String },
    #[error(transparent)]
    Network(NetworkError),
    #[error(transparent)]
    Address(AddressError),
}

impl Errors {
    /// Returns the errors in the order of the documents.
    pub fn iter(&self) -> std::slice::Iter<'_, Error> {
        self.0.iter()
    }
}

impl Problem {
    /// Says what to do, as a sentence without its full stop.
    pub fn cure(&self) -> String {
        match self {
            Self::Empty => "write the objects of the fabric into it, or name another file".into(),
            Self::Syntax { .. } => "correct the line".into(),
            Self::NotAnObject => "start it with apiVersion, kind and metadata".into(),
            Self::UnknownKind { .. } => format!(
                "remove it or use one of {}",
                super::objects::known_kinds().join(", ")
            ),
            Self::UnknownField { known } if known.is_empty() => "remove it".into(),
            Self::UnknownField { known } => {
                format!("remove it or use one of {}", known.join(", "))
            }
            Self::MissingField => "add it".into(),
            Self::WrongType { expected, .. } if *expected == "a string" => "quote it".into(),
            Self::WrongType { .. } | Self::Malformed { .. } | Self::BelowMinimum { .. } => {
                "correct the value".into()
            }
            Self::NotOneOf { .. } => "use one of them".into(),
            Self::DuplicateObject { .. } => "remove one, or rename it".into(),
            Self::NoClusterId => {
                "add a ConfigMap with the label app.kubernetes.io/name=clusterid-configmap and the \
                 data CLUSTER_ID"
                    .into()
            }
            Self::TwoClusterIds { .. } | Self::TwoNetworks { .. } => "remove one of them".into(),
            Self::BadClusterId { .. } => {
                "use at most 63 lower-case letters, digits and inner hyphens".into()
            }
            Self::NoNetwork { network_type } => {
                format!("add one with the label ipam.liqo.io/network-type={network_type}")
            }
            Self::BadNetworkType { .. } => {
                "use one of pod-cidr, service-cidr, external-cidr, internal-cidr, reserved".into()
            }
            Self::NotACidr { .. } => "write it as 10.244.0.0/16".into(),
            Self::NotAnAddress { .. } => "write it as 10.244.1.10".into(),
            Self::Ipv6 { .. } => "use an IPv4 one".into(),
            Self::HostBits { cidr } => format!("write {}", cidr.trunc()),
            Self::Unroutable { .. } => "use a CIDR of the private address space".into(),
            Self::Overlap { .. } => {
                "use another CIDR; if it stands in a status, run `gateway plan FILE`".into()
            }
            Self::DuplicateAddress { .. } => "give each its own".into(),
            Self::NoInternalIp => "add one to status.addresses".into(),
            Self::NoNodePodCidr => "set spec.podCIDRs".into(),
            Self::NodePodCidrOutside { .. } => {
                "correct it, or add a Network of type pod-cidr around it".into()
            }
            Self::UnknownNode { .. } => "add the Node, or remove the end point".into(),
            Self::DuplicateReplica { .. } => "remove one of the end points".into(),
            Self::NoPeerLabel => "set the label liqo.io/remote-cluster-id".into(),
            Self::OwnCluster { .. } => {
                "name the peer in the label liqo.io/remote-cluster-id".into()
            }
            Self::DuplicatePeer { .. } => "keep one of the two".into(),
            Self::UnknownPeer { cluster_id } => format!(
                "add a Configuration with the label liqo.io/remote-cluster-id={cluster_id}, or remove \
                 this object"
            ),
            Self::NoGateway { cluster_id } => format!(
                "add a GatewayServer or GatewayClient with the label \
                 liqo.io/remote-cluster-id={cluster_id}"
            ),
            Self::NoPublicKey { cluster_id } => {
                format!("add a PublicKey with the label liqo.io/remote-cluster-id={cluster_id}")
            }
            Self::KeyLength { .. } => "write the peer's WireGuard public key in base64".into(),
            Self::NoPeerPodCidr => "list the peer's pod CIDRs".into(),
            Self::BadMtu { .. } | Self::BadPort { .. } => "correct the value".into(),
            Self::NotUdp => "set UDP".into(),
            Self::BadHost { .. } => "correct it".into(),
            Self::UnknownNetwork { .. } => {
                "name a Network of this file, or remove the reference".into()
            }
            Self::UnfitNetwork { .. } => {
                "name one of type external-cidr, or remove the reference".into()
            }
            Self::MappedToItself { .. } => "write the address that is behind it".into(),
            Self::NotPlanned | Self::NoNodeIp { .. } | Self::StaleStatus { .. } => {
                "run `gateway plan FILE`".into()
            }
            Self::Network(NetworkError::OutsidePools { .. }) => format!(
                "use one of {}",
                ipam::DEFAULT_POOLS.map(|pool| pool.to_string()).join(", ")
            ),
            Self::Network(NetworkError::Exhausted { .. }) => {
                "remove reserved Networks, or peers".into()
            }
            Self::Network(_) => "use another CIDR".into(),
            Self::Address(_) => "use a larger external CIDR, or remove IP objects".into(),
        }
    }
}

impl std::error::Error for Errors {}

impl std::error::Error for Error {}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }

        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.to_string();
        if !place.is_empty() {
            write!(f, "{place}: ")?;
        }
        write!(f, "{}; {}", self.problem, self.problem.cure())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(Position { document, line }) = self.position {
            write!(f, "document {document} (line {line})")?;
            separator = ", ";
        }
        for part in [&self.object, &self.field] {
            if !part.is_empty() {
                write!(f, "{separator}{part}")?;
                separator = ", ";
            }
        }

        Ok(())
    }
}

/// Returns the errors in the order of the documents, or `None` if there is none.
pub(super) fn ordered(mut errors: Vec<Error>) -> Option<Errors> {
    if errors.is_empty() {
        return None;
    }
    errors.sort_by_key(|error| error.place.position.map(|position| position.document));

    Some(Errors(errors))
}
