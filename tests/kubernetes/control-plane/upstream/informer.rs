//! The objects of a kind, as the informers of Go's clients know them: a list, and the events of a watch after it.

use crate::fixture::SOON;
use anyhow::{Context as _, Result, bail};
use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use kube::api::WatchEvent;
use serde_json::Value;
use tokio::time::timeout;

type Events = BoxStream<'static, kube::Result<WatchEvent<Value>>>;

pub(super) struct Informer {
    kind: String,
    /// Objects of the list that were not yet returned.
    listed: Vec<Value>,
    events: Events,
}

impl Informer {
    pub(super) fn new(kind: &str, listed: Vec<Value>, events: Events) -> Self {
        Self {
            kind: kind.to_owned(),
            listed,
            events,
        }
    }

    /// Waits for a state of an object that `check` accepts, and returns it. Earlier states are skipped.
    pub(super) async fn until(
        &mut self,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let next = timeout(SOON, self.next(check)).await;
        let next = next.map_err(anyhow::Error::from).flatten();
        next.with_context(|| format!("no {} was seen: {what}", self.kind))
    }

    async fn next(&mut self, check: impl Fn(&Value) -> bool) -> Result<Value> {
        while let Some(object) = self.listed.pop() {
            if check(&object) {
                return Ok(object);
            }
        }
        while let Some(event) = self.events.try_next().await? {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    if check(&object) {
                        return Ok(object);
                    }
                }
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => bail!("{status:?}"),
            }
        }
        bail!("the watch has ended")
    }
}
