//! Failures of watches: messages, and delays before the next request.

use control_client::backoff::{self, Backoff};
use control_client::cause::chain;
use kube::runtime::watcher;
use std::time::Duration;

/// Longest message of a server that is kept and logged, in bytes.
const MESSAGE_MAX: usize = 1024;

/// Longest delay after the server has refused the watch: the resource or the right is missing, which only
/// an administrator changes.
const REFUSED_DELAY: Duration = Duration::from_secs(60);

/// Delay after the server has refused a watch that no controller requires: most clusters lack the
/// resource, and every node may ask for it.
const OPTIONAL_DELAY: Duration = Duration::from_secs(600);

/// Returns code and message of the server's response.
pub(super) fn status(error: &watcher::Error) -> Option<(u16, &str)> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => {
            Some((status.code, &status.message))
        }
        watcher::Error::WatchError(status) => Some((status.code, &status.message)),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => None,
    }
}

/// Returns the server's message, or the error without the debug output that follows it.
pub(super) fn message(error: &watcher::Error) -> String {
    shortened(match status(error) {
        Some((code, text)) if !text.is_empty() => format!("{text} (status {code})"),
        Some((code, _)) => format!("status {code}"),
        None => chain(error),
    })
}

/// Returns the beginning of a message, which a hostile server may make as long as a response.
pub(crate) fn shortened(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(MESSAGE_MAX));
    message
}

/// Delay before the next request, after errors.
#[derive(Debug, Default)]
pub(super) struct Delay {
    failures: u32,
    next: Duration,
}

impl Delay {
    pub(super) async fn wait(&mut self) {
        let delay = std::mem::take(&mut self.next);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    pub(super) fn failed(&mut self) {
        self.next = Backoff::REQUEST.delay(self.failures, backoff::random());
        self.failures = self.failures.saturating_add(1);
    }

    /// The right may be granted a moment later, so the delay grows from the shortest one.
    pub(super) fn refused(&mut self, is_optional: bool) {
        let min = is_optional.then_some(OPTIONAL_DELAY);
        let min = min.unwrap_or(Backoff::REQUEST.min);
        let max = min.max(REFUSED_DELAY);
        self.next = Backoff { min, max }.delay(self.failures, backoff::random());
        self.failures = self.failures.saturating_add(1);
    }
}
