//! Accepts clients within the limits, and stops.

use super::connection::{Context, Refused};
use super::metrics::Metrics;
use super::{Settings, connection};
use https_server::{Exceeded, Slots, source};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use telemetry::http::Observed;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Pause after an accept that fails, for example because the process has too many open files.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// The proxy.
#[derive(Debug)]
pub struct Proxy {
    context: Arc<connection::Context>,
    slots: Slots<IpAddr>,
    state: Arc<State>,
}

/// Health and readiness of the proxy.
#[derive(Debug, Default)]
pub struct State {
    accepts: AtomicBool,
}

impl Observed for State {
    fn healthy(&self) -> Result<(), String> {
        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        match self.accepts.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("the proxy is starting or stopping".to_owned()),
        }
    }
}

impl Proxy {
    /// Creates a proxy.
    pub fn new(settings: Settings, metrics: Metrics) -> Self {
        let slots = Slots::new(settings.limits);

        Self {
            context: Arc::new(Context::new(settings, metrics)),
            slots,
            state: Arc::default(),
        }
    }

    /// Returns the state, which follows the proxy.
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.state)
    }

    /// Serves clients until `stop` completes and the connections have ended or the leave timeout is over.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let mut connections = JoinSet::new();
        self.state.accepts.store(true, Ordering::Relaxed);
        tokio::select! {
            () = self.accept(&listener, &mut connections) => {}
            () = stop => {}
        }

        self.state.accepts.store(false, Ordering::Relaxed);
        let Settings {
            accept_after_stop,
            leave_timeout,
            ..
        } = self.context.settings;
        let accepting = accept_after_stop.min(leave_timeout);
        // The error is the expected end, since accept never completes.
        let _ = timeout(accepting, self.accept(&listener, &mut connections)).await;
        drop(listener);
        let drained = async { while connections.join_next().await.is_some() {} };
        if timeout(leave_timeout - accepting, drained).await.is_err() {
            tracing::info!(connections = connections.len(), "closing connections");
        }
        connections.shutdown().await;
    }

    /// Accepts clients without end.
    async fn accept(&self, listener: &TcpListener, connections: &mut JoinSet<()>) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                // Frees the memory of connections that have ended.
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((client, address)) => match self.take_slot(source(address)) {
                    Ok(slot) => {
                        let context = Arc::clone(&self.context);
                        connections.spawn(async move {
                            context.serve(client).await;
                            drop(slot);
                        });
                    }
                    Err(exceeded) => self.refuse(&client, exceeded),
                },
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }

    fn take_slot(&self, source: IpAddr) -> Result<Slot, Exceeded> {
        let slot = self.slots.take(source)?;
        self.context.metrics.set_active(self.slots.total());

        Ok(Slot {
            slot: Some(slot),
            slots: self.slots.clone(),
            metrics: self.context.metrics.clone(),
        })
    }

    /// Refuses a client without waiting for its request, so that clients beyond the limits take no memory.
    fn refuse(&self, client: &TcpStream, exceeded: Exceeded) {
        let refused = Refused::Limit(exceeded);
        self.context.count(refused);
        if let Some(response) = refused.response() {
            // The client sees a closed connection if its buffer is full.
            let _ = client.try_write(response.as_bytes());
        }
    }
}

/// The slot of an open connection.
struct Slot {
    slot: Option<https_server::Slot<IpAddr>>,
    slots: Slots<IpAddr>,
    metrics: Metrics,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slot.take();
        self.metrics.set_active(self.slots.total());
    }
}
