//! Streaming lists: the server sends all objects as the first events of a watch, then a bookmark with an annotation,
//! then changes.
//!
//! A streaming list that fails may fail each time, for example because a proxy buffers responses. The watch then
//! goes on with paged lists, which need no more of a server than single responses.

use super::pages::Pages;
use super::{Events, LIST_MAX, State, Step, deleted};
use crate::cause::cause;
use crate::transport::ReplacedError;
use crate::watch::{Signal, Watched};
use futures_util::StreamExt as _;
use kube::api::WatchEvent;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Parameters of a streaming list. The version is that of etcd at the time of the request, as in a list.
const STREAMED: [(&str, &str); 2] = [
    ("sendInitialEvents", "true"),
    ("resourceVersionMatch", "NotOlderThan"),
];

/// Annotation of the bookmark that follows the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Codes for invalid parameters. kube-apiserver refuses streaming lists with 422 if the feature gate `WatchList` is off,
/// which is on by default from Kubernetes 1.34.
const UNSUPPORTED: [u16; 2] = [422, 400];

/// Longest time without an initial event. kube-apiserver sends the first one when its cache has the version of etcd, for
/// which it waits up to 3 s; then it sends an error. Other servers and proxies may send nothing.
pub(super) const INITIAL_IDLE_MAX: Duration = Duration::from_secs(60);

impl<W: Watched, O, F: Fn(W) -> O> State<W, F> {
    /// Requests a streaming list.
    pub(super) async fn open(&mut self) -> Option<Signal<O>> {
        let error = match self.events(&STREAMED).await {
            Ok(events) => {
                self.step = Step::Initial(events, Instant::now());
                return None;
            }
            Err(error) => error,
        };
        if status_code(&error).is_some_and(|code| UNSUPPORTED.contains(&code)) {
            self.target.siblings.is_paged.store(true, Ordering::Relaxed);
            self.step = Step::List(Pages::new());
            return None;
        }
        self.is_paged = may_concern_streaming(&error);
        self.failed(&error, Step::Begin)
    }

    /// Reports an object of a streaming list, or its end.
    pub(super) async fn initial(
        &mut self,
        mut events: Events<W>,
        began_at: Instant,
    ) -> Option<Signal<O>> {
        let ends_by = began_at + LIST_MAX;
        let idle_by = Instant::now() + INITIAL_IDLE_MAX;
        let next = timeout_at(idle_by.min(ends_by), events.next()).await;
        // The timeout does not end events that are always ready.
        if Instant::now() >= ends_by {
            return self.not_streamed(&format!("the initial events take longer than {LIST_MAX:?}"));
        }
        let event = match next {
            Ok(Some(event)) => event,
            Ok(None) => return self.not_streamed("the server has ended the watch too early"),
            Err(_) => return self.not_streamed("the server has stopped the initial events"),
        };
        // The versions of initial events are in no order, so they are neither compared nor kept.
        let signal = match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                self.object(object, true)
            }
            Ok(WatchEvent::Deleted(object)) => deleted(&object),
            Ok(WatchEvent::Bookmark(it)) => {
                let end = it.metadata.annotations.get(INITIAL_EVENTS_END);
                if end.is_none_or(|it| it != "true") {
                    // kube-apiserver sends no other bookmark before.
                    return self.not_streamed("the server has ignored sendInitialEvents");
                }
                if it.metadata.resource_version.is_empty() {
                    return self.not_streamed("the initial events have no resourceVersion");
                }
                let next = Step::Watch(events, began_at);
                return Some(self.listed(it.metadata.resource_version, next));
            }
            Ok(WatchEvent::Error(status)) => {
                return self.interrupted(&kube::Error::Api(status));
            }
            Err(error) => return self.interrupted(&error),
        };
        self.step = Step::Initial(events, began_at);
        Some(signal)
    }

    /// Notes an error between initial events.
    fn interrupted(&mut self, error: &kube::Error) -> Option<Signal<O>> {
        self.is_paged = cause::<ReplacedError>(error).is_none();
        self.failed(error, Step::Begin)
    }

    /// Notes that a streaming list did not end as it should.
    fn not_streamed(&mut self, reason: &str) -> Option<Signal<O>> {
        self.is_paged = true;
        self.restart(format!("failed to stream the list: {reason}"))
    }
}

/// Returns whether a request for a streaming list may have failed where one for a page would not. A server that is
/// unreachable, or refuses the client, does so for any request.
fn may_concern_streaming(error: &kube::Error) -> bool {
    match status_code(error) {
        Some(code) => code >= 500,
        None => cause::<io::Error>(error).is_none() && cause::<ReplacedError>(error).is_none(),
    }
}

fn status_code(error: &kube::Error) -> Option<u16> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    Some(status.code)
}
