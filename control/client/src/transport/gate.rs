//! Keeps the writes of a leader from being sent after its renew deadline.
//!
//! A request may wait in the transport: for a connection that is opened, or for a stream. A request that
//! only a leader may send therefore has the [`Leadership`] as an extension. It is checked before the request
//! is given to a connection, and again when the connection takes the body.

use crate::election::Leadership;
use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use kube::client::Body;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tower::BoxError;

/// The renew deadline of the leader passed before its write was sent. The server has not received the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the Lease was not renewed before the request was sent")]
pub struct NotLeaderError;

/// Lets a request pass while its sender is the leader; without leadership, always.
#[derive(Clone)]
pub(super) struct Gate(Option<Arc<Gated>>);

struct Gated {
    leadership: Leadership,
    /// Whether a connection took the request, which then may be in progress at the server. Decided once: a
    /// request that is reported as not sent is not sent later.
    is_sent: OnceLock<bool>,
}

impl Gate {
    /// Waits until the request may no longer be sent; for ever if it was sent before.
    pub(super) async fn closed(&self) {
        if let Some(gated) = &self.0 {
            gated.leadership.ended().await;
            if !gated.is_sent.get_or_init(|| false) {
                return;
            }
        }
        std::future::pending().await
    }

    /// Notes that a connection takes the request, unless it may no longer be sent.
    fn pass(&self) -> Result<(), NotLeaderError> {
        let Some(gated) = &self.0 else {
            return Ok(());
        };
        let is_sent = gated.is_sent.get_or_init(|| gated.leadership.may_write());
        is_sent.then_some(()).ok_or(NotLeaderError)
    }

    fn is_undecided(&self) -> bool {
        (self.0.as_ref()).is_some_and(|gated| gated.is_sent.get().is_none())
    }
}

/// The body of a request with the gate that the request must pass.
pub(super) struct RequestBody {
    inner: Body,
    gate: Gate,
}

impl RequestBody {
    /// Returns an error if the request may no longer be sent.
    pub(super) fn check(&self) -> Result<(), NotLeaderError> {
        match &self.gate.0 {
            Some(gated) if !gated.leadership.may_write() => Err(NotLeaderError),
            Some(_) | None => Ok(()),
        }
    }
}

/// Adds the gate to a request.
pub(super) fn gated(mut request: Request<Body>) -> (Request<RequestBody>, Gate) {
    let leadership = request.extensions_mut().remove::<Leadership>();
    let gate = Gate(leadership.map(|leadership| {
        Arc::new(Gated {
            leadership,
            is_sent: OnceLock::new(),
        })
    }));
    let body_gate = gate.clone();
    let request = request.map(|inner| RequestBody {
        inner,
        gate: body_gate,
    });

    (request, gate)
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    /// hyper sends the head of an HTTP/1.1 request with the first part of the body, and resets an HTTP/2
    /// stream whose body fails.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Err(error) = self.gate.pass() {
            return Poll::Ready(Some(Err(error.into())));
        }
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        frame.map_err(BoxError::from)
    }

    /// hyper skips a body that has ended, and a request with a gate has to pass it first.
    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream() && !self.gate.is_undecided()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use std::time::Duration;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Returns whether the gate closes before a minute has passed.
    async fn closes(gate: &Gate) -> bool {
        tokio::time::timeout(MINUTE, gate.closed()).await.is_ok()
    }

    fn body(leadership: &Leadership) -> (RequestBody, Gate) {
        let request = Request::patch("/").extension(leadership.clone());
        let request = request.body(Body::from(b"{}".to_vec()));
        let (request, gate) = gated(request.expect("a request"));
        (request.into_body(), gate)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_takes_a_request_too_late_gets_no_body() {
        let (body, gate) = body(&Leadership::default());

        let error = body.collect().await.expect_err("a refusal");

        assert!(error.is::<NotLeaderError>());
        assert!(closes(&gate).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_reported_as_not_sent_is_not_sent_after_a_late_renewal() {
        let leadership = Leadership::default();
        let (body, gate) = body(&leadership);
        assert!(closes(&gate).await);

        leadership.extend(MINUTE);

        body.collect().await.expect_err("a refusal");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_sent_is_not_reported_as_not_sent() {
        let leadership = Leadership::lasting(MINUTE);
        let (body, gate) = body(&leadership);
        body.collect().await.expect("the body");

        leadership.extend(Duration::ZERO);

        assert!(!closes(&gate).await);
    }
}
