//! Removal of all of a peer's objects of one kind.

use crate::objects::{self, Kind};
use crate::pair::Side;
use crate::steps::Undo;
use anyhow::Result;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use kube::{Api, ResourceExt as _};
use std::marker::PhantomData;

/// The objects of a kind in the tenant namespace of a peer.
pub(crate) struct Removal<'a, K: Kind> {
    side: &'a Side,
    namespace: &'a str,
    noun: &'static str,
    selector: String,
    kind: PhantomData<K>,
}

impl<'a, K: Kind> Removal<'a, K> {
    /// Returns the removal of the objects in `namespace`, which progress lines call `noun`.
    pub(crate) fn new(side: &'a Side, namespace: &'a str, noun: &'static str) -> Self {
        Self {
            side,
            namespace,
            noun,
            selector: objects::selector(&side.peer),
            kind: PhantomData,
        }
    }

    /// Returns the removal of the objects with the labels of `selector` only.
    pub(crate) fn of(self, selector: String) -> Self {
        Self { selector, ..self }
    }

    /// Returns the removal as a step of [`Runner::undo`](crate::steps::Runner::undo).
    pub(crate) fn boxed(self) -> Option<Box<dyn Undo + 'a>> {
        Some(Box::new(self))
    }

    async fn list(&self) -> Result<Vec<K>> {
        objects::select(&self.side.cluster, self.namespace, &self.selector).await
    }

    async fn delete_all(&self) -> Result<bool> {
        let cluster = &self.side.cluster;
        let found = self.list().await?;
        let api = Api::<K>::namespaced(cluster.client.clone(), self.namespace);
        for object in &found {
            cluster.delete(&api, self.noun, &object.name_any()).await?;
        }
        Ok(!found.is_empty())
    }

    async fn first_remaining(&self) -> Result<Option<String>> {
        let left = self.list().await?;
        let place = self.side.cluster.place();
        Ok(left.first().map(|object| still_exists(object, &place)))
    }
}

impl<K: Kind> Undo for Removal<'_, K> {
    fn scope(&self) -> &'static str {
        self.side.cluster.side
    }

    fn noun(&self) -> &'static str {
        self.noun
    }

    fn delete(&self) -> LocalBoxFuture<'_, Result<bool>> {
        self.delete_all().boxed_local()
    }

    fn remaining(&self) -> LocalBoxFuture<'_, Result<Option<String>>> {
        self.first_remaining().boxed_local()
    }
}

/// Returns a message that an object still exists, with the finalizers that delay its deletion.
fn still_exists<K: Kind>(object: &K, place: &str) -> String {
    let finalizers = object.finalizers();
    let reason = if finalizers.is_empty() {
        String::new()
    } else {
        format!(
            ", its finalizers {} wait for a controller",
            finalizers.join(", ")
        )
    };
    let kind = K::kind(&());
    format!(
        "{kind} {} still exists in {place}{reason}",
        object.name_any()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::Configuration;
    use serde_json::{from_value, json};

    #[test]
    fn finalizers_are_named() {
        let with = |finalizers: &[&str]| -> Configuration {
            from_value(json!({
                "apiVersion": "networking.liqo.io/v1beta1",
                "kind": "Configuration",
                "metadata": {"name": "milan", "finalizers": finalizers},
                "spec": {},
            }))
            .unwrap()
        };

        assert_eq!(
            still_exists(&with(&[]), "the local cluster"),
            "Configuration milan still exists in the local cluster"
        );
        assert!(
            still_exists(&with(&["a/b"]), "the local cluster")
                .ends_with("its finalizers a/b wait for a controller")
        );
    }
}
