//! Waits for conditions in a cluster, with a deadline.

use crate::failure::Unreachable;
use crate::parse;
use crate::progress;
use anyhow::{Result, bail};
use std::time::Duration;
use tokio::time::Instant;

/// Time between observations. A controller writes objects within tens of milliseconds, and a user
/// does not notice a delay below a fifth of a second.
pub(crate) const PERIOD: Duration = Duration::from_millis(100);

/// Time between two lines about the missing part.
const REPORTED: Duration = Duration::from_secs(5);

/// The end of the time limit of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    total: Duration,
}

/// Result of an observation.
pub(crate) enum Found<T> {
    /// The condition is met.
    Ready(T),
    /// The condition is not met. The text names the missing part, with the remedy if one is known.
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

    /// Returns the remaining time.
    pub(crate) fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Observes until the condition is met. Errors call the condition `goal`.
    ///
    /// # Errors
    ///
    /// Returns the error of `observe`, or an error with the missing part at the deadline.
    pub(crate) async fn until<T>(
        self,
        goal: &str,
        observe: impl AsyncFnMut() -> Result<Found<T>>,
    ) -> Result<T> {
        let changed = async || tokio::time::sleep(PERIOD).await;
        self.until_changed(goal, observe, changed).await
    }

    /// Observes until the condition is met, and prints a missing part that lasts, for conditions that take long.
    ///
    /// # Errors
    ///
    /// Returns the error of `observe`, or an error with the missing part at the deadline.
    pub(crate) async fn until_reporting<T>(
        self,
        goal: &str,
        mut observe: impl AsyncFnMut() -> Result<Found<T>>,
    ) -> Result<T> {
        let mut next = Instant::now() + REPORTED;
        let mut last = String::new();
        let observed = async || {
            let found = observe().await?;
            if let Found::Missing(missing) = &found
                && Instant::now() >= next
                && last != *missing
            {
                progress::info(format_args!("{goal}: {missing}"));
                next = Instant::now() + REPORTED;
                last.clone_from(missing);
            }
            Ok(found)
        };
        self.until(goal, observed).await
    }

    /// Observes after each return of `changed`, until the condition is met.
    ///
    /// # Errors
    ///
    /// Returns the error of `observe`, or an error with the missing part at the deadline.
    pub(crate) async fn until_changed<T>(
        self,
        goal: &str,
        mut observe: impl AsyncFnMut() -> Result<Found<T>>,
        mut changed: impl AsyncFnMut(),
    ) -> Result<T> {
        loop {
            // An observation must not exceed the deadline by much.
            let missing = match tokio::time::timeout_at(self.at + PERIOD, observe()).await {
                Ok(Ok(Found::Ready(value))) => return Ok(value),
                Ok(Ok(Found::Missing(missing))) => missing,
                // The API server may be restarting.
                Ok(Err(error)) if error.is::<Unreachable>() => error.to_string(),
                Ok(Err(error)) => return Err(error),
                Err(_) => "the request to the API server timed out".to_owned(),
            };
            if Instant::now() + PERIOD > self.at {
                let total = parse::show_duration(self.total);
                bail!("{goal} took longer than {total}: {missing}");
            }
            // At the deadline, the last observation decides.
            let _ = tokio::time::timeout_at(self.at, changed()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_error_at_the_deadline_names_the_missing_part() {
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
    async fn a_missing_part_that_lasts_is_printed_once_until_it_changes() {
        let start = Instant::now();
        let found = Deadline::after(Duration::from_secs(60))
            .until_reporting("deleting", async || {
                Ok(match start.elapsed().as_secs() {
                    0..2 => Found::Missing("c still exists".to_owned()),
                    2..20 => Found::Missing("a still exists".to_owned()),
                    20..21 => Found::Missing("b still exists".to_owned()),
                    _ => Found::Ready(()),
                })
            })
            .await;

        assert!(found.is_ok());
        assert_eq!(
            progress::take_lines(),
            ["a", "b"].map(|it| format!("INFO: deleting: {it} still exists"))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_result_is_returned() {
        let mut observations = 0;

        let found = Deadline::after(Duration::from_secs(9))
            .until("it", async || {
                observations += 1;
                Ok(match observations {
                    5 => Found::Ready("here"),
                    _ => Found::Missing("not yet".into()),
                })
            })
            .await;

        assert_eq!(found.unwrap(), "here");
    }
}
