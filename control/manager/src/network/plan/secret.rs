//! The keys of gateways: one Secret for each peer, and one with all private keys, which the gateway reads.

use super::gateway::{Gateway, KeyProblem};
use super::metadata::{is_ours, repaired};
use super::{Env, Plan, Planner, label};
use crate::network::kind::{GATEWAY_KEYS, Key, Kind};
use crate::network::local::is_terminating;
use crate::network::write::{Action, Write};
use control_api::labels;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use x25519_dalek::{PublicKey, StaticSecret};

const PRIVATE_KEY: &str = "privateKey";
const PUBLIC_KEY: &str = "publicKey";

/// The keys of a gateway, and their Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) secret: Key,
    pub(super) private: [u8; 32],
    pub(super) public: [u8; 32],
}

/// Returns the keys of a gateway; creates them if its spec names no Secret.
pub(super) fn keys(
    planner: &Planner<'_>,
    gateway: &Gateway<'_>,
    peer: &str,
    env: &mut Env<'_>,
    plan: &mut Plan,
) -> Result<Keys, KeyProblem> {
    let given = gateway.secret_name();
    let name = given.map_or_else(|| gateway.derived_name(), str::to_owned);
    let key = Key::new(gateway.key().namespace.clone(), name);
    if !planner.local.is_readable(&key.namespace) {
        return Err(KeyProblem::Unreadable(key.namespace));
    }
    let watched = planner.local.secret(&key);
    let looked_up = planner.local.derived.looked_up.get(&key);
    let secret = match (watched, looked_up) {
        (Some(secret), _) | (None, Some(Some(secret))) => secret,
        (None, None) => {
            plan.lookups.push(key);
            return Err(KeyProblem::Pending);
        }
        (None, Some(None)) if given.is_none() => {
            plan.writes
                .push(create(&key, gateway, peer, (env.random)()));
            return Err(KeyProblem::Pending);
        }
        (None, Some(None)) => {
            plan.retry = true;
            return Err(KeyProblem::Missing(key));
        }
    };
    if is_terminating(&secret.metadata) {
        plan.retry = true;
        return Err(KeyProblem::Pending);
    }

    let checked = check(&key, secret, peer, given.is_none());
    if watched.is_none() && checked.is_err() {
        // No watch reports a correction of this Secret.
        plan.retry = true;
    }
    let (keys, is_complete) = checked?;
    let is_own = given.is_none() && is_ours(&secret.metadata, gateway.meta().uid.as_deref());
    let desired = if is_own {
        metadata(&key, gateway, peer)
    } else {
        json!({"labels": {labels::REMOTE_CLUSTER_ID: peer, labels::GATEWAY_RESOURCE: "true"}})
    };
    let mut patch = repaired(&secret.metadata, &desired).unwrap_or_else(|| json!({}));
    if !is_complete {
        patch["data"] = json!({PUBLIC_KEY: bytes(&keys.public)});
    }
    if patch != json!({}) {
        plan.writes
            .push(Write::new(Kind::Secret, &key, Action::Merge(patch)));
    }

    Ok(keys)
}

/// Writes the entry of a peer in the Secret that the gateway reads; `None` removes it.
pub(super) fn publish(
    planner: &Planner<'_>,
    peer: &str,
    private: Option<&[u8; 32]>,
) -> Option<Write> {
    let key = Key::new(planner.settings.namespace.clone(), GATEWAY_KEYS);
    let Some(secret) = planner.local.secrets.get(&key) else {
        let entry = json!({peer: bytes(private?)});
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": {labels::APP_PART_OF: "liqo"},
            },
            "type": "Opaque",
            "data": entry,
        });
        return Some(Write::new(Kind::GatewayKeys, &key, Action::Create(secret)));
    };
    let held = secret.data.as_ref().and_then(|data| data.get(peer));
    if held.map(|held| held.0.as_slice()) == private.map(<[u8; 32]>::as_slice) {
        return None;
    }
    let entry = private.map_or(Value::Null, |private| bytes(private));
    let patch = json!({"data": {peer: entry}});

    Some(Write::new(Kind::GatewayKeys, &key, Action::Merge(patch)))
}

/// Deletes the Secrets of deleted gateways of a peer.
pub(super) fn leftovers(planner: &Planner<'_>, peer: &str, gateways: &[Gateway<'_>]) -> Vec<Write> {
    let secrets = planner.local.of_peer(peer).into_iter();
    secrets
        .filter(|(kind, _)| *kind == Kind::Secret)
        .filter_map(|(_, key)| {
            let secret = planner.local.secret(key)?;
            let mut owners = secret.metadata.owner_references.iter().flatten();
            let is_own = owners.any(|owner| {
                matches!(owner.kind.as_str(), "GatewayServer" | "GatewayClient")
                    && key.name == format!("gw-{}", owner.name)
            });
            let is_used = gateways.iter().any(|gateway| {
                gateway.key().namespace == key.namespace && gateway.derived_name() == key.name
            });
            let is_left = is_own && !is_used && !is_terminating(&secret.metadata);
            is_left.then(|| {
                let delete = Action::Delete(secret.metadata.uid.clone());
                Write::new(Kind::Secret, key, delete)
            })
        })
        .collect()
}

/// Reads a Secret. Also returns whether its public key matches, or can be derived from the private one.
fn check(key: &Key, secret: &Secret, peer: &str, is_own: bool) -> Result<(Keys, bool), KeyProblem> {
    let other = label(&secret.metadata, labels::REMOTE_CLUSTER_ID).filter(|other| *other != peer);
    if let Some(other) = other {
        let (secret, peer) = (key.clone(), other.to_owned());
        return Err(KeyProblem::OfAnother { secret, peer });
    }
    let field = |field| {
        let data = secret.data.as_ref()?;
        data.get(field).map(|bytes| bytes.0.as_slice())
    };
    let invalid = |field, what| KeyProblem::Invalid {
        secret: key.clone(),
        field,
        what,
        remedy: if is_own {
            "delete the Secret, so that new keys are generated, then copy the new publicKey to the peer"
        } else {
            "set it to 32 raw bytes, or leave spec.secretRef empty, so that keys are generated"
        },
    };

    let private = field(PRIVATE_KEY).ok_or_else(|| invalid(PRIVATE_KEY, "is missing"))?;
    let private: [u8; 32] = private
        .try_into()
        .map_err(|_| invalid(PRIVATE_KEY, "does not hold 32 bytes"))?;
    let public = public_key(private);
    let found = field(PUBLIC_KEY);
    let is_complete = found == Some(public.as_slice());
    if !is_own && !is_complete {
        let what = match found {
            Some(_) => "does not belong to its privateKey",
            None => "is missing",
        };
        return Err(invalid(PUBLIC_KEY, what));
    }
    let keys = Keys {
        secret: key.clone(),
        private,
        public,
    };

    Ok((keys, is_complete))
}

fn create(key: &Key, gateway: &Gateway<'_>, peer: &str, private: [u8; 32]) -> Write {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(key, gateway, peer),
        "type": "Opaque",
        "data": {PRIVATE_KEY: bytes(&private), PUBLIC_KEY: bytes(&public_key(private))},
    });

    Write::new(Kind::Secret, key, Action::Create(secret))
}

fn metadata(key: &Key, gateway: &Gateway<'_>, peer: &str) -> Value {
    json!({
        "name": key.name,
        "namespace": key.namespace,
        "labels": {
            labels::REMOTE_CLUSTER_ID: peer,
            labels::GATEWAY_RESOURCE: "true",
            labels::MANAGED: "true",
        },
        "ownerReferences": [gateway.owner()],
    })
}

fn public_key(private: [u8; 32]) -> [u8; 32] {
    PublicKey::from(&StaticSecret::from(private)).to_bytes()
}

fn bytes(bytes: &[u8]) -> Value {
    json!(ByteString(bytes.to_vec()))
}
