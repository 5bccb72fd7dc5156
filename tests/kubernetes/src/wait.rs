//! Waits for conditions until a deadline.

use anyhow::{Result, anyhow, bail};
use std::time::{Duration, Instant};

/// The time limit for a condition whose delay the test does not measure.
///
/// The limit ends a hanging test. It is not a performance goal. The slowest conditions take 30 s on
/// an idle machine: kube-proxy's longest sync period, and six attempts of a WireGuard handshake. A
/// loaded machine takes four times as long.
pub const SOON: Duration = Duration::from_secs(120);

const INTERVAL: Duration = Duration::from_millis(100);

/// The time-out of a single check.
const CHECK_MAX: Duration = Duration::from_secs(10);

/// The time at which a wait times out.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline that is `duration` from now.
    pub fn after(duration: Duration) -> Self {
        Self(Instant::now() + duration)
    }
}

/// Calls `check` until it succeeds, and returns its value.
///
/// # Errors
///
/// Returns an error at the deadline. The error contains `what`, which describes the condition, and
/// the last error of `check`.
pub async fn until<T>(
    deadline: Deadline,
    what: &str,
    mut check: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    loop {
        let error = match tokio::time::timeout(CHECK_MAX, check()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
            Err(_) => anyhow!("a check timed out after {} s", CHECK_MAX.as_secs()),
        };
        if Instant::now() >= deadline.0 {
            bail!("timed out waiting for {what}: {error:#}");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
