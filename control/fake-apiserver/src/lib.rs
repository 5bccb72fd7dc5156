//! An API server in memory for tests, with a real socket, which can stop and continue.
//!
//! It speaks HTTP/1.1, and HTTP/2 if it is started with TLS. It implements get, list, watch, streaming lists, create, replace, patch and delete, with resource versions, UIDs, label
//! selectors and conflicts. It has no schemas, no RBAC, no garbage collector and no defaults. All patches are
//! merge patches.

#![forbid(unsafe_code)]

use axum::Router;
use axum::routing::any;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::sync::oneshot;

mod front;
mod handler;
mod objects;
mod request;
mod tls;

pub use front::{Front, Head, Reply};
pub use objects::merged;

use objects::Objects;
use tls::{Tls, TlsListener};

/// Limit of connections that are not accepted yet.
const BACKLOG: u32 = 128;

/// The server. It keeps its objects while it is stopped.
#[derive(Debug)]
pub struct ApiServer {
    address: SocketAddr,
    objects: Shared,
    tls: Option<Tls>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// A socket that does not listen reserves the port.
    Stopped(TcpSocket),
    Serving {
        stop: oneshot::Sender<()>,
        thread: JoinHandle<()>,
    },
    /// Placeholder during a transition.
    Transition,
}

/// The objects, and the watches that wait for changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    objects: Arc<Mutex<Objects>>,
    version: tokio::sync::watch::Sender<u64>,
    /// Delay of some writes.
    slow: Arc<Mutex<Option<Slow>>>,
    /// API groups that the server does not serve, with the number of requests to each.
    unknown: Arc<Mutex<BTreeMap<String, usize>>>,
}

/// A delay of writes, as by a slow admission webhook.
#[derive(Debug)]
struct Slow {
    part: String,
    delay: Duration,
    writes: usize,
}

impl Shared {
    /// Returns the delay of a write to this path, and counts it.
    pub(crate) fn delay(&self, path: &str) -> Option<Duration> {
        let mut slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        let slow = slow.as_mut().filter(|slow| path.contains(&slow.part))?;
        slow.writes += 1;

        Some(slow.delay)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the objects, and notifies the watches.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Objects) -> T) -> T {
        let mut objects = self.lock();
        let result = change(&mut objects);
        self.version.send_replace(objects.version());
        result
    }

    /// Returns whether the server does not serve the API group of a path, and counts the request.
    pub(crate) fn is_unknown(&self, path: &str) -> bool {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        let group = path
            .strip_prefix("/apis/")
            .and_then(|it| it.split('/').next());
        let count = group.and_then(|group| unknown.get_mut(group));
        count.is_some_and(|count| {
            *count += 1;
            true
        })
    }

    pub(crate) fn subscribe(&self) -> tokio::sync::watch::Receiver<u64> {
        self.version.subscribe()
    }
}

impl ApiServer {
    /// Creates a stopped server. Its port is reserved and refuses connections.
    ///
    /// # Panics
    ///
    /// Panics if there is no free port.
    pub fn closed() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = bound(any);
        let address = socket.local_addr().expect("it is bound");

        Self {
            address,
            objects: Shared::default(),
            tls: None,
            state: State::Stopped(socket),
        }
    }

    /// Delays writes to paths that contain `part`, as a slow admission webhook does.
    pub fn slow_down(&self, part: &str, delay: Duration) {
        let mut slow = (self.objects.slow.lock()).unwrap_or_else(PoisonError::into_inner);
        *slow = Some(Slow {
            part: part.to_owned(),
            delay,
            writes: 0,
        });
    }

    /// Returns the number of writes that were delayed.
    pub fn slow_writes(&self) -> usize {
        let slow = (self.objects.slow.lock()).unwrap_or_else(PoisonError::into_inner);
        slow.as_ref().map_or(0, |slow| slow.writes)
    }

    /// Stops serving an API group, as if its CRDs were not installed.
    pub fn forget_group(&self, group: &str) {
        let mut unknown = self.unknown();
        unknown.insert(group.to_owned(), 0);
    }

    /// Returns the number of requests to an API group that the server does not serve.
    pub fn refused(&self, group: &str) -> usize {
        self.unknown().get(group).copied().unwrap_or_default()
    }

    fn unknown(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        let unknown = &self.objects.unknown;
        unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a serving server.
    ///
    /// # Panics
    ///
    /// Panics if there is no free port.
    pub fn start() -> Self {
        let mut server = Self::closed();
        server.listen();
        server
    }

    /// Creates a serving server with TLS, to which clients may speak HTTP/2.
    ///
    /// # Panics
    ///
    /// Panics if there is no free port.
    pub fn start_tls() -> Self {
        let mut server = Self::closed();
        server.tls = Some(Tls::new());
        server.listen();
        server
    }

    /// Returns the certificate, DER-encoded; `None` without TLS.
    pub fn certificate(&self) -> Option<Vec<u8>> {
        self.tls.as_ref().map(Tls::certificate)
    }

    /// Returns the number of connections with TLS since the start.
    pub fn connections(&self) -> usize {
        self.tls.as_ref().map_or(0, Tls::accepted)
    }

    /// Starts serving.
    pub fn listen(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Transition) {
            State::Stopped(socket) => {
                let objects = self.objects.clone();
                let tls = self.tls.clone();
                let (stop, stopped) = oneshot::channel();
                let (listens, is_listening) = mpsc::channel();
                let thread =
                    std::thread::spawn(move || serve(socket, objects, tls, &listens, stopped));
                is_listening
                    .recv()
                    .expect("the thread sends before it serves");
                State::Serving { stop, thread }
            }
            state @ (State::Serving { .. } | State::Transition) => state,
        };
    }

    /// Stops serving: closes all connections, and refuses new ones.
    ///
    /// # Panics
    ///
    /// Panics if another process binds the port at this moment.
    pub fn close(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Transition) {
            State::Serving { stop, thread } => {
                drop(stop);
                drop(thread.join());
                State::Stopped(bound(self.address))
            }
            state @ (State::Stopped(_) | State::Transition) => state,
        };
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Stores an object at its path, such as `/api/v1/nodes/rome-1`, as if a client had written it.
    pub fn put(&self, path: &str, object: Value) {
        self.objects.change(|objects| objects.put(path, object));
    }

    /// Removes an object, as if a client had deleted it.
    pub fn remove(&self, path: &str) {
        self.objects.change(|objects| objects.remove(path));
    }

    /// Returns whether an object below a path contains a text.
    pub fn find(&self, path: &str, text: &str) -> bool {
        let objects = self.objects.lock();
        let mut below = objects.iter().filter(|(it, _)| it.starts_with(path));
        below.any(|(_, object)| object.to_string().contains(text))
    }

    /// Returns the object at a path.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.objects.lock().get(path).cloned()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let State::Serving { stop, thread } =
            std::mem::replace(&mut self.state, State::Transition)
        {
            drop(stop);
            drop(thread.join());
        }
    }
}

fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("there are descriptors");
    // Closed connections still occupy the port.
    socket.set_reuseaddr(true).expect("any socket can");
    socket.bind(address).expect("the port is free");
    socket
}

/// Serves until `stopped` is dropped. The end of the runtime closes all connections.
fn serve(
    socket: TcpSocket,
    objects: Shared,
    tls: Option<Tls>,
    listens: &mpsc::Sender<()>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("there are threads and descriptors");
    let router = Router::new().fallback(any(move |request| {
        handler::handle(objects.clone(), request)
    }));
    runtime.block_on(async {
        let tcp = socket.listen(BACKLOG).expect("it is bound");
        listens.send(()).ok();
        let served = async {
            match tls {
                Some(tls) => axum::serve(TlsListener { tcp, tls }, router).await,
                None => axum::serve(tcp, router).await,
            }
        };
        tokio::select! {
            served = served => served.expect("serving never ends"),
            _ = stopped => {}
        }
    });
}
