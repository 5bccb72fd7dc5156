//! Reasons why a gateway does not serve its peer.

use super::key_problem::KeyProblem;
use crate::network::kind::{Key, Kind};
use crate::network::service_request;
use control_api::tenant_namespace::Misplaced;

/// Longest name of a gateway: with the prefix `gw-`, it is the value of a label.
pub(super) const NAME_LEN_MAX: usize = 60;

/// Reason of conditions and Events of objects that have no effect in their namespace.
pub(in crate::network::plan) const NOT_TENANT_NAMESPACE: &str = "NotTenantNamespace";

/// Reason why a gateway does not serve its peer, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::network::plan) enum Problem {
    #[error("it names no peer: add the label liqo.io/remote-cluster-id")]
    NoPeer,
    #[error("{0}")]
    InvalidPeer(String),
    #[error(
        "`{0}` is this cluster's own id: peers need different ones, so install one of the two again with another id"
    )]
    OwnCluster(String),
    #[error("{0}")]
    Misplaced(Misplaced),
    #[error("{kind} {key} serves this peer already: delete one of the two")]
    Conflict { kind: Kind, key: Key },
    #[error(
        "its name has more than {NAME_LEN_MAX} characters: create it again with a shorter one, preferably the cluster id"
    )]
    NameTooLong,
    #[error("{0}")]
    Service(#[from] service_request::Refusal),
    #[error("{0}")]
    Key(#[from] KeyProblem),
    #[error("the API server refuses its Service: {0}")]
    ServiceRefused(String),
    #[error("its Service does not exist yet")]
    ServicePending,
    #[error(
        "Service {0} has no address yet: check that the cluster has load balancers, or use NodePort"
    )]
    NoAddress(Key),
    #[error("no node is ready, so there is no address to publish")]
    NoNode,
    #[error(
        "spec.endpoint names no address or no port: copy them from status.endpoint of the peer's GatewayServer"
    )]
    NoEndpoint,
    #[error("{field}: {problem}")]
    Field {
        field: &'static str,
        problem: control_fabric::Problem,
    },
    #[error("PublicKey {0} does not hold 32 bytes: copy the publicKey of the peer's Secret")]
    PublicKeyInvalid(Key),
    #[error("PublicKeys {0} and {1} name different keys of this peer: delete the wrong one")]
    TwoPublicKeys(Key, Key),
    #[error(
        "PublicKey {key} contains the same key as {other} of another peer: each peer needs its own key, so copy both from the peers again"
    )]
    SharedPublicKey { key: Key, other: Key },
    #[error("PublicKey {0} contains this cluster's own key: replace it by the peer's")]
    OwnPublicKey(Key),
    #[error("the peer's PublicKey does not exist yet")]
    NoPublicKey,
}

impl Problem {
    /// Returns the reason of the condition, and whether an Event reports it.
    pub(super) fn reason(&self) -> (&'static str, bool) {
        match self {
            Self::NoPeer => ("NoClusterID", true),
            Self::InvalidPeer(_) => ("InvalidClusterID", true),
            Self::OwnCluster(_) => ("OwnClusterID", true),
            Self::Misplaced(_) => (NOT_TENANT_NAMESPACE, true),
            Self::Conflict { .. } => ("Conflict", true),
            Self::NameTooLong => ("NameTooLong", true),
            Self::Service(_) => ("InvalidEndpoint", true),
            Self::Key(problem) => (problem.reason(), problem.is_reported()),
            Self::ServiceRefused(_) => ("ServiceRefused", true),
            Self::ServicePending => ("WaitingForService", false),
            Self::NoAddress(_) => ("WaitingForAddress", false),
            Self::NoNode => ("NoReadyNode", true),
            Self::NoEndpoint => ("InvalidEndpoint", true),
            Self::Field { .. } => ("InvalidField", true),
            Self::PublicKeyInvalid(_) => ("InvalidPublicKey", true),
            Self::TwoPublicKeys(..) => ("TwoPublicKeys", true),
            Self::SharedPublicKey { .. } => ("KeyConflict", true),
            Self::OwnPublicKey(_) => ("KeyConflict", true),
            Self::NoPublicKey => ("WaitingForPublicKey", false),
        }
    }
}
