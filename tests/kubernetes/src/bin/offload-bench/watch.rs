//! Events of a namespace's objects, with the time at which each was received.

use anyhow::{Context as _, Result, bail};
use futures_util::stream::TryStreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// An object that does not change for so long is not waited for.
const LIMIT: Duration = Duration::from_secs(120);

/// What happened to an object.
pub(crate) enum Event<K> {
    /// It was created or changed.
    Put(K),
    /// It was deleted.
    Deleted(K),
}

/// The objects of a namespace, and their changes.
pub(crate) struct Watch<K> {
    /// The objects at the start.
    pub(crate) listed: Vec<K>,
    events: UnboundedReceiver<Result<(Instant, WatchEvent<K>)>>,
    task: AbortHandle,
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    pub(crate) async fn start(api: &Api<K>) -> Result<Self> {
        let list = api.list(&ListParams::default()).await?;
        let version = list.metadata.resource_version.context("no version")?;
        let (sender, events) = unbounded_channel();
        let task = tokio::spawn(watch(api.clone(), version, sender));

        Ok(Self {
            listed: list.items,
            events,
            task: task.abort_handle(),
        })
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> Result<(Instant, Event<K>)> {
        let event = timeout(LIMIT, self.next_change()).await;
        event.context("the next change takes too long")?
    }

    async fn next_change(&mut self) -> Result<(Instant, Event<K>)> {
        loop {
            let event = self.events.recv().await;
            let (at, event) = event.context("the watch has ended")??;
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    return Ok((at, Event::Put(object)));
                }
                WatchEvent::Deleted(object) => return Ok((at, Event::Deleted(object))),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(error) => bail!("the watch has failed: {error:?}"),
            }
        }
    }

    /// Waits until an object was created, and returns when that was seen.
    pub(crate) async fn created(&mut self, name: &str) -> Result<Instant> {
        loop {
            if let (at, Event::Put(object)) = self.next().await?
                && object.name_any() == name
            {
                return Ok(at);
            }
        }
    }
}

impl<K> Drop for Watch<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends each event with its time, while the receiver exists. The API server ends a watch after some minutes.
async fn watch<K>(
    api: Api<K>,
    mut version: String,
    sender: UnboundedSender<Result<(Instant, WatchEvent<K>)>>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = async {
        while !sender.is_closed() {
            let stream = api.watch(&WatchParams::default(), &version).await?;
            let mut stream = std::pin::pin!(stream);
            while let Some(event) = stream.try_next().await? {
                if let WatchEvent::Added(object)
                | WatchEvent::Modified(object)
                | WatchEvent::Deleted(object) = &event
                {
                    version = object.resource_version().unwrap_or(version);
                }
                // It fails if the receiver is gone.
                let _ = sender.send(Ok((Instant::now(), event)));
            }
        }
        anyhow::Ok(())
    };
    if let Err(error) = events.await {
        let _ = sender.send(Err(error));
    }
}
