//! How long a request has been in progress.

use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Interval of checks whether a response takes too long.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Start of the request in progress on a connection. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Mutex<Option<Instant>>>);

/// A request in progress, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Running(Progress);

/// The body of a response, with whose end the request ends.
#[derive(Debug)]
pub(crate) struct Tracked<B> {
    body: B,
    _running: Running,
}

impl Progress {
    pub(crate) fn begin(&self) -> Running {
        *self.lock() = Some(Instant::now());
        Running(self.clone())
    }

    /// Completes when a request has been in progress for longer than `limit`.
    pub(crate) async fn overdue(&self, limit: Duration) {
        while !self.lock().is_some_and(|start| start.elapsed() > limit) {
            sleep(CHECK_PERIOD.min(limit)).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    pub(crate) fn until_sent<B>(self, body: B) -> Tracked<B> {
        Tracked {
            body,
            _running: self,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

impl<B: Body + Unpin> Body for Tracked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
