//! Watches, as streams of signals that never end.
//!
//! kube's watcher lists in pages, resumes at the last resource version (bookmarks keep it recent)
//! and lists again after 410. This module adds what it does not do: backoff with jitter, a new list
//! when the server's history went back (a restored etcd), and objects that cannot be decoded.

use crate::entry::{DecodeError, Decoded, Entry, Source};
use crate::registration::Selector;
use control_client::backoff::{self, Backoff};
use control_client::cause::chain;
use control_client::object::{Cluster, Key, Resource};
use control_client::transport::{ReplacedError, cause};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use kube::Client;
use kube::api::{Api, ListParams};
use kube::runtime::watcher::{self, Event};
use std::fmt;
use std::time::Duration;

/// Objects per page of a list. Bounds the memory of a list's response.
const PAGE_SIZE: u32 = 500;

/// Longest delay after the server has refused the watch: the resource or the right is missing, which only
/// an administrator changes.
const REFUSED_DELAY: Duration = Duration::from_secs(60);

/// Delay after the server has refused a watch that no controller requires: most clusters lack the
/// resource, and every node may ask for it.
const OPTIONAL_DELAY: Duration = Duration::from_secs(600);

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

/// What a watch reports.
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
    /// An object cannot be decoded. `is_listed` tells whether it was in a list.
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
            None => self.events.insert(events(&self.client, &self.id)),
        };
        match events.next().await {
            Some(Ok(event)) => Some(self.signal(event)),
            Some(Err(error)) => self.failure(&error),
            None => {
                self.events = None;
                Some(Signal::Failed("the watch has ended".into()))
            }
        }
    }

    fn signal(&mut self, event: Event<Decoded<K>>) -> Signal {
        // A list begins before its first request, so `Init` is no response of the server.
        if !matches!(event, Event::Init) {
            self.delay = Delay::default();
        }
        match event {
            Event::Init => {
                self.newest = None;
                Signal::ListBegins
            }
            Event::InitApply(object) => {
                self.highest = self.highest.max(version(&object));
                self.decode(object, true)
            }
            Event::InitDone => Signal::ListEnds,
            Event::Apply(object) => {
                if self.went_back(&object) {
                    return Signal::WentBack;
                }
                self.decode(object, false)
            }
            Event::Delete(object) => {
                if self.went_back(&object) {
                    return Signal::WentBack;
                }
                Signal::Deleted {
                    key: object.key(),
                    uid: object.metadata.uid.unwrap_or_default(),
                    version: self.newest,
                }
            }
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

fn events<K: Source>(client: &Client, id: &WatchId) -> Events<K> {
    let mut config = watcher::Config::default().page_size(PAGE_SIZE);
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

/// Returns code and message of the server's response.
fn status(error: &watcher::Error) -> Option<(u16, &str)> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => {
            Some((status.code, &status.message))
        }
        watcher::Error::WatchError(status) => Some((status.code, &status.message)),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => None,
    }
}

/// Returns the server's message, or the error without the debug output that follows it.
fn message(error: &watcher::Error) -> String {
    match status(error) {
        Some((code, text)) if !text.is_empty() => format!("{text} (status {code})"),
        Some((code, _)) => format!("status {code}"),
        None => chain(error),
    }
}

/// Delay before the next request, after errors.
#[derive(Debug, Default)]
struct Delay {
    failures: u32,
    next: Duration,
}

impl Delay {
    async fn wait(&mut self) {
        let delay = std::mem::take(&mut self.next);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    fn failed(&mut self) {
        self.next = Backoff::REQUEST.delay(self.failures, backoff::random());
        self.failures = self.failures.saturating_add(1);
    }

    /// The right may be granted a moment later, so the delay grows from the shortest one.
    fn refused(&mut self, is_optional: bool) {
        let min = if is_optional {
            OPTIONAL_DELAY
        } else {
            Backoff::REQUEST.min
        };
        let max = min.max(REFUSED_DELAY);
        self.next = Backoff { min, max }.delay(self.failures, backoff::random());
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
