//! One connection of a client: TLS, HTTP/1.1, and the stream that it becomes.

use super::api::Api;
use super::metrics::Metrics;
use super::splice::{self, splice};
use super::tunnel::Tunnel;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// Longest header of a request, in bytes. The URL contains the command, and has at most 64 KiB.
const HEADER_LEN_MAX: usize = 96 << 10;

const HEADER_FIELDS_MAX: usize = 64;

/// Durations that end a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// From the connection to the end of the TLS handshake, and from there to the first request.
    pub(crate) start: Duration,
    /// Without a request. API servers close idle connections after 90 s.
    pub(crate) idle: Duration,
    /// Of streams.
    pub(crate) streams: splice::Timeouts,
    /// After the request to stop, for requests and streams in progress.
    pub(crate) drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            streams: splice::Timeouts::default(),
            drain: Duration::from_secs(5),
        }
    }
}

/// State that all connections share.
pub(super) struct Context {
    pub(super) api: Api,
    pub(super) acceptor: TlsAcceptor,
    pub(super) metrics: Metrics,
    pub(super) timeouts: Timeouts,
}

impl Context {
    /// Serves a connection until it ends, or until a request has ended after `stopping` is true.
    pub(super) async fn serve(&self, client: TcpStream, mut stopping: watch::Receiver<bool>) {
        // Keystrokes and responses are short.
        let _ = client.set_nodelay(true);
        let stream = match timeout(self.timeouts.start, self.acceptor.accept(client)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                return self.metrics.refused("handshake");
            }
            Err(_) => return self.metrics.refused("handshake_timeout"),
        };
        let chain: Vec<_> = stream
            .get_ref()
            .1
            .peer_certificates()
            .unwrap_or_default()
            .to_vec();
        let (is_used, tunnel) = (AtomicBool::new(false), Mutex::new(None));
        let service = service_fn(|request: Request<Incoming>| {
            is_used.store(true, Ordering::Relaxed);
            self.respond(request, &chain, &tunnel)
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.timeouts.idle)
            .max_buf_size(HEADER_LEN_MAX)
            .max_headers(HEADER_FIELDS_MAX);
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection.with_upgrades());
        let unused = async {
            tokio::time::sleep(self.timeouts.start).await;
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
            () = unused => return self.metrics.refused("request_timeout"),
            () = stopped => {
                connection.as_mut().graceful_shutdown();
                // The listener limits the duration.
                let _ = connection.await;
            }
        }
        let tunnel = tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(tunnel) = tunnel {
            self.copy(tunnel).await;
        }
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        chain: &[CertificateDer<'static>],
        tunnel: &Mutex<Option<Tunnel>>,
    ) -> Result<Response<super::body::Body>, Infallible> {
        let (response, upgraded) = self.api.respond(request, chain).await;
        if upgraded.is_some() {
            *tunnel.lock().unwrap_or_else(PoisonError::into_inner) = upgraded;
        }

        Ok(response)
    }

    /// Copies the bytes of a stream until it ends.
    async fn copy(&self, tunnel: Tunnel) {
        let upgraded = timeout(self.timeouts.start, tunnel.upgraded()).await;
        let (client, provider, _slot) = match upgraded {
            Ok(Ok(upgraded)) => upgraded,
            Ok(Err(error)) => return tracing::debug!(%error, "failed to switch protocols"),
            Err(_) => return tracing::debug!("timed out while switching protocols"),
        };
        splice(
            TokioIo::new(client),
            TokioIo::new(provider),
            self.timeouts.streams,
        )
        .await;
    }
}
