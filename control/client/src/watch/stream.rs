//! Lists the objects of a resource, and watches their changes.
//!
//! ```text
//!   +--------------- 410, 403, 404, versions went back ----------------+
//!   v                                                                  |
//! Begin ---> Open ---200---> Initial --end of initial events--> Watch -+
//!   |         |                 |                               |   ^
//!   |      400, 422        failed: Begin, and pages           ended |
//!   v         |                                                 v   |
//! List <------+ ----------------last page--------------------> Resume
//! ```
//!
//! The watch begins with the list (a [streaming list][1]), which saves a request. The list has pages if the server
//! supports no streaming lists, or if one of this watch has failed.
//!
//! kube's watcher hides the version of bookmarks, at which it resumes, and resumes a watch that has
//! ended without delay. Here an interrupted watch compares that version with the server's before it
//! resumes, and every repetition has a delay.
//!
//! [1]: https://kubernetes.io/docs/reference/using-api/api-concepts/#streaming-lists

use super::failure::{Delay, refusal};
use super::{Signal, WatchId, Watched};
use crate::cause::cause;
use crate::object::key_of;
use crate::transport::{LimitError, ReplacedError};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::header::ACCEPT;
use kube::Client;
use kube::api::WatchEvent;
use pages::{PAGE_SIZE, PAGE_SIZE_MIN, Pages};
use serde::de::IgnoredAny;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout};

mod initial;
mod pages;
mod requests;

/// Longest list: all its pages, or all initial events. kube-apiserver refuses to continue a list after 5 to 10 minutes,
/// when etcd has compacted the version of its first page. Ends lists of a hostile server that have no end.
const LIST_MAX: Duration = Duration::from_secs(600);

/// Shortest time after which the server ends a watch. It is up to twice as long at random, so that watches that began
/// together do not end together. This is what kube-apiserver chooses for a watch without timeout (`--min-request-timeout`):
/// half of the requests of an idle cluster were those of watches that began again every five to ten minutes.
const WATCH_MIN: Duration = Duration::from_secs(1800);

/// Longest time without event, after which a watch is taken for dead. Servers send a bookmark every minute.
const IDLE_MAX: Duration = Duration::from_secs(295);

/// Duration of a watch after which delays begin with the shortest again. Longer than the longest delay, so a
/// server whose watches fail at once gets few requests.
const STABLE_MIN: Duration = Duration::from_secs(30);

/// Has the server send no more than metadata.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Not found, and forbidden.
const REFUSALS: [u16; 2] = [404, 403];

/// A resource to watch, and its client.
pub struct Target {
    /// Client of the cluster.
    pub client: Client,
    /// Which objects are watched.
    pub id: WatchId,
    /// Mean delay of the next request after the server has refused the watch; `None` for a short one that grows.
    pub refused_delay: Option<Duration>,
    /// All watches of a cluster share it, and so know their number.
    pub siblings: Arc<Siblings>,
}

/// State that the watches of a cluster share.
#[derive(Debug, Default)]
pub struct Siblings {
    /// Whether the server supports no streaming lists. Kept as long as the process follows the cluster: after an
    /// upgrade of the server, lists stay paged, which costs one request each.
    is_paged: AtomicBool,
}

/// Starts a watch whose objects are converted by `convert`.
pub fn stream<W: Watched, O: Send + 'static>(
    target: Target,
    convert: impl Fn(W) -> O + Send + 'static,
) -> BoxStream<'static, Signal<O>> {
    let state = State {
        target,
        step: Step::Begin,
        is_paged: false,
        page_size: PAGE_SIZE,
        version: String::new(),
        was_cut: false,
        requested: Duration::ZERO,
        delay: Delay::default(),
        convert,
    };
    stream::unfold(state, |mut state| async move {
        loop {
            state.delay.wait().await;
            if let Some(signal) = state.advance().await {
                return Some((signal, state));
            }
        }
    })
    .boxed()
}

struct State<W, F> {
    target: Target,
    step: Step<W>,
    /// Whether lists have pages, because a streaming list of this watch has failed.
    is_paged: bool,
    page_size: u32,
    /// Where the watch resumes: version of the list, of the last event, or of the last bookmark.
    version: String,
    /// Whether the watch was interrupted, so that etcd may have been restored meanwhile.
    was_cut: bool,
    /// Time after which the server was requested to end the watch.
    requested: Duration,
    delay: Delay,
    convert: F,
}

#[derive(Default)]
enum Step<W> {
    #[default]
    Begin,
    List(Pages<W>),
    /// The request for a streaming list.
    Open,
    /// A watch that sends the objects of its list, and since when it runs.
    Initial(Events<W>, Instant),
    Resume,
    /// A watch, and since when it runs.
    Watch(Events<W>, Instant),
}

type Events<W> = BoxStream<'static, kube::Result<WatchEvent<W>>>;

impl<W: Watched, O, F: Fn(W) -> O> State<W, F> {
    /// Does the next step. Returns no signal if there is nothing to report.
    async fn advance(&mut self) -> Option<Signal<O>> {
        match mem::take(&mut self.step) {
            Step::Begin => {
                let is_paged =
                    self.is_paged || self.target.siblings.is_paged.load(Ordering::Relaxed);
                self.step = match is_paged {
                    true => Step::List(Pages::new()),
                    false => Step::Open,
                };
                Some(Signal::ListBegins)
            }
            Step::List(pages) => self.list(pages).await,
            Step::Open => self.open().await,
            Step::Initial(events, began_at) => self.initial(events, began_at).await,
            Step::Resume => self.resume().await,
            Step::Watch(events, began_at) => self.watch(events, began_at).await,
        }
    }

    /// Notes that all objects of the list were reported, after which `next` follows.
    fn listed(&mut self, version: String, next: Step<W>) -> Signal<O> {
        self.version = version;
        self.was_cut = false;
        self.step = next;
        Signal::ListEnds
    }

    async fn resume(&mut self) -> Option<Signal<O>> {
        // A restored etcd is older, and a watch of a version that it does not have yet reports no changes
        // until then.
        if self.was_cut {
            let request = self.get(&[("limit", "1")]).header(ACCEPT, METADATA);
            match requests::list::<IgnoredAny>(&self.target.client, request).await {
                Ok(list) if self.is_newer_than(list.metadata.resource_version.as_ref()) => {
                    return self.relist(Signal::WentBack);
                }
                Ok(_) => {}
                Err(error) => return self.failed(&error, Step::Resume),
            }
        }
        let version = self.version.clone();
        match self.events(&[("resourceVersion", &version)]).await {
            Ok(events) => self.step = Step::Watch(events, Instant::now()),
            Err(error) => return self.failed(&error, Step::Resume),
        }
        None
    }

    async fn watch(&mut self, mut events: Events<W>, began_at: Instant) -> Option<Signal<O>> {
        let next = timeout(IDLE_MAX, events.next()).await;
        let lived = began_at.elapsed();
        if lived >= STABLE_MIN {
            self.delay.reset();
        }
        let event = match next {
            Ok(Some(event)) => event,
            Ok(None) | Err(_) => return self.ended(lived),
        };
        let (version, signal) = match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                let version = object.metadata().resource_version.clone();
                (version, self.object(object, false))
            }
            Ok(WatchEvent::Deleted(object)) => {
                let version = object.metadata().resource_version.clone();
                (version, deleted(&object))
            }
            Ok(WatchEvent::Bookmark(it)) => (Some(it.metadata.resource_version), Signal::Bookmark),
            Ok(WatchEvent::Error(status)) => {
                return self.failed(&kube::Error::Api(status), Step::Resume);
            }
            Err(error) => return self.failed(&error, Step::Resume),
        };
        // The events of a watch are ordered by version, unless etcd was restored.
        if self.is_newer_than(version.as_ref()) {
            return self.relist(Signal::WentBack);
        }
        let Some(version) = version.filter(|it| !it.is_empty()) else {
            return self.restart("an event has no resourceVersion".into());
        };
        self.version = version;
        self.step = Step::Watch(events, began_at);
        Some(signal)
    }

    /// Returns whether a version of the server is lower than that of the watch. Some API servers have
    /// versions that are no numbers; these cannot be compared.
    fn is_newer_than(&self, version: Option<&String>) -> bool {
        let version = version.and_then(|it| it.parse::<u64>().ok());
        let own = self.version.parse().ok();
        version.zip(own).is_some_and(|(version, own)| version < own)
    }

    fn object(&self, object: W, is_listed: bool) -> Signal<O> {
        let object = (self.convert)(object);
        Signal::Object { object, is_listed }
    }

    /// Notes that the server has ended a watch, which every server does from time to time.
    fn ended(&mut self, lived: Duration) -> Option<Signal<O>> {
        self.was_cut = lived < self.requested;
        self.step = Step::Resume;
        (lived < STABLE_MIN).then(|| {
            self.delay.failed(0);
            Signal::Failed("the server has ended the watch".into())
        })
    }

    fn restart(&mut self, reason: String) -> Option<Signal<O>> {
        self.relist(Signal::Failed(reason))
    }

    /// Begins with a list after a delay.
    fn relist(&mut self, signal: Signal<O>) -> Option<Signal<O>> {
        self.step = Step::Begin;
        self.delay.failed(Arc::strong_count(&self.target.siblings));
        Some(signal)
    }

    /// Notes an error, after which `next` follows unless a list is needed. Returns no signal if only the
    /// credentials were replaced: then the request is repeated without delay.
    fn failed(&mut self, error: &kube::Error, next: Step<W>) -> Option<Signal<O>> {
        self.was_cut = true;
        if cause::<ReplacedError>(error).is_some() {
            self.step = next;
            return None;
        }
        let (code, message) = refusal(error);
        if code.is_some_and(|code| REFUSALS.contains(&code)) {
            self.delay.refused(self.target.refused_delay);
            return Some(Signal::Refused(message));
        }
        let is_list = matches!(next, Step::Begin);
        // A list names no version, so its error concerns a server that lags behind its etcd.
        if !is_list && message.contains("Too large resource version") {
            return self.relist(Signal::WentBack);
        }
        // Only pages have fewer bytes if they have fewer objects.
        let limit = cause::<LimitError>(error);
        let is_too_long = is_list && limit.is_some_and(|it| *it != LimitError::Line);
        if is_too_long {
            self.page_size = (self.page_size / 4).max(PAGE_SIZE_MIN);
        }
        // An event that cannot be read may be a change.
        let is_lost = is_too_long || matches!(error, kube::Error::SerdeError(_));
        if is_lost || is_list || code == Some(410) {
            return self.restart(message);
        }
        self.step = next;
        self.delay.failed(0);
        Some(Signal::Failed(message))
    }
}

fn deleted<W: Watched, O>(object: &W) -> Signal<O> {
    let metadata = object.metadata();
    let version = metadata.resource_version.as_ref();
    Signal::Deleted {
        key: key_of(metadata),
        uid: metadata.uid.clone().unwrap_or_default(),
        version: version.and_then(|it| it.parse().ok()),
    }
}

#[cfg(test)]
mod tests;
