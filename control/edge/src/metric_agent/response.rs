//! Responses, whose bodies are sent in pieces and hold what they need until they are sent.

use super::documents;
use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use serde_json::Value;
use std::any::Any;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Media type of the Prometheus text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A body of a response.
pub(super) struct Pieces {
    pieces: VecDeque<Bytes>,
    /// Dropped with the body, for example the memory that the pieces count as.
    guards: Vec<Box<dyn Any + Send>>,
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces")
            .field("pieces", &self.pieces.len())
            .finish_non_exhaustive()
    }
}

impl Pieces {
    /// Keeps a value until the body is sent or dropped.
    pub(super) fn hold(&mut self, guard: impl Any + Send) {
        self.guards.push(Box::new(guard));
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let len: usize = self.pieces.iter().map(Bytes::len).sum();
        SizeHint::with_exact(len as u64)
    }
}

/// Returns metrics.
pub(super) fn metrics(texts: Vec<String>) -> Response<Pieces> {
    of(StatusCode::OK, TEXT_FORMAT, texts)
}

/// Returns a document in JSON.
pub(super) fn json(media_type: &'static str, document: &Value) -> Response<Pieces> {
    of(StatusCode::OK, media_type, vec![document.to_string()])
}

/// Returns the response of a probe.
pub(super) fn healthy() -> Response<Pieces> {
    of(StatusCode::OK, "text/plain", vec!["ok".to_owned()])
}

/// Returns a failure.
pub(super) fn failure(status: StatusCode, message: &str) -> Response<Pieces> {
    let reason = match status {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => "InternalError",
    };
    let document = documents::status(status.as_u16(), reason, message);
    let mut response = of(status, "application/json", vec![document.to_string()]);
    if status == StatusCode::TOO_MANY_REQUESTS {
        let seconds = HeaderValue::from_static("1");
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}

fn of(status: StatusCode, media_type: &'static str, texts: Vec<String>) -> Response<Pieces> {
    let texts = texts.into_iter().filter(|text| !text.is_empty());
    let mut response = Response::new(Pieces {
        pieces: texts.map(Bytes::from).collect(),
        guards: Vec::new(),
    });
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}
