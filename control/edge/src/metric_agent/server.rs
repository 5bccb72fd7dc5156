//! Accepts connections within the limits, and stops.

use super::Settings;
use super::api::Api;
use super::connection::Context;
use super::metrics::Metrics;
use super::scrape::Scraper;
use super::serving::{ServingCertificate, acceptor};
use crate::slots::{Limits, Slots};
use control_runtime::{CacheReader, RuntimeStatus};
use kube::Client;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use telemetry::http::Observed;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls;

/// Pause after an accept that fails, for example because the process has too many open files.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Open connections. API servers open one for each request that they handle at a time.
const CONNECTIONS: Limits = Limits {
    total: 512,
    per_source: 256,
};

/// The server of the API.
pub struct Server {
    state: Arc<State>,
    slots: Arc<Mutex<Slots>>,
}

/// Health and readiness of the agent.
pub struct State {
    context: Context,
    certificate: Arc<ServingCertificate>,
    accepts: AtomicBool,
}

impl Observed for State {
    fn healthy(&self) -> Result<(), String> {
        self.context.api.status.healthy()
    }

    fn ready(&self) -> Result<(), String> {
        if !self.accepts.load(Ordering::Relaxed) {
            return Err("the agent is starting or stopping".to_owned());
        }
        self.context.api.ready()?;
        match self.certificate.current() {
            Some(_) => Ok(()),
            None => Err("the Secret has no valid certificate yet: see its Events".to_owned()),
        }
    }
}

impl Server {
    /// Creates a server that reads `cache`, whose runtime has `status`, and reviews rights by `client`.
    ///
    /// # Errors
    ///
    /// Returns an error if the TLS library has no cipher suites.
    pub fn new(
        settings: Settings,
        cache: CacheReader,
        status: RuntimeStatus,
        client: Client,
        metrics: Metrics,
    ) -> Result<Self, rustls::Error> {
        let certificate = Arc::new(ServingCertificate::new(settings.certificate));
        let acceptor = acceptor(Arc::clone(&certificate))?;
        let scraper = Scraper::new(settings.kubelets, settings.limits, metrics.clone());
        let api = Api {
            cache,
            status,
            client,
            scraper,
            metrics: metrics.clone(),
        };
        let context = Context {
            api,
            acceptor,
            metrics,
            timeouts: settings.timeouts,
        };
        let state = State {
            context,
            certificate,
            accepts: AtomicBool::new(false),
        };

        Ok(Self {
            state: Arc::new(state),
            slots: Arc::new(Mutex::new(Slots::new(CONNECTIONS))),
        })
    }

    /// Returns the state, which follows the server.
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.state)
    }

    /// Serves until `stop` completes and the requests in progress have ended. The server accepts connections for some
    /// time after that, because API servers notice later that the pod stops.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let (stopping, is_stopping) = watch::channel(false);
        let mut connections = JoinSet::new();
        // A valid certificate is there before the first connection, unless the files are not.
        let _ = self.state.certificate.load().await;
        self.state.accepts.store(true, Ordering::Relaxed);
        tokio::select! {
            () = self.accept(&listener, &mut connections, &is_stopping) => {}
            () = self.state.certificate.follow() => {}
            () = stop => {}
        }

        self.state.accepts.store(false, Ordering::Relaxed);
        let timeouts = self.state.context.timeouts;
        let accepting = self.accept(&listener, &mut connections, &is_stopping);
        // The error is the expected end, since accept never completes.
        let _ = timeout(timeouts.endpoint_removal, accepting).await;
        drop(listener);
        stopping.send_replace(true);
        let drained = async { while connections.join_next().await.is_some() {} };
        let _ = timeout(timeouts.drain, drained).await;
        connections.shutdown().await;
    }

    /// Accepts connections without end.
    async fn accept(
        &self,
        listener: &TcpListener,
        connections: &mut JoinSet<()>,
        stopping: &watch::Receiver<bool>,
    ) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                // Frees the memory of connections that have ended.
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((client, address)) => {
                    let Some(slot) = self.slot(address.ip()) else {
                        continue;
                    };
                    let (state, stopping) = (self.state(), stopping.clone());
                    connections.spawn(async move {
                        state.context.serve(client, stopping).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }

    /// Returns the slot of a further connection; `None` if it exceeds a limit.
    fn slot(&self, source: IpAddr) -> Option<Slot> {
        let metrics = self.state.context.metrics.clone();
        let mut slots = lock(&self.slots);
        if slots.take(source).is_err() {
            metrics.refused("limit");
            return None;
        }
        metrics.connected(slots.total());
        let slots = Arc::clone(&self.slots);
        Some(Slot {
            slots,
            metrics,
            source,
        })
    }
}

/// The slot of an open connection.
struct Slot {
    slots: Arc<Mutex<Slots>>,
    metrics: Metrics,
    source: IpAddr,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut slots = lock(&self.slots);
        slots.release(self.source);
        self.metrics.connected(slots.total());
    }
}

fn lock(slots: &Mutex<Slots>) -> MutexGuard<'_, Slots> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}
