//! Waiting for a cluster to do its part.

use crate::failure::Unreachable;
use crate::parse;
use anyhow::{Result, bail};
use std::time::Duration;
use tokio::time::Instant;

/// How often is looked. Objects change within tens of milliseconds once a controller
/// runs, and a person notices a fifth of a second.
const PERIOD: Duration = Duration::from_millis(100);

/// When a command gives up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    total: Duration,
}

/// What a look at the cluster found.
pub(crate) enum Found<T> {
    /// All that was waited for.
    Ready(T),
    /// Something is missing; the text says what, with the cure if one is known.
    Missing(String),
}

impl Deadline {
    /// Returns the deadline `total` from now.
    pub(crate) fn after(total: Duration) -> Self {
        let at = Instant::now() + total;
        Self { at, total }
    }

    /// Returns the earlier of this deadline and the one `total` from now.
    pub(crate) fn within(self, total: Duration) -> Self {
        let sooner = Self::after(total);
        if sooner.at < self.at { sooner } else { self }
    }

    /// Returns the time that is left.
    pub(crate) fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Looks until something is there.
    ///
    /// # Errors
    ///
    /// Returns the error of `look`, or one with the last thing missing when the time is over.
    pub(crate) async fn until<T>(
        self,
        what: &str,
        mut look: impl AsyncFnMut() -> Result<Found<T>>,
    ) -> Result<T> {
        loop {
            // A look itself must not outlast the deadline by much.
            let missing = match tokio::time::timeout_at(self.at + PERIOD, look()).await {
                Ok(Ok(Found::Ready(value))) => return Ok(value),
                Ok(Ok(Found::Missing(missing))) => missing,
                // An API server that is restarted answers again.
                Ok(Err(error)) if error.is::<Unreachable>() => error.to_string(),
                Ok(Err(error)) => return Err(error),
                Err(_) => "the API server does not answer".to_owned(),
            };
            if Instant::now() + PERIOD > self.at {
                let total = parse::show_duration(self.total);
                bail!("{what} took longer than {total}: {missing}");
            }
            tokio::time::sleep(PERIOD).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_is_told_at_the_end() {
        let deadline = Deadline::after(Duration::from_secs(2));

        let result: Result<()> = deadline
            .until("the endpoint", async || {
                Ok(Found::Missing("no address".into()))
            })
            .await;

        assert_eq!(
            result.unwrap_err().to_string(),
            "the endpoint took longer than 2s: no address"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_late_is_found() {
        let mut looks = 0;

        let found = Deadline::after(Duration::from_secs(9))
            .until("it", async || {
                looks += 1;
                Ok(match looks {
                    5 => Found::Ready("here"),
                    _ => Found::Missing("not yet".into()),
                })
            })
            .await;

        assert_eq!(found.unwrap(), "here");
    }
}
