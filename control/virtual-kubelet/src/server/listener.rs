//! Accepts clients within the limits, and stops.

use super::api::Api;
use super::certificate::Serving;
use super::connection::{Context, Timeouts};
use super::metrics::Metrics;
use super::slots::{Limit, Slot, Slots};
use super::tls;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;

/// Pause after an accept that fails, for example because the process has too many open files.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Connections that are not accepted yet.
const BACKLOG: u32 = 128;

/// Limits of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Open connections, by source address. An API server has one for each of its users' streams.
    pub(crate) connections: Limit,
    /// Open streams, by user. The API server is one user.
    pub(crate) streams: Limit,
    /// Durations.
    pub(crate) timeouts: Timeouts,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: Limit {
                total: 512,
                per_source: 256,
            },
            streams: Limit {
                total: 256,
                per_source: 192,
            },
            timeouts: Timeouts::default(),
        }
    }
}

/// The server of the kubelet's API.
pub(crate) struct Server {
    context: Arc<Context>,
    connections: Slots<IpAddr>,
}

/// Returns a listener at an address. Connections whose clients are gone end by TCP keepalive.
///
/// # Errors
///
/// Returns an error if the address cannot be bound.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    // Linux passes it on to connections that are accepted.
    socket.set_keepalive(true)?;
    socket.bind(address)?;

    socket.listen(BACKLOG)
}

impl Server {
    /// Creates a server.
    ///
    /// # Errors
    ///
    /// Returns an error if the TLS library has no cipher suites.
    pub(crate) fn new(
        api: Api,
        serving: Serving,
        metrics: Metrics,
        limits: Limits,
    ) -> Result<Self, rustls::Error> {
        let context = Context {
            api,
            acceptor: TlsAcceptor::from(Arc::new(tls::config(serving)?)),
            metrics,
            timeouts: limits.timeouts,
        };

        Ok(Self {
            context: Arc::new(context),
            connections: Slots::new(limits.connections),
        })
    }

    /// Serves clients until `stop` completes. Then requests and streams in progress have a short time to end.
    pub(crate) async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let (stopping, is_stopping) = watch::channel(false);
        let mut connections = JoinSet::new();
        tokio::select! {
            () = self.accept(&listener, &mut connections, &is_stopping) => {}
            () = stop => {}
        }

        drop(listener);
        stopping.send_replace(true);
        let drained = async { while connections.join_next().await.is_some() {} };
        if timeout(self.context.timeouts.drain, drained).await.is_err() {
            tracing::info!(streams = connections.len(), "closing streams");
        }
        connections.shutdown().await;
    }

    /// Accepts clients without end.
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
                    let (context, stopping) = (Arc::clone(&self.context), stopping.clone());
                    let slots = self.connections.clone();
                    connections.spawn(async move {
                        context.serve(client, stopping).await;
                        drop(slot);
                        context.metrics.connected(slots.total());
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
    fn slot(&self, source: IpAddr) -> Option<Slot<IpAddr>> {
        match self.connections.take(source.to_canonical()) {
            Ok(slot) => {
                let metrics = &self.context.metrics;
                metrics.connected(self.connections.total());
                Some(slot)
            }
            Err(exceeded) => {
                self.context.metrics.refused(exceeded.0);
                None
            }
        }
    }
}
