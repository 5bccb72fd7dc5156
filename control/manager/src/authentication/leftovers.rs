//! Leftovers of a consumer in this cluster: its rights, its replicated objects, and its certificates.

use super::binding;
use super::certificate::SECRET_PREFIX;
use super::nonce::is_bound;
use super::objects::{BY_SECRET, Local, label, origin};
use control_api::{NamespaceMap, Renew, ResourceSlice, labels};
use control_runtime::{Action, Cluster, Key, Ref, Write};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

/// Returns the deletions of the objects of a consumer that is drained: it could create them again with its rights, which
/// end before.
pub(super) fn of_drained(local: &Local<'_>, tenant: &Key, peer: &str) -> Vec<Write> {
    let slices = local.slices.within(&tenant.namespace);
    let maps = local.namespace_maps.within(&tenant.namespace);
    let slices = slices.filter_map(|(key, it)| replica::<ResourceSlice>(key, &it.metadata, peer));
    let maps = maps.filter_map(|(key, it)| replica::<NamespaceMap>(key, &it.metadata, peer));

    slices.chain(maps).collect()
}

/// Returns the deletions of all objects of a consumer.
pub(super) fn replicas(local: &Local<'_>, tenant: &Key, peer: &str) -> Vec<Write> {
    let renews = local.renews.within(&tenant.namespace);
    let renews = renews.filter_map(|(key, it)| replica::<Renew>(key, &it.metadata, peer));
    let mut writes = of_drained(local, tenant, peer);
    writes.extend(renews);

    writes
}

/// Returns the deletions of the rights and the credentials of a consumer.
pub(super) fn of_deleted(local: &Local<'_>, tenant: &Key, peer: &str) -> Vec<Write> {
    let mut writes = binding::leftovers(local, tenant, peer);
    // That of the control plane has no Secret before it is signed.
    let certificate = Key::new(tenant.namespace.clone(), SECRET_PREFIX);
    writes.extend(requests(local, &certificate));
    for (key, secret) in local.secrets.within(&tenant.namespace) {
        let of_peer = label(&secret.metadata, labels::REMOTE_CLUSTER_ID) == Some(peer);
        let is_certificate = key.name.starts_with(SECRET_PREFIX);
        let is_used = label(&secret.metadata, labels::NONCE) == Some("true") && is_bound(secret);
        if of_peer && (is_certificate || is_used) {
            writes.extend(delete::<Secret>(key, &secret.metadata));
        }
        if is_certificate && *key != certificate {
            writes.extend(requests(local, key));
        }
    }

    writes
}

/// Returns the deletions of the certificate of a ResourceSlice that is gone. Otherwise a consumer could fill the API server with
/// them.
pub(super) fn of_slice(local: &Local<'_>, slice: &Key) -> Vec<Write> {
    let name = format!("{SECRET_PREFIX}-{}", slice.name);
    let key = Key::new(slice.namespace.clone(), name);
    let secret = local.secrets.get(&key).filter(|secret| {
        let peer = label(&secret.metadata, labels::REMOTE_CLUSTER_ID);
        peer.is_some() && peer == local.peer_of(&key.namespace)
    });
    let mut writes = requests(local, &key);
    writes.extend(secret.and_then(|secret| delete::<Secret>(&key, &secret.metadata)));

    writes
}

/// Returns the deletions of the CertificateSigningRequests that are for a Secret.
fn requests(local: &Local<'_>, secret: &Key) -> Vec<Write> {
    let requests = local.requests.indexed(BY_SECRET, &secret.to_string());
    let deletions =
        requests.filter_map(|(key, csr)| delete::<CertificateSigningRequest>(key, &csr.metadata));

    deletions.collect()
}

/// Returns the deletion of a replica of this consumer.
fn replica<K: Resource<DynamicType = ()>>(
    key: &Key,
    metadata: &ObjectMeta,
    peer: &str,
) -> Option<Write> {
    (origin(metadata) == Some(peer)).then(|| delete::<K>(key, metadata))?
}

/// Returns the deletion of an object, unless it is being deleted.
fn delete<K: Resource<DynamicType = ()>>(key: &Key, metadata: &ObjectMeta) -> Option<Write> {
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut write = Write::new(Ref::of::<K>(&Cluster::Local, key), Action::Delete);
    write.uid.clone_from(&metadata.uid);
    // After the rights.
    write.is_last = true;

    Some(write)
}
