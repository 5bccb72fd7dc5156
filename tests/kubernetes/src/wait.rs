//! Waits for conditions, with deadlines.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// When to give up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// In `duration` from now.
    pub fn after(duration: Duration) -> Self {
        Self(Instant::now() + duration)
    }
}

/// Calls `look` until it succeeds, and returns what it returned.
///
/// # Errors
///
/// At the deadline returns the last error, and `what` was waited for.
pub async fn until<T>(
    deadline: Deadline,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    loop {
        let error = match tokio::time::timeout(LOOK_MAX, look()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
            Err(_) => anyhow::anyhow!("no answer within {} s", LOOK_MAX.as_secs()),
        };
        if Instant::now() >= deadline.0 {
            bail!("waited in vain for {what}: {error:#}");
        }
        tokio::time::sleep(LOOK).await;
    }
}
