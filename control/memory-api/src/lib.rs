//! An API server in memory, for tests: over a real socket, and able to go away and come back.
//!
//! It does what clients of this project ask for: get, list, watch, create, replace, patch and delete,
//! with resource versions, uids, label selectors and conflicts. It knows no schema, no rights, no garbage
//! collector and no defaults; all patches are merged.

#![forbid(unsafe_code)]

use axum::Router;
use axum::routing::any;
use serde_json::Value;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

mod answer;
mod objects;
mod request;

use objects::Objects;

/// The server. Its objects outlive its absence.
#[derive(Debug)]
pub struct ApiServer {
    address: SocketAddr,
    objects: Shared,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// The objects, and who waits for a change of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    objects: Arc<Mutex<Objects>>,
    version: tokio::sync::watch::Sender<u64>,
}

impl Shared {
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

    pub(crate) fn subscribe(&self) -> tokio::sync::watch::Receiver<u64> {
        self.version.subscribe()
    }
}

impl ApiServer {
    /// Creates a server that is away: its address is taken, but nobody answers there.
    ///
    /// # Panics
    ///
    /// Panics if there is no free port.
    pub fn away() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");

        Self {
            address,
            objects: Shared::default(),
            running: None,
        }
    }

    /// Creates a server that answers.
    ///
    /// # Panics
    ///
    /// Panics if its port cannot be bound.
    pub fn start() -> Self {
        let mut server = Self::away();
        server.come();
        server
    }

    /// Answers from now on.
    ///
    /// # Panics
    ///
    /// Panics if its port cannot be bound.
    pub fn come(&mut self) {
        let listener = TcpListener::bind(self.address).expect("the port is still free");
        let objects = self.objects.clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || serve(listener, objects, stopped));
        self.running = Some(Running { stop, thread });
    }

    /// Goes away: its port is closed, and so are all connections.
    pub fn go(&mut self) {
        if let Some(running) = self.running.take() {
            drop(running.stop);
            drop(running.thread.join());
        }
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
        self.go();
    }
}

/// Serves until told to stop; the runtime ends with all its connections.
fn serve(listener: TcpListener, objects: Shared, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("there are threads and descriptors");
    let router =
        Router::new().fallback(any(move |request| answer::answer(objects.clone(), request)));
    runtime.block_on(async {
        listener
            .set_nonblocking(true)
            .expect("a listener can be non-blocking");
        let listener = tokio::net::TcpListener::from_std(listener).expect("it is a listener");
        tokio::select! {
            served = axum::serve(listener, router) => served.expect("serving never ends by itself"),
            _ = stopped => {}
        }
    });
}
