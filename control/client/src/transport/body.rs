//! Response bodies with the limits of their kind of request.

use super::budget::{LimitError, Meter};
use super::kind::{DeadlineError, Kind};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use tower::BoxError;

/// The longest time without data in a watch. Servers send a bookmark every minute.
pub(super) const WATCH_IDLE_MAX: Duration = Duration::from_secs(310);

/// Address or credentials of the cluster were replaced while the request was in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the credentials of the API server were replaced")]
pub struct ReplacedError;

/// Completes when the configuration of the request is replaced.
pub(super) type Replaced = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The body of a response; ends with an error at a limit, at the deadline, and when the credentials
/// of the cluster are replaced.
pub struct ResponseBody {
    inner: Incoming,
    timer: Option<Pin<Box<Sleep>>>,
    replaced: Replaced,
    meter: Meter,
    /// Ends the use of the stream when the body is dropped.
    permit: Option<Box<dyn Send>>,
}

impl ResponseBody {
    pub(super) fn new(
        inner: Incoming,
        meter: Meter,
        deadline: Instant,
        replaced: Replaced,
        permit: Option<Box<dyn Send>>,
    ) -> Self {
        let kind = meter.kind();
        let end = match kind {
            Kind::Watch => Some(Instant::now() + WATCH_IDLE_MAX),
            Kind::Log | Kind::Upgrade => None,
            Kind::Read | Kind::List | Kind::Write | Kind::Lease => Some(deadline),
        };

        Self {
            inner,
            timer: end.map(|end| Box::pin(sleep_until(end))),
            replaced,
            meter,
            permit,
        }
    }

    fn poll_limits(&mut self, cx: &mut Context<'_>) -> Poll<BoxError> {
        if self.replaced.as_mut().poll(cx).is_ready() {
            return Poll::Ready(ReplacedError.into());
        }
        let Some(timer) = &mut self.timer else {
            return Poll::Pending;
        };
        ready!(timer.as_mut().poll(cx));

        let kind = self.meter.kind();
        let limit = if kind == Kind::Watch {
            WATCH_IDLE_MAX
        } else {
            kind.deadline()
        };
        Poll::Ready(DeadlineError { kind, limit }.into())
    }

    fn accept(&mut self, data: &[u8]) -> Result<(), LimitError> {
        if let (Kind::Watch, Some(timer)) = (self.meter.kind(), &mut self.timer) {
            timer.as_mut().reset(Instant::now() + WATCH_IDLE_MAX);
        }
        self.meter.add(data)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(error) = self.poll_limits(cx) {
            self.permit = None;
            return Poll::Ready(Some(Err(error)));
        }
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => {
                self.permit = None;
                return Poll::Ready(None);
            }
        };
        if let Some(data) = frame.data_ref() {
            self.as_mut().accept(data)?;
        }

        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody")
            .field("kind", &self.meter.kind())
            .finish_non_exhaustive()
    }
}
