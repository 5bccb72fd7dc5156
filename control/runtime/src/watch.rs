//! Watches, as streams of signals that never end.
//!
//! kube's watcher lists in pages, resumes at the last resource version (bookmarks keep it recent)
//! and lists again after 410. This module adds what it does not do: backoff with jitter, a new list
//! when the server's history went back (a restored etcd), and objects that cannot be decoded.

use crate::entry::{DecodeError, Decoded, Entry, Source};
use crate::selector::Selector;
use control_client::cause::cause;
use control_client::object::{Cluster, Key, Resource};
use control_client::transport::{LimitError, ReplacedError};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use kube::Client;
use kube::api::{Api, ListParams};
use kube::runtime::watcher::{self, Event};
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

mod failure;

pub(crate) use failure::shortened;

use failure::{Delay, message, status};

/// Objects per page of a list. Bounds the memory of a list's response.
const PAGE_SIZE: u32 = 500;

/// Smallest number of objects per page: a response holds this number of the largest objects that
/// kube-apiserver stores (3 MiB).
const PAGE_SIZE_MIN: u32 = 8;

/// Longest list, over all its pages. kube-apiserver refuses to continue a list after 5 to 10 minutes, when
/// etcd has compacted the version of its first page. Ends lists of a hostile server without last page.
const LIST_MAX: Duration = Duration::from_secs(600);

/// Not found, and forbidden.
const REFUSALS: [u16; 2] = [404, 403];

/// Identity of a watch: two plans that name the same watch share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId {
    /// Cluster that is watched.
    pub cluster: Cluster,
    /// Resource that is watched.
    pub resource: Resource,
    /// Namespace; `None` for all namespaces.
    pub namespace: Option<String>,
    /// Which objects are watched.
    pub selector: Selector,
}

impl WatchId {
    /// Returns whether the watch reports the object of this key, if the object has the selected
    /// labels.
    pub fn covers(&self, key: &Key) -> bool {
        let namespace = self.namespace.as_ref();
        namespace.is_none_or(|namespace| *namespace == key.namespace)
            && (self.selector.name.as_ref()).is_none_or(|name| *name == key.name)
    }
}

impl fmt::Display for WatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.resource)?;
        if let Some(name) = &self.selector.name {
            write!(f, "/{name}")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        if self.cluster != Cluster::Local {
            write!(f, " of cluster {}", self.cluster)?;
        }
        Ok(())
    }
}

/// An event of a watch.
#[derive(Debug)]
pub(crate) enum Signal {
    /// A list begins. Objects that it does not contain were deleted.
    ListBegins,
    /// The list is complete.
    ListEnds,
    /// An object is in a list, or was created or changed.
    Object { entry: Entry, is_listed: bool },
    /// The object with this UID was deleted, at this version.
    Deleted {
        key: Key,
        uid: String,
        version: Option<u64>,
    },
    /// An object cannot be decoded. `is_listed`: whether the object was in a list.
    Invalid { error: DecodeError, is_listed: bool },
    /// The server's history went back: all watches of the cluster must list again.
    WentBack,
    /// The server refuses the watch: the resource or the right is missing.
    Refused(String),
    /// A request failed, and is repeated.
    Failed(String),
}

/// Starts a watch whose objects are converted by `entry`. One that is optional and refused is repeated
/// rarely.
pub(crate) fn stream<K: Source>(
    client: Client,
    id: WatchId,
    is_optional: bool,
    entry: impl Fn(Decoded<K>) -> Result<Entry, DecodeError> + Clone + Send + 'static,
) -> BoxStream<'static, Signal> {
    let state = State {
        client,
        id,
        is_optional,
        events: None,
        page_size: PAGE_SIZE,
        list_ends_by: None,
        delay: Delay::default(),
        newest: None,
        highest: None,
        was_cut: false,
        entry,
    };
    stream::unfold(state, |mut state| async move {
        let signal = state.next().await;
        Some((signal, state))
    })
    .boxed()
}

type Events<K> = BoxStream<'static, watcher::Result<Event<Decoded<K>>>>;

struct State<K, F> {
    client: Client,
    id: WatchId,
    is_optional: bool,
    events: Option<Events<K>>,
    page_size: u32,
    /// When the list in progress fails; `None` if there is none.
    list_ends_by: Option<Instant>,
    delay: Delay,
    /// Highest version in an event since the last list.
    newest: Option<u64>,
    /// Highest version of an object or list that was seen.
    highest: Option<u64>,
    /// Whether the watch was interrupted since its history was compared.
    was_cut: bool,
    entry: F,
}

impl<K: Source, F: Fn(Decoded<K>) -> Result<Entry, DecodeError>> State<K, F> {
    async fn next(&mut self) -> Signal {
        loop {
            if let Some(signal) = self.advance().await {
                return signal;
            }
        }
    }

    /// Returns the next signal; `None` if the request is to be repeated at once.
    async fn advance(&mut self) -> Option<Signal> {
        self.delay.wait().await;
        if self.was_cut && self.events.is_some() {
            match self.compare_history().await {
                Ok(true) => {
                    self.events = None;
                    return Some(Signal::WentBack);
                }
                Ok(false) => {}
                Err(error) => return self.failure(&error),
            }
        }
        let events = match &mut self.events {
            Some(events) => events,
            None => {
                let events = events(&self.client, &self.id, self.page_size);
                self.events.insert(events)
            }
        };
        let next = match self.list_ends_by {
            // Pages without objects are no events.
            Some(end) => timeout_at(end, events.next()).await,
            None => Ok(events.next().await),
        };
        match next {
            Ok(Some(Ok(event))) => Some(self.signal(event)),
            Ok(Some(Err(error))) => self.failure(&error),
            Ok(None) => Some(self.restart("the watch has ended".into())),
            Err(_) => Some(self.restart(format!("the list is longer than {LIST_MAX:?}"))),
        }
    }

    /// Gives up the requests in progress, to begin with a list after a delay.
    fn restart(&mut self, reason: String) -> Signal {
        self.events = None;
        self.delay.failed();
        Signal::Failed(reason)
    }

    fn signal(&mut self, event: Event<Decoded<K>>) -> Signal {
        // A list begins before its first request, so `Init` is no response of the server.
        if !matches!(event, Event::Init) {
            self.delay = Delay::default();
        }
        if let Event::Apply(object) | Event::Delete(object) = &event
            && self.went_back(object)
        {
            return Signal::WentBack;
        }
        match event {
            Event::Init => {
                self.newest = None;
                self.list_ends_by = Some(Instant::now() + LIST_MAX);
                Signal::ListBegins
            }
            Event::InitApply(object) => {
                self.highest = self.highest.max(version(&object));
                self.decode(object, true)
            }
            Event::InitDone => {
                self.list_ends_by = None;
                Signal::ListEnds
            }
            Event::Apply(object) => self.decode(object, false),
            Event::Delete(object) => Signal::Deleted {
                key: object.key(),
                uid: object.metadata.uid.unwrap_or_default(),
                version: self.newest,
            },
        }
    }

    fn decode(&self, object: Decoded<K>, is_listed: bool) -> Signal {
        match (self.entry)(object) {
            Ok(entry) => Signal::Object { entry, is_listed },
            Err(error) => Signal::Invalid { error, is_listed },
        }
    }

    /// Returns whether an event is older than one before it, which only a restored etcd causes: the
    /// events of a watch are ordered by version.
    fn went_back(&mut self, object: &Decoded<K>) -> bool {
        let version = version(object);
        let went_back = version < self.newest;
        self.highest = self.highest.max(version);
        if went_back {
            self.events = None;
        }
        self.newest = version;

        went_back
    }

    /// Compares the version of the resource with the highest one that was seen, before an interrupted
    /// watch is resumed; returns whether it went back. A restored etcd is older, and a watch of a
    /// version that it does not have yet reports no changes until then.
    async fn compare_history(&mut self) -> Result<bool, watcher::Error> {
        let selector = &self.id.selector;
        let mut params = ListParams::default().limit(1).labels(&selector.labels);
        if let Some(name) = &selector.name {
            params = params.fields(&format!("metadata.name={name}"));
        }
        let api = api::<K>(&self.client, &self.id);
        let list = api.list_metadata(&params).await;
        let list = list.map_err(watcher::Error::InitialListFailed)?;
        let version = list.metadata.resource_version;
        let version = version.and_then(|it| it.parse().ok());
        if version < self.highest {
            return Ok(true);
        }
        self.highest = version;
        self.was_cut = false;
        Ok(false)
    }

    /// Notes an error. Returns no signal if only the credentials were replaced: then the request is
    /// repeated without delay.
    fn failure(&mut self, error: &watcher::Error) -> Option<Signal> {
        if cause::<ReplacedError>(error).is_some() {
            self.was_cut = true;
            return None;
        }
        let status = status(error);
        if status.is_some_and(|(code, _)| REFUSALS.contains(&code)) {
            self.events = None;
            self.delay.refused(self.is_optional);
            return Some(Signal::Refused(message(error)));
        }
        self.delay.failed();
        self.was_cut = true;
        let is_list = matches!(error, watcher::Error::InitialListFailed(_));
        if is_list && cause::<LimitError>(error).is_some() {
            self.page_size = (self.page_size / 4).max(PAGE_SIZE_MIN);
            self.events = None;
        }
        // kube's watcher would continue after an event that it cannot read, and so lose a change.
        if let watcher::Error::WatchFailed(kube::Error::SerdeError(_)) = error {
            self.events = None;
        }
        // kube's watcher would repeat the watch at the same version forever.
        if let (watcher::Error::WatchStartFailed(_), Some((code, text))) = (error, status) {
            if code == 410 {
                self.events = None;
            } else if text.contains("Too large resource version") {
                self.events = None;
                return Some(Signal::WentBack);
            }
        }

        Some(Signal::Failed(message(error)))
    }
}

fn events<K: Source>(client: &Client, id: &WatchId, page_size: u32) -> Events<K> {
    let mut config = watcher::Config::default().page_size(page_size);
    if !id.selector.labels.is_empty() {
        config = config.labels(&id.selector.labels);
    }
    if let Some(name) = &id.selector.name {
        config = config.fields(&format!("metadata.name={name}"));
    }

    watcher::watcher(api::<K>(client, id), config).boxed()
}

fn api<K: Clone + fmt::Debug>(client: &Client, id: &WatchId) -> Api<Decoded<K>> {
    let resource = id.resource.api_resource();
    match &id.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

fn version<K>(object: &Decoded<K>) -> Option<u64> {
    object.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registration::{Registration, Scope};

    #[test]
    fn a_watch_covers_its_namespace_and_name() {
        let mut id = WatchId {
            cluster: Cluster::Local,
            resource: Resource::of::<k8s_openapi::api::core::v1::Secret>(),
            namespace: None,
            selector: Selector::default(),
        };
        assert!(id.covers(&Key::new("a", "b")));

        id.namespace = Some("liqo".into());
        assert!(!id.covers(&Key::new("a", "b")));
        id.selector.name = Some("keys".into());
        assert!(id.covers(&Key::new("liqo", "keys")));
        assert!(!id.covers(&Key::new("liqo", "b")));
        assert_eq!(id.to_string(), "secrets/keys in namespace liqo");
    }

    /// Returns a watch of Secrets whose requests `reply` answers, each after 10 s.
    fn watch(
        reply: impl Fn(&str) -> String + Clone + Send + 'static,
    ) -> BoxStream<'static, Signal> {
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let body = reply(&request.uri().to_string());
            async move {
                tokio::time::sleep(Duration::from_secs(10)).await;
                let response = http::Response::new(kube::client::Body::from(body.into_bytes()));
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        let registration = Registration::whole::<k8s_openapi::api::core::v1::Secret>(Scope::All);
        let id = registration.watch_id().expect("a watch");
        let client = Client::new(service, "default");
        registration.form.watch(client, id, false)
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_without_last_page_fails_after_its_longest_duration() {
        let page = r#"{"metadata": {"resourceVersion": "1", "continue": "more"}, "items": []}"#;
        let mut signals = watch(|_| page.to_owned());
        let began = Instant::now();

        assert!(matches!(signals.next().await, Some(Signal::ListBegins)));
        let Some(Signal::Failed(reason)) = signals.next().await else {
            panic!("the list has no end");
        };

        assert_eq!(began.elapsed(), LIST_MAX);
        assert!(reason.contains("600s"), "{reason}");
        assert!(matches!(signals.next().await, Some(Signal::ListBegins)));
    }
}
