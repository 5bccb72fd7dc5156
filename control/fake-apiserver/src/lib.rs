//! An API server in memory, for tests: over a real socket, and able to go away and come back.
//!
//! It does what clients of this project ask for: get, list, watch, create, replace, patch and delete,
//! with resource versions, uids, label selectors and conflicts. It knows no schema, no rights, no garbage
//! collector and no defaults; all patches are merged.

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

mod answer;
mod objects;
mod request;

pub use objects::merged;

use objects::Objects;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 128;

/// The server. Its objects outlive its absence.
#[derive(Debug)]
pub struct ApiServer {
    address: SocketAddr,
    objects: Shared,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// The port is kept, by a socket that does not listen.
    Away(TcpSocket),
    There {
        stop: oneshot::Sender<()>,
        thread: JoinHandle<()>,
    },
    /// On its way.
    Between,
}

/// The objects, and who waits for a change of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    objects: Arc<Mutex<Objects>>,
    version: tokio::sync::watch::Sender<u64>,
    /// Part of the paths whose writes are delayed, the delay, and the number of such writes.
    slow: Arc<Mutex<Option<Slow>>>,
    /// API groups that it does not know, and how often somebody asked for them.
    unknown: Arc<Mutex<BTreeMap<String, usize>>>,
}

/// Writes that are delayed, as a slow admission webhook would.
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

    /// Changes the objects, and wakes the watches.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Objects) -> T) -> T {
        let mut objects = self.lock();
        let result = change(&mut objects);
        self.version.send_replace(objects.version());
        result
    }

    /// Returns whether a path is of a group that it does not know, and counts the request.
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
    /// Creates a server that is away: its port is taken, but nobody answers there.
    ///
    /// # Panics
    ///
    /// Panics if there is no free port.
    pub fn away() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = bound(any);
        let address = socket.local_addr().expect("it is bound");

        Self {
            address,
            objects: Shared::default(),
            place: Place::Away(socket),
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

    /// Makes an API group unknown, as one is whose kinds nobody has installed.
    pub fn forget_group(&self, group: &str) {
        let mut unknown = self.unknown();
        unknown.insert(group.to_owned(), 0);
    }

    /// Returns how often somebody asked for a group that it does not know.
    pub fn refused(&self, group: &str) -> usize {
        self.unknown().get(group).copied().unwrap_or_default()
    }

    fn unknown(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        let unknown = &self.objects.unknown;
        unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a server that answers.
    ///
    /// # Panics
    ///
    /// Panics if there is no free port.
    pub fn start() -> Self {
        let mut server = Self::away();
        server.come();
        server
    }

    /// Answers from now on.
    pub fn come(&mut self) {
        self.place = match std::mem::replace(&mut self.place, Place::Between) {
            Place::Away(socket) => {
                let objects = self.objects.clone();
                let (stop, stopped) = oneshot::channel();
                let (listens, is_listening) = mpsc::channel();
                let thread = std::thread::spawn(move || serve(socket, objects, &listens, stopped));
                is_listening.recv().expect("the thread begins with that");
                Place::There { stop, thread }
            }
            place @ (Place::There { .. } | Place::Between) => place,
        };
    }

    /// Goes away: nobody answers at its port any more, and all connections are closed.
    ///
    /// # Panics
    ///
    /// Panics if somebody takes its port at the same moment.
    pub fn go(&mut self) {
        self.place = match std::mem::replace(&mut self.place, Place::Between) {
            Place::There { stop, thread } => {
                drop(stop);
                drop(thread.join());
                Place::Away(bound(self.address))
            }
            place @ (Place::Away(_) | Place::Between) => place,
        };
    }

    /// Returns where it is, for a client's configuration.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Keeps an object under its path, such as `/api/v1/nodes/rome-1`, as if somebody had written it.
    pub fn put(&self, path: &str, object: Value) {
        self.objects.change(|objects| objects.put(path, object));
    }

    /// Removes an object, as if somebody had deleted it.
    pub fn remove(&self, path: &str) {
        self.objects.change(|objects| objects.remove(path));
    }

    /// Returns the object of a path.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.objects.lock().get(path).cloned()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Place::There { stop, thread } = std::mem::replace(&mut self.place, Place::Between) {
            drop(stop);
            drop(thread.join());
        }
    }
}

fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("there are descriptors");
    // The connections of the time before still have it.
    socket.set_reuseaddr(true).expect("any socket can");
    socket.bind(address).expect("the port is free");
    socket
}

/// Serves until told to stop; the runtime ends with all its connections.
fn serve(
    socket: TcpSocket,
    objects: Shared,
    listens: &mpsc::Sender<()>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("there are threads and descriptors");
    let router =
        Router::new().fallback(any(move |request| answer::answer(objects.clone(), request)));
    runtime.block_on(async {
        let listener = socket.listen(BACKLOG).expect("it is bound");
        listens.send(()).ok();
        tokio::select! {
            served = axum::serve(listener, router) => served.expect("serving never ends by itself"),
            _ = stopped => {}
        }
    });
}
