//! Response bodies with the limits of their kind of request.

use super::kind::{DeadlineError, Kind};
use super::pool::Permit;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use tower::BoxError;

/// The largest response that is not a stream, in bytes. kube-apiserver's largest object is 3 MiB,
/// and lists are paged.
pub(super) const BODY_MAX: u64 = 32 << 20;

/// The longest line of a watch, in bytes. A line contains one object.
pub(super) const LINE_MAX: usize = 4 << 20;

/// The longest time without data in a watch. Servers send a bookmark every minute, and end a watch
/// after the `timeoutSeconds` of the request, which kube limits to 295.
pub(super) const WATCH_IDLE_MAX: Duration = Duration::from_secs(310);

/// The server sent more than a response of this kind may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The body of a response is too long.
    #[error("the API server sent a response of more than {BODY_MAX} bytes")]
    Body,

    /// A line of a watch is too long.
    #[error("the API server sent a watch event of more than {LINE_MAX} bytes")]
    Line,
}

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
    kind: Kind,
    timer: Option<Pin<Box<Sleep>>>,
    replaced: Replaced,
    meter: Meter,
    permit: Option<Permit>,
}

impl ResponseBody {
    pub(super) fn new(
        inner: Incoming,
        kind: Kind,
        deadline: Instant,
        replaced: Replaced,
        permit: Option<Permit>,
    ) -> Self {
        let end = match kind {
            Kind::Watch => Some(Instant::now() + WATCH_IDLE_MAX),
            Kind::Log | Kind::Upgrade => None,
            Kind::Read | Kind::List | Kind::Write | Kind::Lease => Some(deadline),
        };

        Self {
            inner,
            kind,
            timer: end.map(|end| Box::pin(sleep_until(end))),
            replaced,
            meter: Meter::new(kind),
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

        let kind = self.kind;
        let limit = if kind == Kind::Watch {
            WATCH_IDLE_MAX
        } else {
            kind.deadline()
        };
        Poll::Ready(DeadlineError { kind, limit }.into())
    }

    fn accept(&mut self, data: &[u8]) -> Result<(), LimitError> {
        if let (Kind::Watch, Some(timer)) = (self.kind, &mut self.timer) {
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
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Counts the bytes of a response against the limit of its kind.
#[derive(Debug)]
enum Meter {
    Body(u64),
    Line(usize),
    Unlimited,
}

impl Meter {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Watch => Self::Line(0),
            Kind::Log | Kind::Upgrade => Self::Unlimited,
            Kind::Read | Kind::List | Kind::Write | Kind::Lease => Self::Body(0),
        }
    }

    fn add(&mut self, data: &[u8]) -> Result<(), LimitError> {
        match self {
            Self::Unlimited => Ok(()),
            Self::Body(total) => {
                *total = total.saturating_add(data.len() as u64);
                if *total > BODY_MAX {
                    return Err(LimitError::Body);
                }
                Ok(())
            }
            Self::Line(length) => {
                let mut lines = data.split(|byte| *byte == b'\n');
                let first = lines.next().unwrap_or_default();
                let mut longest = *length + first.len();
                *length = longest;
                for line in lines {
                    longest = longest.max(line.len());
                    *length = line.len();
                }
                if longest > LINE_MAX {
                    return Err(LimitError::Line);
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_response_may_have_exactly_the_largest_length() {
        let mut meter = Meter::new(Kind::List);
        let mebibyte = vec![b'\n'; 1 << 20];

        for _ in 0..BODY_MAX >> 20 {
            assert_eq!(meter.add(&mebibyte), Ok(()));
        }

        assert_eq!(meter.add(b"x"), Err(LimitError::Body));
    }

    #[test]
    fn a_watch_is_limited_by_line_and_not_in_total() {
        let mut meter = Meter::new(Kind::Watch);
        let mut line = vec![b'x'; LINE_MAX];
        line.push(b'\n');

        for _ in 0..20 {
            assert_eq!(meter.add(&line), Ok(()));
        }

        assert_eq!(meter.add(&line[..LINE_MAX]), Ok(()));
        assert_eq!(meter.add(b"x"), Err(LimitError::Line));
    }

    proptest! {
        #[test]
        fn the_limit_of_a_line_does_not_depend_on_frames(
            lengths in prop::collection::vec(0_usize..LINE_MAX * 5 / 4, 1..4),
            frame in 1_usize << 16..LINE_MAX,
        ) {
            let mut text = Vec::new();
            for length in &lengths {
                text.resize(text.len() + length, b'x');
                text.push(b'\n');
            }
            let mut meter = Meter::new(Kind::Watch);

            let result = text.chunks(frame).try_for_each(|chunk| meter.add(chunk));

            let is_too_long = lengths.iter().any(|length| *length > LINE_MAX);
            prop_assert_eq!(result.is_err(), is_too_long);
        }
    }
}
