//! Errors of a fabric's objects: place, cause and remedy.

use super::cidr::CidrError;
use control_api::tenant_namespace::Misplaced;
use ipam::{AddressError, NetworkError};
use ipnet::Ipv4Net;
use std::fmt;
use std::net::Ipv4Addr;

/// All errors of a set of objects; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors(pub(super) Vec<Error>);

/// One error of an object or of a set of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Place of the error; empty if it concerns all objects together.
    pub place: Place,
    /// Cause and remedy.
    pub problem: Problem,
}

/// A place in a fabric's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The document, if the object was read from a file.
    pub position: Option<Position>,
    /// Kind and name of the object; empty or incomplete if the document lacks them.
    pub object: String,
    /// Path of the field, such as `spec.remote.cidr.pod[0]`; empty for the object itself.
    pub field: String,
}

/// A document of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Number of the document, counted from 1; empty documents are not counted.
    pub document: usize,
    /// Line of the file at which the document starts, counted from 1.
    pub line: usize,
}

/// Cause of an error; the message ends with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant documents it")]
pub enum Problem {
    // Of the text.
    #[error("the file contains no objects; add the objects of the fabric, or use another file")]
    Empty,
    #[error("not valid YAML: {message}; correct the line")]
    Syntax { message: String },
    #[error("not a mapping of fields to values; start it with apiVersion, kind and metadata")]
    NotAnObject,
    #[error(
        "unknown kind `{kind}` of apiVersion `{api_version}`; remove it or use one of {}",
        known.join(", ")
    )]
    UnknownKind {
        api_version: String,
        kind: String,
        known: Vec<String>,
    },
    #[error("unknown field; remove it or use one of {}", known.join(", "))]
    UnknownField { known: Vec<String> },
    #[error("is missing; add it")]
    MissingField,
    #[error("is {found} but must be {expected}; correct the value")]
    WrongType {
        expected: &'static str,
        found: &'static str,
    },
    #[error("is {found} but must be a string; quote it")]
    NotAString { found: &'static str },
    #[error("`{value}` is none of {}; use one of them", allowed.join(", "))]
    NotOneOf { value: String, allowed: Vec<String> },
    #[error("{value} is below {minimum}; correct the value")]
    BelowMinimum { value: i64, minimum: i64 },
    #[error("cannot be read: {message}; correct the value")]
    Malformed { message: String },
    #[error("the same object is in {other}; remove one, or rename it")]
    DuplicateObject { other: Box<Place> },

    // Of the cluster.
    #[error(
        "the ConfigMap with this cluster's id is missing; add a ConfigMap with the label \
         app.kubernetes.io/name=clusterid-configmap and the data CLUSTER_ID"
    )]
    NoClusterId,
    #[error("{other} already sets the cluster id; remove one of the ConfigMaps")]
    TwoClusterIds { other: Box<Place> },
    #[error(
        "`{value}` is not a cluster id; use at most 63 lower-case letters, digits and inner hyphens"
    )]
    BadClusterId { value: String },
    #[error(
        "no Network has the type `{network_type}`; add one with the label \
         ipam.liqo.io/network-type={network_type}"
    )]
    NoNetwork { network_type: &'static str },
    #[error("{other} already has the type `{network_type}`; remove one of them")]
    TwoNetworks {
        network_type: &'static str,
        other: Box<Place>,
    },
    #[error(
        "unknown network type `{value}`; use one of pod-cidr, service-cidr, external-cidr, \
         internal-cidr, reserved"
    )]
    BadNetworkType { value: String },

    // Of a namespace.
    #[error("{0}")]
    Misplaced(Misplaced),
    #[error(
        "objects with this name or type are read from namespace {liqo} only; delete or rename the object"
    )]
    NotOfLiqo { liqo: String },

    // Of an address.
    #[error(transparent)]
    Cidr(#[from] CidrError),
    #[error(
        "{cidr} overlaps {other} of {of}; use another CIDR; if the CIDR is in a status, run \
         `gateway plan FILE`"
    )]
    Overlap {
        cidr: Ipv4Net,
        other: Ipv4Net,
        of: Box<Place>,
    },
    #[error("{other} already has the address {address}; use another address")]
    DuplicateAddress {
        address: Ipv4Addr,
        other: Box<Place>,
    },

    // Of a node or a gateway replica.
    #[error("the node has no address of type InternalIP; add one to status.addresses")]
    NoInternalIp,
    #[error(
        "{cidr} is not within the cluster's pod CIDRs; correct it, or add a Network of type pod-cidr \
         around it"
    )]
    NodePodCidrOutside { cidr: Ipv4Net },
    #[error(
        "the gateway replica runs on the unknown node `{node}`; add the Node, or remove the endpoint"
    )]
    UnknownNode { node: String },
    #[error("{other} already has the gateway replica `{name}`; remove one of the endpoints")]
    DuplicateReplica { name: String, other: Box<Place> },

    // Of a peer.
    #[error("the label is missing; set liqo.io/remote-cluster-id to the cluster id of the peer")]
    NoPeerLabel,
    #[error(
        "`{cluster_id}` is the id of this cluster; set the label liqo.io/remote-cluster-id to the cluster id of the peer"
    )]
    OwnCluster { cluster_id: String },
    #[error("the peer `{cluster_id}` already has {other}; remove one of the two")]
    DuplicatePeer {
        cluster_id: String,
        other: Box<Place>,
    },
    #[error(
        "{other} has the same key; gateways cannot distinguish two peers with one key: publish a \
         separate key for each peer"
    )]
    DuplicateKey { other: Box<Place> },
    #[error(
        "the key of peer `{peer}` equals that of {other}, whose peer is older; gateways cannot distinguish two \
         peers with one key: publish the key of `{peer}`"
    )]
    CopiedKey { peer: String, other: Box<Place> },
    #[error("there are more than {limit} {what}; remove some")]
    TooMany { what: &'static str, limit: usize },
    #[error(
        "unknown peer `{cluster_id}`; add a Configuration with the label \
         liqo.io/remote-cluster-id={cluster_id}, or remove this object"
    )]
    UnknownPeer { cluster_id: String },
    #[error(
        "the peer `{cluster_id}` has no GatewayServer and no GatewayClient; add a GatewayServer or \
         GatewayClient with the label liqo.io/remote-cluster-id={cluster_id}"
    )]
    NoGateway { cluster_id: String },
    #[error(
        "the peer `{cluster_id}` has no PublicKey; add a PublicKey with the label \
         liqo.io/remote-cluster-id={cluster_id}"
    )]
    NoPublicKey { cluster_id: String },
    #[error(
        "the key has {found} bytes but must have 32; write the peer's WireGuard public key in base64"
    )]
    KeyLength { found: usize },
    #[error("the peer has no pod CIDR; list the peer's pod CIDRs")]
    NoPeerPodCidr,
    #[error("{value} is not between 576 and 9000; correct the value")]
    BadMtu { value: i64 },
    #[error("{value} is not between 1 and 65535; correct the value")]
    BadPort { value: i64 },
    #[error("the gateway supports UDP only; set UDP")]
    NotUdp,
    #[error("`{value}` is neither an address nor a host name; correct it")]
    BadHost { value: String },

    // Of a mapped address.
    #[error("unknown Network `{name}`; name a Network of this file, or remove the reference")]
    UnknownNetwork { name: String },
    #[error(
        "IP objects get no addresses of the Network `{name}`; refer to a Network of type \
         external-cidr, or remove the reference"
    )]
    UnfitNetwork { name: String },
    #[error(
        "{address} is already mapped, because it is in the external CIDR {external}; use the original address"
    )]
    MappedToItself {
        address: Ipv4Addr,
        external: Ipv4Net,
    },
    #[error(
        "{address} is the gateway replica of {other}, and peers must not reach a gateway through its own \
         tunnels; use another address"
    )]
    MappedToGateway {
        address: Ipv4Addr,
        other: Box<Place>,
    },

    // Of the status.
    #[error(
        "is missing; in a cluster the controller manager writes it, for a file run `gateway plan FILE`"
    )]
    NotPlanned,
    #[error(
        "the node's IP object `{name}` is missing; in a cluster the controller manager writes it, for a file run `gateway plan FILE`"
    )]
    NoNodeIp { name: String },
    #[error(
        "`{value}` does not fit the spec; in a cluster the controller manager writes it, for a file run `gateway plan FILE`"
    )]
    StaleStatus { value: String },

    // Of planning.
    #[error("{_0}; {remedy}", remedy = network_remedy(_0))]
    Network(NetworkError),
    #[error("{0}; use a larger external CIDR, or remove IP objects")]
    Address(AddressError),
}

fn network_remedy(error: &NetworkError) -> String {
    match error {
        NetworkError::OutsidePools { .. } => {
            let pools = ipam::DEFAULT_POOLS.map(|pool| pool.to_string());
            format!("use one of {}", pools.join(", "))
        }
        NetworkError::Exhausted { .. } => "remove reserved Networks, or peers".to_owned(),
        NetworkError::Taken { .. } | NetworkError::Held { .. } | NetworkError::PoolsOverlap(..) => {
            "use another CIDR".to_owned()
        }
    }
}

impl Errors {
    /// Returns the errors in the order of the documents.
    pub fn iter(&self) -> std::slice::Iter<'_, Error> {
        self.0.iter()
    }
}

impl Error {
    /// Returns an error that concerns all objects together.
    pub(super) fn of_all(problem: Problem) -> Self {
        Self {
            place: Place::default(),
            problem,
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
        write!(f, "{}", self.problem)
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
