//! Each side is told the other one's public key.

use super::{Gateway, identity};
use crate::kinds::gateway::Gateway as Kind;
use crate::kinds::public_key::{self, Key, Owner};
use crate::objects;
use crate::progress::begin;
use crate::wait::{Deadline, Found};
use anyhow::{Context as _, Result};
use control_api::PublicKey;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};

/// Reads the key of `from`, whose object is an `F`, and tells it to `to`, whose object is a `T`.
///
/// # Errors
///
/// Returns an error if no key comes, or if the API server refuses the PublicKey.
pub(crate) async fn share_key<F: Kind, T: Kind>(
    from: &Gateway<'_>,
    to: &Gateway<'_>,
    deadline: Deadline,
) -> Result<()> {
    let cluster = &from.side.cluster;
    let waiting = begin(
        cluster.side,
        format_args!("Waiting for gateway {} Secret to be created", F::ROLE),
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
        F::ROLE
    ));

    let creating = begin(to.side.cluster.side, "Creating public key");
    let owner = to
        .object::<T>()
        .await?
        .with_context(|| format!("the {} gateway was deleted meanwhile", T::ROLE))?;
    let (name, uid) = identity(&owner)?;
    let owner = Owner {
        kind: T::kind(&()).into_owned(),
        name,
        uid,
    };
    let peer = &to.side.peer;
    let existing = objects::find::<PublicKey>(&to.side.cluster, to.namespace, peer).await?;
    let name = existing.map_or_else(|| peer.clone(), |existing| existing.name_any());
    let object = public_key::manifest(&name, Some(to.namespace), peer, &key, Some(&owner));
    to.side
        .cluster
        .apply(&to.api::<PublicKey>(), object)
        .await?;
    creating.done("Public key correctly created");
    Ok(())
}

/// Returns the public key of a gateway, or what is missing.
async fn read_key<F: Kind>(gateway: &Gateway<'_>) -> Result<Result<Key, String>> {
    let word = F::ROLE;
    let Some(object) = gateway.object::<F>().await? else {
        return Ok(Err(format!("the gateway {word} is gone")));
    };
    let reference = object.secret();
    let name = reference.and_then(|it| public_key::secret_name(it, gateway.namespace));
    let Some((namespace, name)) = name else {
        return Ok(Err(format!(
            "the gateway {word} names no Secret yet (does the controller-manager run?)"
        )));
    };
    let cluster = &gateway.side.cluster;
    let api = Api::<Secret>::namespaced(cluster.client.clone(), &namespace);
    let Some(secret) = cluster.get(&api, "Secret", &name).await? else {
        return Ok(Err(format!("Secret {namespace}/{name} is not there yet")));
    };
    Ok(Key::of_secret(&secret).map_err(|wrong| format!("Secret {namespace}/{name} {wrong}")))
}
