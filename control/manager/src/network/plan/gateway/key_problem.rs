//! Reasons why a gateway has no keys.

use crate::network::kind::Key;

/// Reason why a gateway has no keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::network::plan) enum KeyProblem {
    #[error("its keys are being created")]
    Pending,
    #[error(
        "the controller manager cannot read Secrets of namespace {0} yet: it waits for its RoleBinding there"
    )]
    Unreadable(String),
    #[error(
        "there is no Secret {0}: create it with privateKey and publicKey, or leave spec.secretRef empty"
    )]
    Missing(Key),
    #[error(
        "Secret {secret} is for peer `{peer}` by its label liqo.io/remote-cluster-id: use another one"
    )]
    OfAnother { secret: Key, peer: String },
    #[error("{field} of Secret {secret} {what}: {remedy}")]
    Invalid {
        secret: Key,
        field: &'static str,
        what: &'static str,
        remedy: &'static str,
    },
}

impl KeyProblem {
    /// Returns the reason for conditions and Events.
    pub(in crate::network::plan) fn reason(&self) -> &'static str {
        match self {
            Self::Pending | Self::Unreadable(_) => "WaitingForKeys",
            Self::Missing(_) => "KeysMissing",
            Self::OfAnother { .. } => "KeysOfAnotherPeer",
            Self::Invalid { .. } => "InvalidKeys",
        }
    }

    /// Returns whether an Event reports the problem. Other problems need no action of a user.
    pub(in crate::network::plan) fn is_reported(&self) -> bool {
        match self {
            Self::Pending | Self::Unreadable(_) => false,
            Self::Missing(_) | Self::OfAnother { .. } | Self::Invalid { .. } => true,
        }
    }
}
