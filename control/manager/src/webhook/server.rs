//! Accepts API servers within the limits, and stops.

use super::connection::{Context, Timeouts};
use super::handler::Settings;
use super::metrics::Metrics;
use super::serving::ServingCertificate;
use super::slots::{Limit, Slot, Slots};
use crate::certificates::{WEBHOOKS, provider};
use control_runtime::CacheReader;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, ServerConfig};

/// Pause after an accept that fails, for example because the process has too many open files.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Limits of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Open connections. An API server opens one for each request that it handles at a time, by default up to 600.
    pub(crate) connections: Limit,
    /// Bytes of request bodies in memory.
    pub(crate) bodies: Limit,
    /// Durations.
    pub(crate) timeouts: Timeouts,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: Limit {
                total: 2048,
                per_source: 640,
            },
            bodies: Limit {
                total: 64 << 20,
                per_source: 24 << 20,
            },
            timeouts: Timeouts::default(),
        }
    }
}

/// The server of the webhooks.
pub(crate) struct Server {
    context: Arc<Context>,
    connections: Slots,
    readiness: Readiness,
}

/// Whether the server can serve. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Readiness {
    accepts: Arc<AtomicBool>,
    certificate: Arc<ServingCertificate>,
}

impl Readiness {
    /// Checks that API servers can connect.
    ///
    /// # Errors
    ///
    /// Returns the reason for which they cannot.
    pub(crate) fn ready(&self) -> Result<(), String> {
        if !self.accepts.load(Ordering::Relaxed) {
            return Err("the server of the webhooks is starting or stopping".to_owned());
        }
        match self.certificate.current() {
            Some(_) => Ok(()),
            None => Err(format!(
                "Secret {} has no certificate yet: see the Events of the Secret",
                WEBHOOKS.secret
            )),
        }
    }
}

impl Server {
    /// Creates a server with Liqo in `namespace`.
    ///
    /// # Errors
    ///
    /// Returns an error if the TLS library has no cipher suites.
    pub(crate) fn new(
        cache: CacheReader,
        namespace: &str,
        settings: Settings,
        metrics: Metrics,
        limits: Limits,
    ) -> Result<Self, rustls::Error> {
        let certificate = Arc::new(ServingCertificate::new(cache.clone(), namespace));
        let tls = ServerConfig::builder_with_provider(provider());
        let tls = tls.with_safe_default_protocol_versions()?;
        let resolver = Arc::clone(&certificate);
        let mut tls = tls.with_no_client_auth().with_cert_resolver(resolver);
        // API servers speak HTTP/1.1 to webhooks, so that requests reach all replicas.
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let context = Context {
            cache,
            settings,
            metrics,
            acceptor: TlsAcceptor::from(Arc::new(tls)),
            timeouts: limits.timeouts,
            bodies: Slots::new(limits.bodies),
        };

        Ok(Self {
            context: Arc::new(context),
            connections: Slots::new(limits.connections),
            readiness: Readiness {
                accepts: Arc::default(),
                certificate,
            },
        })
    }

    /// Returns the readiness, which follows the server.
    pub(crate) fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Serves until `stop` completes and the requests in progress have ended. The server accepts connections for some
    /// time after that, because API servers notice later that the pod stops.
    pub(crate) async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let (stopping, is_stopping) = watch::channel(false);
        let mut connections = JoinSet::new();
        let accepts = &self.readiness.accepts;
        accepts.store(true, Ordering::Relaxed);
        tokio::select! {
            () = self.accept(&listener, &mut connections, &is_stopping) => {}
            () = stop => {}
        }

        accepts.store(false, Ordering::Relaxed);
        let timeouts = self.context.timeouts;
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
                    let (context, stopping) = (Arc::clone(&self.context), stopping.clone());
                    let slots = self.connections.clone();
                    connections.spawn(async move {
                        context.serve(client, address, stopping).await;
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
    fn slot(&self, source: IpAddr) -> Option<Slot> {
        let mut slot = self.connections.slot(source);
        match slot.add(1) {
            Ok(()) => {
                self.context.metrics.connected(self.connections.total());
                Some(slot)
            }
            Err(exceeded) => {
                self.context.metrics.refused(exceeded.0);
                None
            }
        }
    }
}
