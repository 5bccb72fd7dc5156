//! The nonces that consumers sign, on both sides.

use super::item::WorkItem;
use super::objects::{Local, label, warn};
use super::owner_reference;
use super::seen::Seen;
use control_api::authentication::identity::IdentityType;
use control_api::{annotations, labels};
use control_credentials::{PublicKey, nonce};
use control_runtime::{Cluster, Env, Key, Plan, Ref};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use std::time::Duration;

/// Key of the nonce in the Secrets of both sides.
pub(super) const NONCE: &str = "nonce";

/// Key of the signature in the consumer's Secret.
pub(super) const SIGNATURE: &str = "signedNonce";

/// Longest nonce that this cluster signs, in bytes. Upstream's have 88.
const NONCE_LEN_MAX: usize = 256;

/// Shortest life of a signed nonce. `liqoctl` waits up to two minutes for it, also if the clusters are peered already.
const SIGNED_MIN: Duration = Duration::from_secs(120);

/// Plans the nonce of a consumer: fills an empty Secret, and deletes one that no Tenant has used in time.
pub(super) fn plan_nonce(
    local: &Local<'_>,
    key: &Key,
    ttl: Duration,
    env: &mut Env<'_>,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let Some(secret) = local
        .secrets
        .get(key)
        .filter(|it| is_of_peer(local, key, it))
    else {
        return plan;
    };
    let object = Ref::of::<Secret>(&Cluster::Local, key);
    if value(secret, NONCE).is_none() {
        let text = nonce([(env.random)(), (env.random)()]);
        plan.apply(
            object,
            json!({"data": {NONCE: ByteString(text.into_bytes())}}),
        );
        return plan;
    }
    if is_bound(secret) {
        return plan;
    }
    let expiry = created(secret, env.now).saturating_add(ttl);
    if let Some(rest) = remaining(env.now, expiry.unwrap_or(env.now)) {
        plan.requeue.push((rest, WorkItem::Nonce(key.clone())));
        return plan;
    }
    let message = format!(
        "deleted, because no Tenant has used the nonce within {} hours: create another one",
        ttl.as_secs() / 3600
    );
    warn(&mut plan, object.clone(), ("NonceExpired", message));
    plan.delete(object, secret.metadata.uid.clone().unwrap_or_default());

    plan
}

/// Plans the signature of a provider's nonce, and deletes the Secret once the credentials have arrived.
pub(super) fn plan_signed_nonce(
    local: &Local<'_>,
    key: &Key,
    seen: &mut Seen,
    env: &Env<'_>,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let secret = local
        .secrets
        .get(key)
        .filter(|it| is_of_peer(local, key, it));
    let (Some(secret), Some(cluster_key)) = (secret, local.cluster_key()) else {
        return plan;
    };
    let Some(nonce) = value(secret, NONCE) else {
        return plan;
    };
    let object = Ref::of::<Secret>(&Cluster::Local, key);
    if !is_signable(&nonce.0) {
        let message = format!(
            "data.{NONCE} is no Base64 text of up to {NONCE_LEN_MAX} bytes, so it is not signed: copy the nonce of the provider"
        );
        warn(&mut plan, object, ("InvalidNonce", message));
        return plan;
    }
    let public = cluster_key.public_key();
    let is_signed = value(secret, SIGNATURE)
        .is_some_and(|signature| public.verify(&nonce.0, &signature.0).is_ok());
    if !is_signed {
        match cluster_key.sign(&nonce.0) {
            Ok(signature) => {
                plan.apply(object, json!({"data": {SIGNATURE: ByteString(signature)}}));
            }
            Err(error) => warn(&mut plan, object, ("SignatureFailed", error.to_string())),
        }
        return plan;
    }
    let mut identities = local.identities.within(&key.namespace);
    let ready = identities.find(|(_, identity)| {
        let status = identity.status.as_ref();
        identity.spec.type_ == Some(IdentityType::ControlPlane)
            && status.is_some_and(|status| status.kubeconfig_secret_ref.is_some())
    });
    let Some((_, identity)) = ready else {
        return plan;
    };
    let Some(rest) = seen.remaining(secret.metadata.uid.as_deref(), SIGNED_MIN, env) else {
        plan.delete(object, secret.metadata.uid.clone().unwrap_or_default());
        return plan;
    };
    plan.requeue
        .push((rest, WorkItem::SignedNonce(key.clone())));
    let owners = secret.owner_references().iter();
    let is_owned = owners
        .into_iter()
        .any(|owner| Some(&owner.uid) == identity.metadata.uid.as_ref());
    if !is_owned {
        // If the peering ends before, garbage collection deletes the Secret.
        let metadata = json!({"ownerReferences": [owner_reference(identity)]});
        plan.apply(
            object,
            json!({"metadata": metadata, "data": {SIGNATURE: value(secret, SIGNATURE)}}),
        );
    }

    plan
}

/// Returns whether the key of this cluster may sign a nonce. The provider chooses it, and other contents could be part of
/// another protocol, such as a certificate signing request or a handshake of TLS.
fn is_signable(nonce: &[u8]) -> bool {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(byte);
    (1..=NONCE_LEN_MAX).contains(&nonce.len()) && nonce.iter().all(is_base64)
}

/// Returns whether a nonce is bound to this key; `None` if it is bound to none.
pub(super) fn is_bound_to(secret: &Secret, key: &PublicKey) -> Option<bool> {
    let annotations = secret.metadata.annotations.as_ref()?;
    let bound = annotations.get(annotations::NONCE_KEY)?;

    Some(*bound == key.fingerprint())
}

/// Returns whether a key was verified with a nonce.
pub(super) fn is_bound(secret: &Secret) -> bool {
    let annotations = secret.metadata.annotations.as_ref();
    annotations.is_some_and(|it| it.contains_key(annotations::NONCE_KEY))
}

/// Returns the fields that bind a nonce to the first key that was verified with it. They contain the nonce, which the
/// Apply would remove otherwise.
pub(super) fn bound_to(secret: &Secret, key: &PublicKey) -> Value {
    json!({
        "metadata": {"annotations": {annotations::NONCE_KEY: key.fingerprint()}},
        "data": {NONCE: value(secret, NONCE)},
    })
}

/// Returns a value of a Secret.
pub(super) fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a ByteString> {
    secret.data.as_ref()?.get(key)
}

/// Returns whether a Secret stays, and is about the peer whose tenant namespace it is in.
fn is_of_peer(local: &Local<'_>, key: &Key, secret: &Secret) -> bool {
    let peer = label(&secret.metadata, labels::REMOTE_CLUSTER_ID);
    peer.is_some()
        && peer == local.peer_of(&key.namespace)
        && secret.metadata.deletion_timestamp.is_none()
}

fn created(secret: &Secret, now: Timestamp) -> Timestamp {
    let created = secret.metadata.creation_timestamp.as_ref();
    created.map_or(now, |time| time.0)
}

/// Returns the time from `now` until `then`, unless it has come.
pub(super) fn remaining(now: Timestamp, then: Timestamp) -> Option<Duration> {
    let rest = Duration::try_from(then.duration_since(now)).unwrap_or_default();
    (!rest.is_zero()).then_some(rest)
}
