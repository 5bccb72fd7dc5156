//! Waits for a condition, with a deadline.

use anyhow::{Result, bail};
use std::thread;
use std::time::{Duration, Instant};

/// Waits until `condition` holds.
///
/// # Errors
///
/// Returns an error that names `what` if the deadline passes first, or the
/// error of `condition` at once.
pub fn until(
    timeout: Duration,
    what: &str,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    value(timeout, what, || Ok(condition()?.then_some(())))
}

/// Waits until `probe` yields a value.
///
/// # Errors
///
/// Returns an error that names `what` if the deadline passes first, or the
/// error of `probe` at once.
pub fn value<T>(
    timeout: Duration,
    what: &str,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + timeout;
    let mut pause = PAUSE_MIN;

    loop {
        if let Some(value) = probe()? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            bail!("timed out after {timeout:?} waiting for {what}");
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Interval of polls: short enough not to slow a test, long enough not to load the machine.
const PAUSE_MAX: Duration = Duration::from_millis(50);
