//! A review for each request of an API server.

use super::handler::{Handler, Settings};
use super::metrics::Metrics;
use super::review::Review;
use control_runtime::CacheReader;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use https_server::{Client, Service, Slot, Slots};
use hyper::body::{Bytes, Incoming};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Longest body of a request, in bytes: the object before and after an update, each up to the 1.5 MiB that the API
/// server stores.
pub(super) const BODY_LEN_MAX: usize = 3 << 20;

/// Reviews requests.
pub(super) struct Webhooks {
    pub(super) cache: CacheReader,
    pub(super) settings: Settings,
    pub(super) metrics: Metrics,
    /// Bytes of bodies in memory.
    pub(super) bodies: Slots<IpAddr>,
    /// From the header of a request to the end of its body.
    pub(super) body_timeout: Duration,
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

impl Service for Webhooks {
    type Body = Full<Bytes>;
    type State = ();

    async fn respond(
        &self,
        request: Request<Incoming>,
        client: &Client,
        (): &(),
    ) -> Response<Full<Bytes>> {
        let start = Instant::now();
        let handler = Handler::of_path(request.uri().path());
        let name = handler.map_or("none", Handler::name);
        let (outcome, response) = match self.review(handler, request, client.address).await {
            Ok(reviewed) => reviewed,
            Err(refused) => {
                let (status, text) = refused.response();
                (refused.outcome(), plain(status, text.to_owned()))
            }
        };
        self.metrics.handled(name, outcome, start.elapsed());

        response
    }

    fn connected(&self, connections: usize) {
        self.metrics.connected(connections);
    }

    fn refused(&self, reason: &'static str) {
        self.metrics.refused(reason);
    }
}

impl Webhooks {
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
        let body = timeout(self.body_timeout, read).await;
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
async fn read(mut body: Incoming, slot: &mut Slot<IpAddr>) -> Result<Vec<u8>, Refused> {
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
