//! The Connection of a peer, whose state the gateway writes, and the peer's public key.

use super::gateway::{Gateway, Problem};
use super::secret::Keys;
use super::{Planner, owner};
use crate::network::kind::{Key, Kind};
use crate::network::local::{IndexKey, is_terminating};
use crate::network::write::{Action, Write, covers};
use control_api::networking::connection::CONNECTING;
use control_api::{PublicKey, labels};
use serde_json::json;

/// Checks the peer's public key.
pub(super) fn public_key(
    planner: &Planner<'_>,
    peer: &str,
    keys: Option<&Keys>,
) -> Result<(), Problem> {
    let of_peer = keys_of(planner, &IndexKey::peer(peer));
    let mut of_peer = of_peer.into_iter();
    let Some((key, public_key)) = of_peer.next() else {
        return Err(Problem::NoPublicKey);
    };
    let bytes = |public_key: &PublicKey| {
        let bytes = public_key.spec.public_key.clone();
        bytes.map(|bytes| bytes.0).unwrap_or_default()
    };
    let own = bytes(public_key);
    if own.len() != 32 {
        return Err(Problem::PublicKeyInvalid(key.clone()));
    }
    if let Some((second, _)) = of_peer.find(|(_, other)| bytes(other) != own) {
        return Err(Problem::TwoPublicKeys(key.clone(), second.clone()));
    }
    if keys.is_some_and(|keys| keys.public.as_slice() == own) {
        return Err(Problem::OwnPublicKey(key.clone()));
    }
    let rank = |key: &Key, it: &PublicKey| {
        let seniority = planner.local.seniority(Kind::PublicKey, key);
        (
            seniority,
            it.metadata.creation_timestamp.clone(),
            key.clone(),
        )
    };
    let others = keys_of(planner, &IndexKey::public_key(&own));
    let older = others.into_iter().find(|(other_key, other)| {
        planner.local.peer_of(Kind::PublicKey, other_key) != peer
            && rank(other_key, other) < rank(key, public_key)
    });
    match older {
        Some((other, _)) => Err(Problem::SharedPublicKey {
            key: key.clone(),
            other: other.clone(),
        }),
        None => Ok(()),
    }
}

/// Creates the Connection of a gateway once the peer's key is known. The Connection exists as long as the gateway.
pub(super) fn writes(
    planner: &Planner<'_>,
    peer: &str,
    gateway: &Gateway<'_>,
    is_known: bool,
) -> Vec<Write> {
    let key = key_of(gateway);
    let present = planner.local.connections.get(&key);
    if present.is_none() && !is_known {
        return Vec::new();
    }
    let (type_, kind, owner) = match gateway {
        Gateway::Server(_, server) => ("Server", "WgGatewayServer", owner(*server)),
        Gateway::Client(_, client) => ("Client", "WgGatewayClient", owner(*client)),
    };
    let desired = json!({
        "metadata": {
            "labels": {labels::REMOTE_CLUSTER_ID: peer},
            "ownerReferences": [owner],
        },
        "spec": {
            "type": type_,
            // Upstream names the object that it creates for the gateway, but with the UID of the gateway.
            "gatewayRef": {
                "apiVersion": "networking.liqo.io/v1beta1",
                "kind": kind,
                "name": gateway.key().name,
                "namespace": gateway.key().namespace,
                "uid": gateway.meta().uid,
            },
        },
    });
    let Some(present) = present else {
        let mut object = desired;
        object["apiVersion"] = json!("networking.liqo.io/v1beta1");
        object["kind"] = json!("Connection");
        object["metadata"]["name"] = json!(key.name);
        object["metadata"]["namespace"] = json!(key.namespace);
        return vec![Write::new(Kind::Connection, &key, Action::Create(object))];
    };

    let mut writes = Vec::new();
    let actual = serde_json::to_value(present).unwrap_or_default();
    if !is_terminating(&present.metadata) && !covers(&actual, &desired) {
        writes.push(Write::new(Kind::Connection, &key, Action::Merge(desired)));
    }
    let value = present
        .status
        .as_ref()
        .and_then(|status| status.value.as_ref());
    if value.is_none() {
        let status = json!({"status": {"value": CONNECTING}});
        writes.push(Write::new(Kind::Connection, &key, Action::Status(status)));
    }

    writes
}

/// Deletes the Connections of a peer that do not belong to its gateway.
pub(super) fn leftovers(
    planner: &Planner<'_>,
    peer: &str,
    gateway: Option<&Gateway<'_>>,
) -> Vec<Write> {
    let desired = gateway.map(key_of);
    let index_key = IndexKey::peer(peer);
    let entries = planner.local.indexed(&index_key);
    entries
        .filter(|(kind, key)| *kind == Kind::Connection && Some(*key) != desired.as_ref())
        .filter_map(|(_, key)| {
            let connection = planner.local.connections.get(key)?;
            let kind = connection
                .spec
                .gateway_ref
                .kind
                .as_deref()
                .unwrap_or_default();
            let is_left = kind.contains("Gateway") && !is_terminating(&connection.metadata);
            let delete = Action::Delete(connection.metadata.uid.clone());
            is_left.then(|| Write::new(Kind::Connection, key, delete))
        })
        .collect()
}

fn key_of(gateway: &Gateway<'_>) -> Key {
    Key::new(gateway.key().namespace.clone(), gateway.derived_name())
}

/// Returns the PublicKeys with an index key that are in the tenant namespaces of their peers.
fn keys_of<'a>(planner: &'a Planner<'_>, index_key: &IndexKey) -> Vec<(&'a Key, &'a PublicKey)> {
    let entries = planner.local.indexed(index_key);
    entries
        .filter(|(kind, _)| *kind == Kind::PublicKey)
        .filter_map(|(_, key)| Some((key, planner.local.public_keys.get(key)?)))
        .filter(|(key, public_key)| {
            let is_placed = planner.local.check_place(Kind::PublicKey, key).is_ok();
            is_placed && !is_terminating(&public_key.metadata)
        })
        .collect()
}
