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

use super::failure::{Delay, code, message};
use super::{Signal, WatchId};
use crate::entry::{DecodeError, Decoded, Entry, Source};
use control_client::cause::cause;
use control_client::object::{Key, Ref};
use control_client::transport::{LimitError, ReplacedError};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use kube::Client;
use kube::api::{ListParams, ObjectList, WatchEvent, WatchParams};
use kube::core::Request;
use serde::de::IgnoredAny;
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

/// Time after which the server ends a watch, in seconds. kube-apiserver itself chooses 30 to 60 minutes.
const WATCH_SECONDS: u32 = 290;

/// Longest time without event, after which a watch is taken for dead.
const IDLE_MAX: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);

/// Duration of a watch after which delays begin with the shortest again. Longer than the longest delay, so a
/// server whose watches fail at once gets few requests.
const STABLE_MIN: Duration = Duration::from_secs(30);

/// Not found, and forbidden.
const REFUSALS: [u16; 2] = [404, 403];

/// Starts a watch whose objects are converted by `entry`. One that is optional and refused is repeated
/// rarely. All watches of a cluster share `siblings`.
pub(crate) fn stream<K: Source>(
    client: Client,
    id: WatchId,
    is_optional: bool,
    siblings: Arc<()>,
    entry: impl Fn(Decoded<K>) -> Result<Entry, DecodeError> + Clone + Send + 'static,
) -> BoxStream<'static, Signal> {
    let state = State {
        client,
        id,
        is_optional,
        siblings,
        step: Step::Begin,
        page_size: PAGE_SIZE,
        delay: Delay::default(),
        entry,
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

struct State<K: Source, F> {
    client: Client,
    id: WatchId,
    is_optional: bool,
    siblings: Arc<()>,
    step: Step<K>,
    page_size: u32,
    delay: Delay,
    entry: F,
}

#[derive(Default)]
enum Step<K> {
    #[default]
    Begin,
    List(List<K>),
    Resume(Position),
    Watch(Watch<K>),
}

struct List<K> {
    /// Objects of the present page that were not reported yet.
    page: std::vec::IntoIter<Decoded<K>>,
    continue_token: Option<String>,
    /// Version of the list; `None` before the last page.
    version: Option<String>,
    ends_by: Instant,
}

/// Where a watch resumes.
struct Position {
    /// Version of the list, of the last event, or of the last bookmark.
    version: String,
    /// Whether the watch was interrupted, so that etcd may have been restored meanwhile.
    was_cut: bool,
}

type Events<K> = BoxStream<'static, kube::Result<WatchEvent<Decoded<K>>>>;

struct Watch<K> {
    events: Events<K>,
    version: String,
    began_at: Instant,
}

impl<K: Source, F: Fn(Decoded<K>) -> Result<Entry, DecodeError>> State<K, F> {
    /// Does the next step. Returns no signal if there is nothing to report.
    async fn advance(&mut self) -> Option<Signal> {
        match mem::take(&mut self.step) {
            Step::Begin => {
                self.step = Step::List(List {
                    page: Vec::new().into_iter(),
                    continue_token: None,
                    version: None,
                    ends_by: Instant::now() + LIST_MAX,
                });
                Some(Signal::ListBegins)
            }
            Step::List(list) => self.list(list).await,
            Step::Resume(position) => self.resume(position).await,
            Step::Watch(watch) => self.watch(watch).await,
        }
    }

    async fn list(&mut self, mut list: List<K>) -> Option<Signal> {
        if let Some(object) = list.page.next() {
            self.step = Step::List(list);
            return Some(self.decode(object, true));
        }
        if let Some(version) = list.version {
            let was_cut = false;
            self.step = Step::Resume(Position { version, was_cut });
            return Some(Signal::ListEnds);
        }
        let mut params = self.list_params(self.page_size);
        params.continue_token = list.continue_token.take();
        let request = self.path().list(&params);
        let page = async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.client.request::<ObjectList<Decoded<K>>>(request).await
        };
        // Pages may have no objects, so the number of objects does not limit that of pages.
        let page = match timeout_at(list.ends_by, page).await {
            Ok(Ok(page)) => page,
            Ok(Err(error)) => return self.failed(&error, Step::Begin),
            Err(_) => return Some(self.restart(format!("the list is longer than {LIST_MAX:?}"))),
        };
        list.continue_token = page.metadata.continue_.filter(|it| !it.is_empty());
        if list.continue_token.is_none() {
            list.version = page.metadata.resource_version.filter(|it| !it.is_empty());
            if list.version.is_none() {
                return Some(self.restart("the list has no resourceVersion".into()));
            }
        }
        list.page = page.items.into_iter();
        self.step = Step::List(list);
        None
    }

    async fn resume(&mut self, position: Position) -> Option<Signal> {
        let events = match self.start(&position).await {
            Ok(Some(events)) => events,
            Ok(None) => return Some(self.went_back()),
            Err(error) => return self.failed(&error, resume(position.version)),
        };
        self.step = Step::Watch(Watch {
            events,
            version: position.version,
            began_at: Instant::now(),
        });
        None
    }

    /// Starts a watch; returns `None` if the history went back. A restored etcd is older, and a watch of a
    /// version that it does not have yet reports no changes until then.
    async fn start(&mut self, position: &Position) -> kube::Result<Option<Events<K>>> {
        if position.was_cut {
            let request = self.path().list_metadata(&self.list_params(1));
            let request = request.map_err(kube::Error::BuildRequest)?;
            let list: ObjectList<IgnoredAny> = self.client.request(request).await?;
            let present = list.metadata.resource_version.unwrap_or_default();
            if is_older(&present, &position.version) {
                return Ok(None);
            }
        }
        let request = self.path().watch(&self.watch_params(), &position.version);
        let request = request.map_err(kube::Error::BuildRequest)?;
        Ok(Some(self.client.request_events(request).await?.boxed()))
    }

    async fn watch(&mut self, mut watch: Watch<K>) -> Option<Signal> {
        let next = timeout(IDLE_MAX, watch.events.next()).await;
        let lived = watch.began_at.elapsed();
        if lived >= STABLE_MIN {
            self.delay.reset();
        }
        let event = match next {
            Ok(Some(Ok(event))) => event,
            Ok(Some(Err(error))) => return self.failed(&error, resume(watch.version)),
            Ok(None) | Err(_) => return self.ended(watch.version, lived),
        };
        let (version, signal) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let version = object.metadata.resource_version.clone();
                (version.unwrap_or_default(), self.decode(object, false))
            }
            WatchEvent::Deleted(object) => {
                let key = object.key();
                let version = object.metadata.resource_version.unwrap_or_default();
                let deleted = Signal::Deleted {
                    key,
                    uid: object.metadata.uid.unwrap_or_default(),
                    version: version.parse().ok(),
                };
                (version, deleted)
            }
            WatchEvent::Bookmark(bookmark) => {
                (bookmark.metadata.resource_version, Signal::Bookmark)
            }
            WatchEvent::Error(status) => {
                return self.failed(&kube::Error::Api(status), resume(watch.version));
            }
        };
        if version.is_empty() {
            return Some(self.restart("an event has no resourceVersion".into()));
        }
        // The events of a watch are ordered by version, unless etcd was restored.
        if is_older(&version, &watch.version) {
            return Some(self.went_back());
        }
        watch.version = version;
        self.step = Step::Watch(watch);
        Some(signal)
    }

    fn decode(&self, object: Decoded<K>, is_listed: bool) -> Signal {
        match (self.entry)(object) {
            Ok(entry) => Signal::Object { entry, is_listed },
            Err(error) => Signal::Invalid { error, is_listed },
        }
    }

    /// Notes that the server has ended a watch, which every server does from time to time.
    fn ended(&mut self, version: String, lived: Duration) -> Option<Signal> {
        if lived < STABLE_MIN {
            self.back_off(resume(version));
            return Some(Signal::Failed("the server has ended the watch".into()));
        }
        let was_cut = lived < Duration::from_secs(WATCH_SECONDS.into());
        self.step = Step::Resume(Position { version, was_cut });
        None
    }

    /// Begins with a list after a delay.
    fn restart(&mut self, reason: String) -> Signal {
        self.back_off(Step::Begin);
        Signal::Failed(reason)
    }

    fn went_back(&mut self) -> Signal {
        self.back_off(Step::Begin);
        Signal::WentBack
    }

    fn back_off(&mut self, step: Step<K>) {
        let is_list = matches!(step, Step::Begin);
        let watches = Arc::strong_count(&self.siblings);
        self.delay.failed(if is_list { watches } else { 0 });
        self.step = step;
    }

    /// Notes an error, after which `next` follows unless a list is needed. Returns no signal if only the
    /// credentials were replaced: then the request is repeated without delay.
    fn failed(&mut self, error: &kube::Error, next: Step<K>) -> Option<Signal> {
        if cause::<ReplacedError>(error).is_some() {
            self.step = next;
            return None;
        }
        let (code, message) = (code(error), message(error));
        if code.is_some_and(|code| REFUSALS.contains(&code)) {
            self.delay.refused(self.is_optional);
            return Some(Signal::Refused(message));
        }
        if message.contains("Too large resource version") {
            return Some(self.went_back());
        }
        let is_too_long = cause::<LimitError>(error) == Some(&LimitError::Body);
        if is_too_long {
            self.page_size = (self.page_size / 4).max(PAGE_SIZE_MIN);
        }
        // An event that cannot be read may be a change.
        let is_lost =
            is_too_long || code == Some(410) || matches!(error, kube::Error::SerdeError(_));
        self.back_off(if is_lost { Step::Begin } else { next });
        Some(Signal::Failed(message))
    }

    fn path(&self) -> Request {
        let key = Key::new(self.id.namespace.clone().unwrap_or_default(), "");
        let all = Ref::new(&self.id.cluster, &self.id.resource, &key);
        Request::new(all.path(None, &[]))
    }

    fn watch_params(&self) -> WatchParams {
        let selector = &self.id.selector;
        let name = selector.name.as_ref();
        WatchParams {
            label_selector: Some(selector.labels.clone()).filter(|it| !it.is_empty()),
            field_selector: name.map(|name| format!("metadata.name={name}")),
            timeout: Some(WATCH_SECONDS),
            ..WatchParams::default()
        }
    }

    fn list_params(&self, limit: u32) -> ListParams {
        let params = self.watch_params();
        ListParams {
            label_selector: params.label_selector,
            field_selector: params.field_selector,
            limit: Some(limit),
            ..ListParams::default()
        }
    }
}

/// Returns the step that resumes an interrupted watch.
fn resume<K>(version: String) -> Step<K> {
    let was_cut = true;
    Step::Resume(Position { version, was_cut })
}

/// Returns whether a version is older than another one. Some API servers have versions that are no numbers;
/// these cannot be compared.
fn is_older(version: &str, than: &str) -> bool {
    let [version, than] = [version, than].map(|it| it.parse::<u64>().ok());
    version
        .zip(than)
        .is_some_and(|(version, than)| version < than)
}

#[cfg(test)]
mod tests;
