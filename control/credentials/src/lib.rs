//! The key of a cluster, what it signs, and the credentials that peers exchange.
//!
//! ```text
//! key           the cluster's private key: generate, parse, sign
//! public_key    a peer's public key: parse, verify
//! nonce         the text that a consumer signs to prove that it holds its key
//! request       certificate signing requests (PKCS #10), byte for byte as upstream writes them
//! serving       the same for the kubelet of a Node, whose certificate has an address
//! certificate   the validity of issued certificates, and when to renew them
//! kubeconfig    kubeconfigs with a certificate and the cluster's key
//! eks           tokens of IAM users for Amazon's clusters
//! digest        SHA-256 as text
//! identity      names that Kubernetes derives a user and a group from
//! ```
//!
//! All functions are pure: time and random bytes are arguments. Input of peers is parsed as strict DER of
//! bounded length.

#![forbid(unsafe_code)]

pub use certificate::{Certificate, CertificateError, RENEWAL_MIN};
pub use digest::digest;
pub use eks::{EksCredentials, EksError, eks_authority};
pub use identity::{CONTROL_PLANE_GROUP, Subject};
pub use key::{ClusterKey, KeyError, KeyType};
pub use kubeconfig::{Access, kubeconfig};
pub use nonce::nonce;
pub use public_key::{PublicKey, PublicKeyError};
pub use request::RequestError;
pub use serving::ServingRequest;

mod certificate;
mod digest;
mod eks;
mod identity;
mod key;
mod kubeconfig;
mod nonce;
mod pem;
mod public_key;
pub mod request;
pub mod serving;

#[cfg(test)]
mod tests;
