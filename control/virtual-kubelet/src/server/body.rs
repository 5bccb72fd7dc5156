//! Bodies of responses.

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Frame, SizeHint};
use std::error::Error;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// Time for the body of a response that is collected.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(10);

type BoxError = Box<dyn Error + Send + Sync>;

/// The body of a response: in memory, or from the provider.
pub(crate) struct Body {
    inner: UnsyncBoxBody<Bytes, BoxError>,
    idle: Option<Idle>,
    /// Dropped with the body.
    _held: Option<Box<dyn Send>>,
}

/// Ends a body without data.
struct Idle {
    limit: Duration,
    timer: Pin<Box<Sleep>>,
}

/// A body is too long, too slow, or has ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// It exceeds the limit.
    #[error("the response has more than {0} bytes")]
    Length(usize),
    /// The sender failed, or ended early.
    #[error("the response has ended early: {0}")]
    Aborted(String),
    /// There was no data for too long.
    #[error("the response has sent no data for {} s", .0.as_secs())]
    Timeout(Duration),
}

impl Body {
    /// Returns the body of a response of the provider.
    pub(crate) fn of_provider(body: kube::client::Body) -> Self {
        Self {
            inner: body.map_err(BoxError::from).boxed_unsync(),
            idle: None,
            _held: None,
        }
    }

    /// Ends the body with an error when there was no data for this time.
    pub(crate) fn ending_when_idle(mut self, limit: Duration) -> Self {
        let timer = Box::pin(sleep_until(Instant::now() + limit));
        self.idle = Some(Idle { limit, timer });
        self
    }

    /// Drops a value with the body.
    pub(crate) fn holding(mut self, held: impl Send + 'static) -> Self {
        self._held = Some(Box::new(held));
        self
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(content: T) -> Self {
        let full = Full::new(content.into());
        Self {
            inner: full.map_err(|never| match never {}).boxed_unsync(),
            idle: None,
            _held: None,
        }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        let Some(idle) = &mut self.idle else {
            return polled;
        };
        if polled.is_ready() {
            idle.timer.as_mut().reset(Instant::now() + idle.limit);
            return polled;
        }
        ready!(idle.timer.as_mut().poll(cx));

        Poll::Ready(Some(Err(BodyError::Timeout(idle.limit).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Returns the content of a body of at most this length.
///
/// # Errors
///
/// Returns [`BodyError`] if it is longer, or not complete in time.
pub(crate) async fn collected(mut body: Body, len_max: usize) -> Result<Vec<u8>, BodyError> {
    let read = async {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| BodyError::Aborted(error.to_string()))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > len_max {
                return Err(BodyError::Length(len_max));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    };

    timeout(COLLECT_TIMEOUT, read)
        .await
        .map_err(|_| BodyError::Timeout(COLLECT_TIMEOUT))?
}
