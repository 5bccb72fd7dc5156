//! One object as the API server stores it: read by a list, by the responses to writes and by a watch, so that a
//! wait ends with the change it waits for and needs one request.

use crate::cluster::Cluster;
use crate::objects::Kind;
use crate::wait::PERIOD;
use anyhow::{Result, bail};
use futures_util::StreamExt as _;
use futures_util::stream::LocalBoxStream;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// Time after which the object is read again, because a watch does not notice a connection that is lost.
pub(crate) const REFRESH: Duration = Duration::from_secs(5);

/// Selects one object of a namespace.
#[derive(Clone, Debug)]
pub(crate) enum Select {
    /// By labels.
    Labels(String),
    /// By name.
    Name(String),
}

/// One object of a namespace.
pub(crate) struct Observed<'a, K: Kind> {
    cluster: &'a Cluster,
    /// The API of the object's namespace.
    pub(crate) api: Api<K>,
    select: Select,
    known: RefCell<Option<Known<K>>>,
    watch: RefCell<Option<Watch<'a, K>>>,
    is_read: Cell<bool>,
    /// Whether the first read is that of a watch.
    is_awaited: bool,
    /// Whether the user may not watch the kind, as peering users.
    is_polled: Cell<bool>,
}

type Watch<'a, K> = LocalBoxStream<'a, kube::Result<WatchEvent<K>>>;

#[derive(Clone)]
struct Known<K> {
    object: Option<K>,
    /// Resource version from which a watch continues.
    version: String,
}

impl<'a, K: Kind> Observed<'a, K> {
    /// Returns the object that `select` selects. Sends no request.
    pub(crate) fn new(cluster: &'a Cluster, namespace: &str, select: Select) -> Self {
        Self {
            cluster,
            api: Api::namespaced(cluster.client.clone(), namespace),
            select,
            known: RefCell::default(),
            watch: RefCell::default(),
            is_read: Cell::default(),
            is_awaited: false,
            is_polled: Cell::default(),
        }
    }

    /// Returns an object that a controller creates and that is waited for.
    pub(crate) fn awaited(cluster: &'a Cluster, namespace: &str, select: Select) -> Self {
        let mut observed = Self::new(cluster, namespace, select);
        observed.is_awaited = true;
        observed
    }

    /// Stores the objects of a list that an earlier step has read. Several objects are read again, which is an error.
    pub(crate) fn start(&self, mut found: Vec<K>) {
        if found.len() <= 1 {
            let object = found.pop();
            let version = object.as_ref().and_then(|it| it.resource_version());
            let version = version.unwrap_or_default();
            *self.known.borrow_mut() = Some(Known { object, version });
            self.is_read.set(true);
        }
    }

    /// Returns the object as last received, and reads it if it was never received.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server fails, or if labels select several objects.
    pub(crate) async fn get(&self) -> Result<Option<K>> {
        if let Some(known) = &*self.known.borrow() {
            return Ok(known.object.clone());
        }
        if self.is_awaited && !self.is_read.replace(true) {
            // A watch from no version begins with the present object.
            *self.known.borrow_mut() = Some(Known {
                object: None,
                version: String::new(),
            });
            return Ok(None);
        }
        let noun = K::plural(&());
        let list = self.api.list(&self.params()).await;
        let mut list = list.map_err(self.cluster.failed(&format!("list {noun}")))?;
        if list.items.len() > 1 {
            let names: Vec<String> = list.items.iter().map(|it| it.name_any()).collect();
            bail!(
                "{} has several {noun} for one peer ({}): delete all but one",
                self.cluster.place(),
                names.join(", "),
            );
        }
        let object = list.items.pop();
        let version = list.metadata.resource_version.unwrap_or_default();
        let known = Known {
            object: object.clone(),
            version,
        };
        *self.known.borrow_mut() = Some(known);
        self.is_read.set(true);
        Ok(object)
    }

    /// Returns whether the object has never been received, and its name is known.
    pub(crate) fn is_unread_by_name(&self) -> bool {
        matches!(self.select, Select::Name(_)) && !self.is_read.get()
    }

    /// Stores the object that the API server returned after a write.
    pub(crate) fn set(&self, object: K) {
        let version = object.resource_version().unwrap_or_default();
        let object = Some(object);
        *self.known.borrow_mut() = Some(Known { object, version });
        *self.watch.borrow_mut() = None;
        self.is_read.set(true);
    }

    /// Waits until the object may have changed.
    pub(crate) async fn changed(&self) {
        let event = match self.is_polled.get() {
            true => None,
            false => tokio::time::timeout(REFRESH, self.event())
                .await
                .unwrap_or_default(),
        };
        match event {
            Some(known) => *self.known.borrow_mut() = Some(known),
            None => {
                tokio::time::sleep(PERIOD).await;
                *self.known.borrow_mut() = None;
            }
        }
    }

    /// Returns the next state of the object by the watch, or none if there is no watch.
    async fn event(&self) -> Option<Known<K>> {
        let watch = self.watch.take();
        let mut watch = match watch {
            Some(watch) => watch,
            None => self.open().await?,
        };
        loop {
            let (object, is_deleted) = match watch.next().await? {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => (object, false),
                Ok(WatchEvent::Deleted(object)) => (object, true),
                Ok(WatchEvent::Bookmark(_)) => continue,
                Ok(WatchEvent::Error(_)) | Err(_) => return None,
            };
            *self.watch.borrow_mut() = Some(watch);
            let version = object.resource_version().unwrap_or_default();
            let object = (!is_deleted).then_some(object);
            return Some(Known { object, version });
        }
    }

    async fn open(&self) -> Option<Watch<'a, K>> {
        let version = self.known.borrow().as_ref()?.version.clone();
        let params = WatchParams::default();
        let params = match &self.select {
            Select::Labels(labels) => params.labels(labels),
            Select::Name(name) => params.fields(&format!("metadata.name={name}")),
        };
        match self.api.watch(&params, &version).await {
            Ok(stream) => Some(stream.boxed_local()),
            Err(_) => {
                self.is_polled.set(true);
                None
            }
        }
    }

    fn params(&self) -> ListParams {
        match &self.select {
            Select::Labels(labels) => ListParams::default().labels(labels),
            Select::Name(name) => ListParams::default().fields(&format!("metadata.name={name}")),
        }
    }
}
