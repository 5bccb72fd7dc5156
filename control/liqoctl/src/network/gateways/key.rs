//! Each side is told the other one's public key.

use super::{Gateway, identity};
use crate::forge::{self, Owner};
use crate::kinds::{self, Kind};
use crate::progress::step;
use crate::wait::{Deadline, Found};
use anyhow::{Context as _, Result};
use control_api::{GatewayClient, GatewayServer, PublicKey};
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::{Api, ResourceExt as _};

/// Entry of a gateway's Secret that its peer is told.
const PUBLIC_KEY: &str = "publicKey";

/// Bytes of a WireGuard key.
const KEY_BYTES: usize = 32;

/// A gateway's object that names the Secret with its keys.
pub(crate) trait HasSecret: Kind {
    /// The word of upstream's messages.
    const WORD: &str;

    /// Returns the reference of its status.
    fn secret(&self) -> Option<&ObjectReference>;
}

impl HasSecret for GatewayServer {
    const WORD: &str = "server";

    fn secret(&self) -> Option<&ObjectReference> {
        self.status.as_ref()?.secret_ref.as_ref()
    }
}

impl HasSecret for GatewayClient {
    const WORD: &str = "client";

    fn secret(&self) -> Option<&ObjectReference> {
        self.status.as_ref()?.secret_ref.as_ref()
    }
}

/// Reads the key of `from`, whose object is an `F`, and tells it to `to`, whose object is a `T`.
///
/// # Errors
///
/// Returns an error if no key comes, or if the API server refuses the PublicKey.
pub(crate) async fn share_key<F: HasSecret, T: HasSecret>(
    from: &Gateway<'_>,
    to: &Gateway<'_>,
    deadline: Deadline,
) -> Result<()> {
    let cluster = &from.side.cluster;
    let waiting = step(
        cluster.side,
        format_args!("Waiting for gateway {} Secret to be created", F::WORD),
    );
    let key = deadline
        .until("making the keys", async || {
            Ok(match read_key::<F>(from).await? {
                Ok(key) => Found::Ready(key),
                Err(missing) => Found::Missing(format!("{missing}, in {}", cluster.place())),
            })
        })
        .await?;
    waiting.done(format_args!(
        "Gateway {} Secret created successfully",
        F::WORD
    ));

    let creating = step(to.side.cluster.side, "Creating public key");
    let owner = to
        .object::<T>()
        .await?
        .with_context(|| format!("the {} gateway was deleted meanwhile", T::WORD))?;
    let (name, uid) = identity(&owner)?;
    let owner = Owner {
        kind: T::kind(&()).into_owned(),
        name,
        uid,
    };
    let peer = &to.side.peer;
    let existing = kinds::one::<PublicKey>(&to.side.cluster, to.namespace, peer).await?;
    let name = existing.map_or_else(|| peer.clone(), |existing| existing.name_any());
    let forged = forge::public_key(&name, Some(to.namespace), peer, &key, Some(&owner));
    to.side
        .cluster
        .apply(&to.api::<PublicKey>(), forged)
        .await?;
    creating.done("Public key correctly created");
    Ok(())
}

/// Returns the public key of a gateway, or what is missing.
async fn read_key<F: HasSecret>(gateway: &Gateway<'_>) -> Result<Result<Vec<u8>, String>> {
    let word = F::WORD;
    let Some(object) = gateway.object::<F>().await? else {
        return Ok(Err(format!("the gateway {word} is gone")));
    };
    let Some(name) = object.secret().and_then(|secret| secret.name.clone()) else {
        return Ok(Err(format!(
            "the gateway {word} names no Secret yet (does the controller-manager run?)"
        )));
    };
    let namespace = object.secret().and_then(|secret| secret.namespace.clone());
    let namespace = namespace.unwrap_or_else(|| gateway.namespace.to_owned());
    let cluster = &gateway.side.cluster;
    let api = Api::<Secret>::namespaced(cluster.client.clone(), &namespace);
    let Some(secret) = cluster.get(&api, "Secret", &name).await? else {
        return Ok(Err(format!("Secret {namespace}/{name} is not there yet")));
    };
    Ok(public_key(&secret).map_err(|wrong| format!("Secret {namespace}/{name} {wrong}")))
}

/// Returns the public key that a Secret holds.
///
/// # Errors
///
/// Returns what is wrong with it.
pub(crate) fn public_key(secret: &Secret) -> Result<Vec<u8>, String> {
    let entry = secret.data.as_ref().and_then(|data| data.get(PUBLIC_KEY));
    match entry {
        Some(bytes) if bytes.0.len() == KEY_BYTES => Ok(bytes.0.clone()),
        Some(bytes) => Err(format!(
            "holds {} bytes as {PUBLIC_KEY}; a key has {KEY_BYTES}",
            bytes.0.len()
        )),
        None => Err(format!("has no {PUBLIC_KEY} yet")),
    }
}
