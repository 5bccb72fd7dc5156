//! Lists the objects of a resource, and watches their changes.
//!
//! ```text
//!   +-------- 410, 403, 404, versions went back -------+
//!   v                                                  |
//! Begin ---> List --last page--> Resume ---> Watch ----+
//!                                  ^           |
//!                                  +-- ended --+
//! ```
//!
//! kube's watcher hides the version of bookmarks, at which it resumes, and resumes a watch that has
//! ended without delay. Here an interrupted watch compares that version with the server's before it
//! resumes, and every repetition has a delay.

use super::failure::{Delay, refusal};
use super::{Signal, WatchId, Watched};
use crate::backoff;
use crate::cause::cause;
use crate::object::{Key, Ref, key_of};
use crate::transport::{LimitError, ReplacedError};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::header::ACCEPT;
use kube::Client;
use kube::api::{ObjectList, WatchEvent};
use serde::de::{DeserializeOwned, IgnoredAny};
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Objects per page of a list. Bounds the memory of a list's response.
const PAGE_SIZE: u32 = 500;

/// Smallest number of objects per page: a response holds this number of the largest objects that
/// kube-apiserver stores (3 MiB).
const PAGE_SIZE_MIN: u32 = 8;

/// Longest list, over all its pages. kube-apiserver refuses to continue a list after 5 to 10 minutes, when
/// etcd has compacted the version of its first page. Ends lists of a hostile server without last page.
const LIST_MAX: Duration = Duration::from_secs(600);

/// Shortest time after which the server ends a watch. It is up to twice as long at random, so that watches that began
/// together do not end together.
const WATCH_MIN: Duration = Duration::from_secs(290);

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
    /// A watch that is optional and refused is repeated rarely.
    pub is_optional: bool,
    /// All watches of a cluster share it, and so know their number.
    pub siblings: Arc<()>,
}

/// Starts a watch whose objects are converted by `convert`.
pub fn stream<W: Watched, O: Send + 'static>(
    target: Target,
    convert: impl Fn(W) -> O + Send + 'static,
) -> BoxStream<'static, Signal<O>> {
    let state = State {
        target,
        step: Step::Begin,
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
    List(List<W>),
    Resume,
    /// A watch, and since when it runs.
    Watch(Events<W>, Instant),
}

struct List<W> {
    /// Objects of the present page that were not reported yet.
    page: std::vec::IntoIter<W>,
    /// Token of the next page, empty for the first one; `None` after the last one.
    next: Option<String>,
    ends_by: Instant,
}

type Events<W> = BoxStream<'static, kube::Result<WatchEvent<W>>>;

impl<W: Watched, O, F: Fn(W) -> O> State<W, F> {
    /// Does the next step. Returns no signal if there is nothing to report.
    async fn advance(&mut self) -> Option<Signal<O>> {
        match mem::take(&mut self.step) {
            Step::Begin => {
                self.step = Step::List(List {
                    page: Vec::new().into_iter(),
                    next: Some(String::new()),
                    ends_by: Instant::now() + LIST_MAX,
                });
                Some(Signal::ListBegins)
            }
            Step::List(list) => self.list(list).await,
            Step::Resume => self.resume().await,
            Step::Watch(events, began_at) => self.watch(events, began_at).await,
        }
    }

    async fn list(&mut self, mut list: List<W>) -> Option<Signal<O>> {
        if let Some(object) = list.page.next() {
            self.step = Step::List(list);
            return Some(self.object(object, true));
        }
        let Some(token) = list.next else {
            self.was_cut = false;
            self.step = Step::Resume;
            return Some(Signal::ListEnds);
        };
        let limit = self.page_size.to_string();
        let request = self.get(&[("limit", &limit), ("continue", &token)]);
        let page = self::list(&self.target.client, request);
        // Pages may have no objects, so the number of objects does not limit that of pages.
        let page = match timeout_at(list.ends_by, page).await {
            Ok(Ok(page)) => page,
            Ok(Err(error)) => return self.failed(&error, Step::Begin),
            Err(_) => return self.restart(format!("the list is longer than {LIST_MAX:?}")),
        };
        self.version = page.metadata.resource_version.unwrap_or_default();
        list.next = page.metadata.continue_.filter(|it| !it.is_empty());
        if list.next.is_none() && self.version.is_empty() {
            return self.restart("the list has no resourceVersion".into());
        }
        list.page = page.items.into_iter();
        self.step = Step::List(list);
        None
    }

    async fn resume(&mut self) -> Option<Signal<O>> {
        // A restored etcd is older, and a watch of a version that it does not have yet reports no changes
        // until then.
        if self.was_cut {
            let request = self.get(&[("limit", "1")]).header(ACCEPT, METADATA);
            match list::<IgnoredAny>(&self.target.client, request).await {
                Ok(list) if self.is_newer_than(list.metadata.resource_version.as_ref()) => {
                    return self.relist(Signal::WentBack);
                }
                Ok(_) => {}
                Err(error) => return self.failed(&error, Step::Resume),
            }
        }
        let seconds = WATCH_MIN.mul_f64(1.0 + backoff::random()).as_secs();
        self.requested = Duration::from_secs(seconds);
        let request = self.get(&[
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &seconds.to_string()),
            ("resourceVersion", &self.version),
        ]);
        let events = async {
            let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
            self.target.client.request_events(request).await
        };
        match events.await {
            Ok(events) => self.step = Step::Watch(events.boxed(), Instant::now()),
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
                let metadata = object.metadata();
                let version = metadata.resource_version.clone();
                let deleted = Signal::Deleted {
                    key: key_of(metadata),
                    uid: metadata.uid.clone().unwrap_or_default(),
                    version: version.as_ref().and_then(|it| it.parse().ok()),
                };
                (version, deleted)
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
            self.delay.refused(self.target.is_optional);
            return Some(Signal::Refused(message));
        }
        if message.contains("Too large resource version") {
            return self.relist(Signal::WentBack);
        }
        let is_list = matches!(next, Step::Begin);
        let is_too_long = is_list && cause::<LimitError>(error).is_some();
        if is_too_long {
            self.page_size = (self.page_size / 4).max(PAGE_SIZE_MIN);
        }
        // An event that cannot be read may be a change.
        let is_lost = is_too_long || matches!(error, kube::Error::SerdeError(_));
        if is_lost || code == Some(410) || matches!(next, Step::Begin) {
            return self.restart(message);
        }
        self.step = next;
        self.delay.failed(0);
        Some(Signal::Failed(message))
    }

    /// Returns a request for the selected objects, with these parameters.
    fn get(&self, parameters: &[(&str, &str)]) -> http::request::Builder {
        let id = &self.target.id;
        let key = Key::new(id.namespace.as_deref().unwrap_or_default(), "");
        let name = id.selector.name.as_ref();
        let name = name.map(|name| format!("metadata.name={name}"));
        let selectors = [
            ("labelSelector", id.selector.labels.as_str()),
            ("fieldSelector", name.as_deref().unwrap_or_default()),
        ];
        let mut query = [parameters, &selectors].concat();
        query.retain(|(_, value)| !value.is_empty());
        http::Request::get(Ref::new(&id.cluster, &id.resource, &key).path(None, &query))
    }
}

async fn list<T: Clone + DeserializeOwned>(
    client: &Client,
    request: http::request::Builder,
) -> kube::Result<ObjectList<T>> {
    let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}

#[cfg(test)]
mod tests;
