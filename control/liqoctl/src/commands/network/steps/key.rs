//! Steps: the public key of a gateway is known, and its peer has the key.

use super::gateway::Gateway;
use crate::kinds::gateway::Gateway as Kind;
use crate::kinds::public_key::{self, Key, Owner};
use crate::objects;
use crate::state::State;
use crate::steps::{Lines, Step, lines};
use anyhow::{Context as _, Result};
use control_api::PublicKey;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use std::marker::PhantomData;

/// Waits until the controller manager has created the keys of a gateway. Returns the public key.
pub(crate) struct GatewayKey<'a, G: Kind> {
    gateway: Gateway<'a>,
    kind: PhantomData<G>,
}

impl<'a, G: Kind> GatewayKey<'a, G> {
    /// Returns the step for a gateway whose object is a `G`.
    pub(crate) fn of(gateway: Gateway<'a>) -> Self {
        let kind = PhantomData;
        Self { gateway, kind }
    }
}

impl<G: Kind> Step for GatewayKey<'_, G> {
    type Desired = ();
    type Output = Key;

    fn lines(&self) -> Lines {
        let role = G::ROLE;
        Lines {
            scope: self.gateway.side.cluster.side,
            apply: None,
            wait: lines(
                &format!("Waiting for gateway {role} Secret to be created"),
                &format!("Gateway {role} Secret created successfully"),
            ),
            goal: "creating the keys",
        }
    }

    async fn observe(&self, (): &()) -> Result<State<Key>> {
        Ok(match read_key::<G>(&self.gateway).await? {
            Ok(key) => State::Ready(key),
            Err(missing) => {
                let place = self.gateway.side.cluster.place();
                State::Waiting(format!("{missing}, in {place}"))
            }
        })
    }
}

/// Returns the public key of a gateway, or the missing object.
async fn read_key<G: Kind>(gateway: &Gateway<'_>) -> Result<Result<Key, String>> {
    let role = G::ROLE;
    let Some(object) = gateway.object::<G>().await? else {
        return Ok(Err(format!("the gateway {role} does not exist")));
    };
    let reference = object.secret();
    let name = reference.and_then(|it| public_key::secret_name(it, gateway.namespace));
    let Some((namespace, name)) = name else {
        return Ok(Err(format!(
            "the gateway {role} names no Secret yet (does the controller-manager run?)"
        )));
    };
    let cluster = &gateway.side.cluster;
    let api = Api::<Secret>::namespaced(cluster.client.clone(), &namespace);
    let Some(secret) = cluster.get(&api, "Secret", &name).await? else {
        return Ok(Err(format!("Secret {namespace}/{name} does not exist yet")));
    };
    Ok(Key::of_secret(&secret).map_err(|wrong| format!("Secret {namespace}/{name} {wrong}")))
}

/// Writes the public key of the peer's gateway. This cluster's gateway, a `G`, owns the PublicKey, so
/// that the API server deletes both together.
pub(crate) struct PeerKey<'a, G: Kind> {
    gateway: Gateway<'a>,
    kind: PhantomData<G>,
}

impl<'a, G: Kind> PeerKey<'a, G> {
    /// Returns the step for a gateway whose object is a `G`.
    pub(crate) fn of(gateway: Gateway<'a>) -> Self {
        let kind = PhantomData;
        Self { gateway, kind }
    }

    async fn manifest(&self, existing: Option<&PublicKey>, key: &Key) -> Result<Value> {
        let owner = self.gateway.object::<G>().await?;
        let owner = owner
            .with_context(|| format!("the {} gateway was deleted during this step", G::ROLE))?;
        let owner = Owner {
            kind: G::kind(&()).into_owned(),
            uid: owner
                .uid()
                .with_context(|| format!("{} has no UID", owner.name_any()))?,
            name: owner.name_any(),
        };
        let (side, namespace) = (self.gateway.side, self.gateway.namespace);
        let name = existing.map_or_else(|| side.peer.clone(), |existing| existing.name_any());
        let object = public_key::manifest(&name, Some(namespace), &side.peer, key, Some(&owner));
        Ok(side.cluster.with_metadata(object))
    }
}

impl<G: Kind> Step for PeerKey<'_, G> {
    type Desired = Key;
    type Output = ();

    fn lines(&self) -> Lines {
        Lines {
            scope: self.gateway.side.cluster.side,
            apply: lines("Creating public key", "Public key correctly created"),
            wait: None,
            goal: "creating the public key",
        }
    }

    async fn observe(&self, key: &Key) -> Result<State<()>> {
        let existing = self.gateway.object::<PublicKey>().await?;
        let manifest = self.manifest(existing.as_ref(), key).await?;
        let place = self.gateway.side.cluster.place();
        Ok(objects::state(existing.as_ref(), &manifest, &place))
    }

    async fn apply(&self, key: &Key) -> Result<()> {
        let existing = self.gateway.object::<PublicKey>().await?;
        let manifest = self.manifest(existing.as_ref(), key).await?;
        let cluster = &self.gateway.side.cluster;
        cluster
            .apply(&self.gateway.api::<PublicKey>(), manifest)
            .await?;
        Ok(())
    }
}
