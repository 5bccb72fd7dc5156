//! Polls a condition until it holds or a deadline passes.

use anyhow::{Result, bail};
use std::thread;
use std::time::{Duration, Instant};

/// Waits until `condition` returns `true`. `what` describes the condition, such as "a pod to
/// start".
///
/// # Errors
///
/// After the time-out, returns an error that contains `what`. If `condition` returns an error,
/// returns this error immediately.
pub fn until(
    timeout: Duration,
    what: &str,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    value(timeout, what, || Ok(condition()?.then_some(())))
}

/// Waits until `probe` returns a value. `what` describes the value, such as "a captured message".
///
/// # Errors
///
/// After the time-out, returns an error that contains `what`. If `probe` returns an error, returns
/// this error immediately.
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

/// Maximum interval between two polls. A longer interval would slow tests, and a shorter interval
/// would load the machine.
const PAUSE_MAX: Duration = Duration::from_millis(50);
