//! Waits for conditions, with deadlines.

use anyhow::{Result, anyhow, bail};
use std::time::{Duration, Instant};

/// The limit for a condition that a test only waits for.
///
/// It bounds a test that hangs, and promises nothing. The slowest condition takes 30 s on an idle
/// machine (kube-proxy's longest sync period, six attempts of a WireGuard handshake); a loaded
/// machine takes four times as long.
pub const SOON: Duration = Duration::from_secs(120);

const INTERVAL: Duration = Duration::from_millis(100);

/// The limit of one check.
const CHECK_MAX: Duration = Duration::from_secs(10);

/// When a wait times out.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// In `duration` from now.
    pub fn after(duration: Duration) -> Self {
        Self(Instant::now() + duration)
    }
}

/// Calls `check` until it succeeds, and returns its value.
///
/// # Errors
///
/// Returns the last error of `check` and the name of the condition, `what`, at the deadline.
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
