//! The authentication controller: provider and consumer agree on the identity of the consumer.
//!
//! ```text
//! consumer                                   provider
//!                                            nonce        Secret with a nonce
//! nonce        the nonce, signed
//!                                            tenant       verified key: certificate, bindings, status
//! identity     kubeconfig Secret
//! ```
//!
//! `key` is the key of this cluster, `certificate` the way from a certificate signing request to a certificate,
//! `binding` the rights of a consumer, `parameters` the address of this API server, and `controller` the connection to
//! the runtime.

use kube::{Resource, ResourceExt as _};
use serde_json::{Value, json};

pub(crate) use controller::{AuthenticationController, Settings};
pub(crate) use objects::{label, warn};
pub(crate) use parameters::ApiServerSettings;

mod binding;
mod certificate;
mod controller;
mod identity;
mod item;
mod key;
mod nonce;
mod objects;
mod parameters;
mod registrations;
mod tenant;

#[cfg(test)]
pub(crate) use registrations::registrations;

/// Returns the reference to the owner that controls an object.
pub(crate) fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "name": owner.name_any(),
        "uid": owner.meta().uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

#[cfg(test)]
mod tests;
