//! Accepts clients within the limits, and stops.

use crate::connection::{Context, Service, Settings};
use crate::slots::{Slot, Slots, source};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Pause after an accept that fails, for example because the process has too many open files.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// An HTTPS server.
pub struct Server<S> {
    context: Arc<Context<S>>,
    connections: Slots<IpAddr>,
    accepts: Arc<AtomicBool>,
}

impl<S: Service> Server<S> {
    /// Creates a server. `tls` needs no protocols: the server speaks HTTP/1.1, by which requests of one client reach all
    /// replicas and connections can switch to another protocol.
    pub fn new(service: S, mut tls: ServerConfig, settings: Settings) -> Self {
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let context = Context {
            service,
            acceptor: TlsAcceptor::from(Arc::new(tls)),
            settings,
        };

        Self {
            context: Arc::new(context),
            connections: Slots::new(settings.connections),
            accepts: Arc::default(),
        }
    }

    /// Returns whether the server accepts clients and was not asked to stop, which follows it.
    pub fn accepts(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.accepts)
    }

    /// Serves until `stop` completes and the requests in progress have ended or the time for them is over. The server
    /// accepts connections for some time after `stop`, because clients notice later that the pod stops.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let timeouts = self.context.settings.timeouts;
        let (stopping, is_stopping) = watch::channel(false);
        let mut connections = JoinSet::new();
        self.accepts.store(true, Ordering::Relaxed);
        tokio::select! {
            () = self.accept(&listener, &mut connections, &is_stopping) => {}
            () = stop => {}
        }

        self.accepts.store(false, Ordering::Relaxed);
        let accepting = self.accept(&listener, &mut connections, &is_stopping);
        // The error is the expected end, since accept never completes.
        let _ = timeout(timeouts.endpoint_removal, accepting).await;
        drop(listener);
        stopping.send_replace(true);
        let drained = async { while connections.join_next().await.is_some() {} };
        if timeout(timeouts.drain, drained).await.is_err() {
            tracing::info!(connections = connections.len(), "closing connections");
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
                Ok((stream, address)) => {
                    let address = source(address);
                    let Some(slot) = self.slot(address) else {
                        continue;
                    };
                    let (context, stopping) = (Arc::clone(&self.context), stopping.clone());
                    let slots = self.connections.clone();
                    connections.spawn(async move {
                        context.serve(stream, address, stopping).await;
                        drop(slot);
                        context.service.connected(slots.total());
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
        let service = &self.context.service;
        match self.connections.take(source) {
            Ok(slot) => {
                service.connected(self.connections.total());
                Some(slot)
            }
            Err(exceeded) => {
                service.refused(exceeded.0);
                None
            }
        }
    }
}
