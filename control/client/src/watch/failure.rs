//! Failures of watches: messages, and delays before the next request.

use crate::backoff::{self, Backoff};
use crate::cause::chain;
use std::time::Duration;

/// Longest message of a server that is kept and logged, in bytes.
const MESSAGE_MAX: usize = 1024;

/// Delay after the server has refused the watch. An API server applies a new RoleBinding some milliseconds after it has
/// stored it, so the first delays are short. Later, only an administrator grants the right or installs the resource.
const REFUSED: Backoff = Backoff {
    min: Duration::from_millis(25),
    max: Duration::from_secs(60),
};

/// Mean interval between the lists of a cluster if all its watches list again at once: 300 watches list
/// within 6 s, with a tenth of the requests that kube-apiserver serves at a time.
const LIST_INTERVAL: Duration = Duration::from_millis(20);

/// Returns code and message of the server's response, or the error without the debug output that follows it.
pub(super) fn refusal(error: &kube::Error) -> (Option<u16>, String) {
    let kube::Error::Api(status) = error else {
        return (None, shortened(chain(error)));
    };
    let code = status.code;
    let message = match status.message.as_str() {
        "" => format!("status {code}"),
        text => format!("{text} (status {code})"),
    };
    (Some(code), shortened(message))
}

/// Returns the beginning of a message, which a hostile server may make as long as a response.
pub fn shortened(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(MESSAGE_MAX));
    message
}

/// Returns a random delay before the list of one of several watches that list again at once.
pub fn spread(watches: usize) -> Duration {
    let watches = u32::try_from(watches).unwrap_or(u32::MAX);
    LIST_INTERVAL
        .saturating_mul(watches)
        .mul_f64(backoff::random())
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

    /// Delays the next request, which is a list beside those of `lists` watches.
    pub(super) fn failed(&mut self, lists: usize) {
        self.next = Backoff::REQUEST.delay(self.failures, backoff::random()) + spread(lists);
        self.failures = self.failures.saturating_add(1);
    }

    /// Has delays begin with the shortest again.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Delays the next request after a refusal, by about `delay` if it is set.
    pub(super) fn refused(&mut self, delay: Option<Duration>) {
        self.next = match delay {
            Some(delay) => backoff::spread(delay, backoff::random()),
            None => REFUSED.delay(self.failures, backoff::random()),
        };
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_watch_is_repeated_soon_or_after_the_delay_that_is_set() {
        let mut delay = Delay::default();
        delay.refused(None);
        assert!(delay.next < Duration::from_millis(50), "{delay:?}");
        for _ in 0..1000 {
            delay.refused(Some(Duration::from_secs(80)));
            let range = Duration::from_secs(60)..=Duration::from_secs(100);
            assert!(range.contains(&delay.next), "{delay:?}");
        }
    }
}
