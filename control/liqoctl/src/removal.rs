//! Removal of all of a peer's objects of one kind. A watch reports their end.

use crate::cluster::list_versioned;
use crate::failure;
use crate::objects::{self, Kind};
use crate::observed::REFRESH;
use crate::pair::Side;
use crate::steps::Undo;
use crate::wait::PERIOD;
use anyhow::Result;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::LocalBoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// The objects of a kind in the tenant namespace of a peer.
pub(crate) struct Removal<'a, K: Kind> {
    side: &'a Side,
    noun: &'static str,
    selector: String,
    api: Api<K>,
    /// The objects as last received; `None` if they are to be read.
    known: RefCell<Option<Known<K>>>,
    watch: RefCell<Option<Watch<K>>>,
    /// Whether the user may not watch the kind, as peering users.
    is_polled: Cell<bool>,
}

type Watch<K> = LocalBoxStream<'static, kube::Result<WatchEvent<K>>>;

struct Known<K> {
    /// By name.
    objects: BTreeMap<String, K>,
    /// Resource version from which a watch continues.
    version: String,
}

impl<'a, K: Kind> Removal<'a, K> {
    /// Returns the removal of the objects in `namespace`, which progress lines call `noun`.
    pub(crate) fn new(side: &'a Side, namespace: &str, noun: &'static str) -> Self {
        Self {
            side,
            noun,
            selector: objects::selector(&side.peer),
            api: Api::namespaced(side.cluster.client.clone(), namespace),
            known: RefCell::default(),
            watch: RefCell::default(),
            is_polled: Cell::default(),
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

    /// Reads the objects. Those of a kind that the API server does not serve do not exist.
    async fn read(&self) -> Result<()> {
        let (found, version) = match list_versioned(&self.api, &self.selector).await {
            Err(error) if failure::is_not_found(&error) => Default::default(),
            listed => listed.map_err(
                self.side
                    .cluster
                    .failed(&format!("list {}", K::plural(&()))),
            )?,
        };
        let objects = found.into_iter().map(|it| (it.name_any(), it)).collect();
        *self.known.borrow_mut() = Some(Known { objects, version });
        Ok(())
    }

    async fn delete_all(&self) -> Result<bool> {
        self.read().await?;
        let names: Vec<String> = {
            let known = self.known.borrow();
            let names = known.iter().flat_map(|known| known.objects.keys());
            names.cloned().collect()
        };
        for name in &names {
            self.side.cluster.delete(&self.api, self.noun, name).await?;
        }
        Ok(!names.is_empty())
    }

    async fn first_remaining(&self) -> Result<Option<String>> {
        if self.known.borrow().is_none() {
            self.read().await?;
        }
        let known = self.known.borrow();
        let mut left = known.iter().flat_map(|known| known.objects.values());
        let place = self.side.cluster.place();
        Ok(left.next().map(|object| still_exists(object, &place)))
    }

    /// Waits for an event of the watch. Without one, the objects are read again after a moment.
    async fn wait(&self) {
        let event = async {
            match self.is_polled.get() {
                true => None,
                false => self.event().await,
            }
        };
        if tokio::time::timeout(REFRESH, event).await != Ok(Some(())) {
            tokio::time::sleep(PERIOD).await;
            *self.known.borrow_mut() = None;
        }
    }

    async fn event(&self) -> Option<()> {
        let watch = self.watch.take();
        let mut watch = match watch {
            Some(watch) => watch,
            None => self.open().await?,
        };
        loop {
            let event = watch.next().await?;
            let mut known = self.known.borrow_mut();
            let objects = &mut known.as_mut()?.objects;
            match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    objects.insert(object.name_any(), object);
                }
                Ok(WatchEvent::Deleted(object)) => {
                    objects.remove(&object.name_any());
                }
                Ok(WatchEvent::Bookmark(_)) => continue,
                Ok(WatchEvent::Error(_)) | Err(_) => return None,
            }
            *self.watch.borrow_mut() = Some(watch);
            return Some(());
        }
    }

    async fn open(&self) -> Option<Watch<K>> {
        let version = self.known.borrow().as_ref()?.version.clone();
        let params = WatchParams::default().labels(&self.selector);
        match self.api.watch(&params, &version).await {
            Ok(stream) => Some(stream.boxed_local()),
            Err(_) => {
                self.is_polled.set(true);
                None
            }
        }
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

    fn changed(&self) -> LocalBoxFuture<'_, ()> {
        self.wait().boxed_local()
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
