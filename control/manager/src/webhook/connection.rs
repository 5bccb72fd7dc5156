//! One connection of an API server: TLS, HTTP/1.1, and a review for each request.

use super::handler::{Handler, Settings};
use super::metrics::Metrics;
use super::review::Review;
use super::slots::{Slot, Slots};
use control_runtime::CacheReader;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Longest body of a request, in bytes: the object before and after an update, each up to the 1.5 MiB that the API
/// server stores.
pub(super) const BODY_LEN_MAX: usize = 3 << 20;

/// Longest header of a request, in bytes.
const HEADER_LEN_MAX: usize = 16 << 10;

const HEADER_FIELDS_MAX: usize = 64;

/// Durations that end a connection or a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// From the connection to the end of the TLS handshake, and from there to the first request.
    pub(crate) start: Duration,
    /// Without a request. Longer than the 90 s after which API servers close connections, so that none is closed while
    /// a request is on its way.
    pub(crate) idle: Duration,
    /// From the header of a request to the end of its body.
    pub(crate) body: Duration,
    /// After the request to stop: until no API server connects to the pod any more.
    pub(crate) endpoint_removal: Duration,
    /// After that, for the requests in progress.
    pub(crate) drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(5),
            idle: Duration::from_secs(120),
            body: Duration::from_secs(5),
            endpoint_removal: Duration::from_secs(3),
            drain: Duration::from_secs(5),
        }
    }
}

/// State that all connections share.
pub(super) struct Context {
    pub(super) cache: CacheReader,
    pub(super) settings: Settings,
    pub(super) metrics: Metrics,
    pub(super) acceptor: TlsAcceptor,
    pub(super) timeouts: Timeouts,
    /// Bytes of bodies in memory.
    pub(super) bodies: Slots,
}

/// Why a request gets no review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Path,
    Method,
    TooLong,
    Slow,
    Busy,
    Aborted,
}

impl Refused {
    fn outcome(self) -> &'static str {
        match self {
            Self::Path | Self::Method => "unknown",
            Self::TooLong => "too_long",
            Self::Slow => "slow",
            Self::Busy => "busy",
            Self::Aborted => "aborted",
        }
    }

    fn response(self) -> (StatusCode, &'static str) {
        match self {
            Self::Path => (StatusCode::NOT_FOUND, "there is no webhook at this path"),
            Self::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                "send an AdmissionReview by POST",
            ),
            Self::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "the body exceeds 3 MiB"),
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, "the body is incomplete"),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the requests in progress exceed the limit of memory: retry",
            ),
            Self::Aborted => (StatusCode::BAD_REQUEST, "the body has ended early"),
        }
    }
}

impl Context {
    /// Serves a connection until it ends, or until a request has ended after `stopping` is true.
    pub(super) async fn serve(
        &self,
        client: TcpStream,
        address: SocketAddr,
        mut stopping: watch::Receiver<bool>,
    ) {
        // Responses are short, and the API server waits for them.
        let _ = client.set_nodelay(true);
        let stream = match timeout(self.timeouts.start, self.acceptor.accept(client)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                self.metrics.refused("handshake");
                return;
            }
            Err(_) => {
                self.metrics.refused("handshake_timeout");
                return;
            }
        };
        let is_used = AtomicBool::new(false);
        let service = service_fn(|request: Request<Incoming>| {
            is_used.store(true, Ordering::Relaxed);
            self.respond(request, address.ip())
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.timeouts.idle)
            .max_buf_size(HEADER_LEN_MAX)
            .max_headers(HEADER_FIELDS_MAX);
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
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
            () = unused => self.metrics.refused("request_timeout"),
            () = stopped => {
                connection.as_mut().graceful_shutdown();
                // The listener limits the duration.
                let _ = connection.await;
            }
        }
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        source: IpAddr,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let start = Instant::now();
        let handler = Handler::of_path(request.uri().path());
        let name = handler.map_or("none", Handler::name);
        let (outcome, response) = match self.review(handler, request, source).await {
            Ok(reviewed) => reviewed,
            Err(refused) => {
                let (status, text) = refused.response();
                (refused.outcome(), plain(status, text.to_owned()))
            }
        };
        self.metrics.handled(name, outcome, start.elapsed());

        Ok(response)
    }

    async fn review(
        &self,
        handler: Option<Handler>,
        request: Request<Incoming>,
        source: IpAddr,
    ) -> Result<(&'static str, Response<Full<Bytes>>), Refused> {
        let handler = handler.ok_or(Refused::Path)?;
        if request.method() != Method::POST {
            return Err(Refused::Method);
        }
        let mut slot = self.bodies.slot(source);
        let read = read(request.into_body(), &mut slot);
        let body = timeout(self.timeouts.body, read).await;
        let body = body.map_err(|_| Refused::Slow)??;
        let review = match Review::parse(&body) {
            Ok(review) => review,
            Err(error) => {
                let text = match std::error::Error::source(&error) {
                    Some(cause) => format!("{error}: {cause}"),
                    None => error.to_string(),
                };
                return Ok(("invalid", plain(StatusCode::BAD_REQUEST, text)));
            }
        };
        let (review, outcome) = {
            let cache = self.cache.read();
            review.decide(|request| handler.decide(request, &cache, &self.settings))
        };
        let mut response = Response::new(Full::from(review.to_string()));
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);

        Ok((outcome.name(), response))
    }
}

/// Reads a body within the limits of its length and of the memory for all bodies.
async fn read(mut body: Incoming, slot: &mut Slot) -> Result<Vec<u8>, Refused> {
    use hyper::body::Body as _;

    if body.size_hint().lower() > BODY_LEN_MAX as u64 {
        return Err(Refused::TooLong);
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refused::Aborted)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > BODY_LEN_MAX {
            return Err(Refused::TooLong);
        }
        slot.add(data.len()).map_err(|_| Refused::Busy)?;
        bytes.extend_from_slice(&data);
    }

    Ok(bytes)
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text + "\n"));
    *response.status_mut() = status;
    response
}
