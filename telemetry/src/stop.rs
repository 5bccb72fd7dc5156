//! Waits for the signals that stop a process.

use std::io;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for the first `SIGTERM` or `SIGINT`, and returns the name of the signal.
///
/// # Errors
///
/// Returns an error if the signal handlers cannot be installed.
pub async fn requested() -> io::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    Ok(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}
