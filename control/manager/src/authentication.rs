//! The authentication controller: provider and consumer agree on the identity of the consumer.
//!
//! ```text
//! consumer                                   provider
//!                                            nonce        Secret with a nonce
//! nonce        the nonce, signed
//!                                            tenant       verified key: certificate, bindings, status
//! identity     kubeconfig Secret
//! local_slice  request, Identity              slice        certificate and verdict of a ResourceSlice
//! renew        renewed credentials            renew        credentials of the control plane
//! ```
//!
//! `replication` carries ResourceSlices and Renews from the consumer to the provider, and their statuses back. `key` is the key of this cluster, `certificate` the way from a certificate signing request to a certificate,
//! `csr` its approval, `binding` the rights of a consumer, `parameters` the address of this API server, and `controller` the connection to
//! the runtime. `verdict` decides about resources within the bounds of `budget`, `decision` keeps what the provider has decided
//! about a consumer, `issued` checks what a provider returns, `eks` is credentials of Amazon's clusters, and `leftovers` is what remains
//! when a peering ends.

use kube::{Resource, ResourceExt as _};
use serde_json::{Value, json};

pub(crate) use binding::REMOTE_ROLE;
pub(crate) use controller::{AuthenticationController, Settings};
pub(crate) use csr::{SERVING_SIGNER, approval, is_decided, keep as keep_csr};
pub(crate) use eks::in_secret as eks_credentials;
pub(crate) use objects::{cluster_id, label, policy, warn};
pub(crate) use parameters::ApiServerSettings;
pub(crate) use registrations::secrets as watch_of_secrets;
pub(crate) use slice::is_replica;
pub(crate) use verdict::Grants;

mod binding;
mod budget;
mod certificate;
mod controller;
mod csr;
mod decision;
mod eks;
mod identity;
mod issued;
mod item;
mod key;
mod leftovers;
mod local_slice;
mod nonce;
mod objects;
mod observe;
mod parameters;
mod registrations;
mod renew;
mod seen;
mod slice;
mod tenant;
mod verdict;

#[cfg(test)]
pub(crate) use registrations::registrations;

/// Returns the reference to the owner that controls an object.
pub(crate) fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> Value {
    let mut reference = owner_reference(owner);
    reference["controller"] = json!(true);
    reference["blockOwnerDeletion"] = json!(true);

    reference
}

/// Returns the reference to an owner whose deletion causes that of an object.
fn owner_reference<K: Resource<DynamicType = ()>>(owner: &K) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "name": owner.name_any(),
        "uid": owner.meta().uid,
    })
}

#[cfg(test)]
mod tests;
