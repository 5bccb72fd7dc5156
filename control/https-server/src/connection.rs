//! One connection of a client: TLS, HTTP/1.1, and time limits.

use crate::progress::Progress;
use crate::slots::Limit;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::error::Error;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Open connections, by source address.
    pub connections: Limit,
    /// Longest header of a request, in bytes.
    pub header_len_max: usize,
    /// Most fields of the header of a request.
    pub header_fields_max: usize,
    /// Durations.
    pub timeouts: Timeouts,
}

/// Durations that end a connection.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the connection to the end of the TLS handshake, and from there to the first request.
    pub start: Duration,
    /// Without a request. API servers close idle connections after 90 s; a longer time closes none while a request is on its
    /// way.
    pub idle: Duration,
    /// From the header of a request to the end of its response. `None` without a limit.
    pub response: Option<Duration>,
    /// After the request to stop: until no client connects to the pod any more.
    pub endpoint_removal: Duration,
    /// After that, for requests and streams in progress.
    pub drain: Duration,
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct Client {
    /// The address, of IPv4 if it is mapped to IPv6.
    pub address: IpAddr,
    /// The certificate whose key the client holds, and those of authorities. Empty if the client presented none, or if the
    /// TLS configuration requests none.
    pub chain: Vec<CertificateDer<'static>>,
}

/// Responds to requests.
pub trait Service: Send + Sync + 'static {
    /// The body of a response.
    type Body: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static;

    /// State of a connection, such as the stream that it becomes.
    type State: Default + Send + Sync;

    /// Responds to a request.
    fn respond(
        &self,
        request: Request<Incoming>,
        client: &Client,
        state: &Self::State,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Continues a connection whose protocol a response has switched.
    fn continued(&self, _: &Self::State) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Notes the number of open connections.
    fn connected(&self, connections: usize);

    /// Notes a connection that was closed, with the reason: `limit`, `limit_per_source`, `handshake`, `handshake_timeout`,
    /// `request_timeout` or `response_timeout`.
    fn refused(&self, reason: &'static str);
}

/// State that all connections share.
pub(crate) struct Context<S> {
    pub(crate) service: S,
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) settings: Settings,
}

impl<S: Service> Context<S> {
    /// Serves a connection until it ends, or until a request has ended after `stopping` is true.
    pub(crate) async fn serve(
        &self,
        stream: TcpStream,
        address: IpAddr,
        mut stopping: watch::Receiver<bool>,
    ) {
        let timeouts = self.settings.timeouts;
        // Failure only delays small messages.
        let _ = stream.set_nodelay(true);
        let stream = match timeout(timeouts.start, self.acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                return self.service.refused("handshake");
            }
            Err(_) => return self.service.refused("handshake_timeout"),
        };
        let chain = stream.get_ref().1.peer_certificates();
        let client = Client {
            address,
            chain: chain.unwrap_or_default().to_vec(),
        };
        let (progress, is_used) = (Progress::default(), AtomicBool::new(false));
        let state = S::State::default();
        let service = service_fn(async |request: Request<Incoming>| {
            is_used.store(true, Ordering::Relaxed);
            let running = progress.begin();
            let response = self.service.respond(request, &client, &state).await;
            Ok::<_, Infallible>(response.map(|body| running.until_sent(body)))
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(timeouts.idle)
            .max_buf_size(self.settings.header_len_max)
            .max_headers(self.settings.header_fields_max);
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection.with_upgrades());
        let unused = async {
            sleep(timeouts.start).await;
            if is_used.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        let overdue = async {
            match timeouts.response {
                Some(limit) => progress.overdue(limit).await,
                None => std::future::pending().await,
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
            () = unused => return self.service.refused("request_timeout"),
            () = overdue => return self.service.refused("response_timeout"),
            () = stopped => {
                connection.as_mut().graceful_shutdown();
                // The server limits the duration.
                let _ = connection.await;
            }
        }
        self.service.continued(&state).await;
    }
}
