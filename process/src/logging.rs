//! Logs: for people on a terminal, JSON for machines otherwise.

use std::io::{self, IsTerminal as _};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Starts logging to standard error, at `INFO` unless `RUST_LOG` says otherwise.
///
/// Directives that `RUST_LOG` holds but nobody understands are ignored, so that
/// a typing error there never keeps a gateway from starting.
///
/// # Panics
///
/// Panics if called twice in one process.
pub fn init() {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .from_env_lossy();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);

    if io::stderr().is_terminal() {
        builder.with_target(false).init();
    } else {
        builder.json().flatten_event(true).init();
    }
}
