//! One connection: TLS, HTTP/1.1, and time limits.

use super::Timeouts;
use super::api::Api;
use super::metrics::Metrics;
use super::response::Pieces;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Longest header of a request, in bytes. The API server names all groups of the requester in it.
const HEADER_LEN_MAX: usize = 128 << 10;

const HEADER_FIELDS_MAX: usize = 2048;

/// Interval of checks whether a response takes too long.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// State that all connections share.
pub(super) struct Context {
    pub(super) api: Api,
    pub(super) acceptor: TlsAcceptor,
    pub(super) metrics: Metrics,
    pub(super) timeouts: Timeouts,
}

/// Start of the request in progress.
#[derive(Clone, Default)]
struct Progress(Arc<Mutex<Option<Instant>>>);

/// A request in progress, until this value is dropped.
struct Running(Progress);

impl Context {
    /// Serves a connection until it ends, or until a request has ended after `stopping` is true.
    pub(super) async fn serve(&self, client: TcpStream, mut stopping: watch::Receiver<bool>) {
        // Failure only delays small messages.
        let _ = client.set_nodelay(true);
        let stream = match timeout(self.timeouts.read, self.acceptor.accept(client)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                return self.metrics.refused("handshake");
            }
            Err(_) => return self.metrics.refused("handshake_timeout"),
        };
        let chain = stream.get_ref().1.peer_certificates();
        let chain: Vec<_> = chain.unwrap_or_default().to_vec();
        let (progress, is_used) = (Progress::default(), AtomicBool::new(false));
        let service = service_fn(async |request: Request<Incoming>| {
            is_used.store(true, Ordering::Relaxed);
            let running = progress.begin();
            let mut response = self.api.respond(&chain, &request).await;
            response.body_mut().hold(running);
            Ok::<Response<Pieces>, Infallible>(response)
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.timeouts.idle)
            .max_buf_size(HEADER_LEN_MAX)
            .max_headers(HEADER_FIELDS_MAX);
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let unused = async {
            sleep(self.timeouts.read).await;
            if is_used.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        let stopped = async {
            // The sender outlives the connections.
            let _ = stopping.wait_for(|stopping| *stopping).await;
        };
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection failed");
                }
            }
            () = unused => self.metrics.refused("request_timeout"),
            () = progress.overdue(self.timeouts.write) => self.metrics.refused("response_timeout"),
            () = stopped => {
                connection.as_mut().graceful_shutdown();
                // The listener limits the duration.
                let _ = connection.await;
            }
        }
    }
}

impl Progress {
    fn begin(&self) -> Running {
        *self.lock() = Some(Instant::now());
        Running(self.clone())
    }

    /// Completes when a request has been in progress for longer than `limit`.
    async fn overdue(&self, limit: Duration) {
        while !self.lock().is_some_and(|start| start.elapsed() > limit) {
            sleep(CHECK_PERIOD.min(limit)).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}
