//! Writes logs to standard error: as text if it is a terminal, otherwise as JSON.

use std::io::{self, IsTerminal as _};
use tracing_subscriber::EnvFilter;

/// Log directives that precede the directives of `RUST_LOG`.
///
/// They silence two libraries, which log expected conditions as errors: a peer that does not reply,
/// and an API server that is unreachable. The programs report both conditions themselves. kube also logs
/// the complete response if it cannot decode it, which may be a list of Secrets or 32 MiB of a hostile
/// server.
const DEFAULT: &str = "info,boringtun=off,kube_client::client=off";

/// Starts logging with the level `INFO`, unless `RUST_LOG` sets another level.
///
/// The function ignores invalid directives in `RUST_LOG`, because a typing error must not prevent
/// the start of a gateway.
///
/// # Panics
///
/// Panics if called twice in one process.
pub fn init() {
    let directives = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(&directives))
        .with_writer(io::stderr);

    if io::stderr().is_terminal() {
        builder.with_target(false).init();
    } else {
        builder.json().flatten_event(true).init();
    }
}

/// Returns a filter with the directives of [`DEFAULT`], followed by `directives`. The later of two
/// contradictory directives takes precedence.
fn filter(directives: &str) -> EnvFilter {
    EnvFilter::builder().parse_lossy(format!("{DEFAULT},{directives}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;

    /// Returns whether the filter accepts an error of boringtun, and a `DEBUG` message of the
    /// gateway.
    fn logged(directives: &str) -> (bool, bool) {
        let subscriber = tracing_subscriber::registry().with(filter(directives));
        tracing::subscriber::with_default(subscriber, || {
            (
                tracing::enabled!(target: "boringtun::noise", tracing::Level::ERROR),
                tracing::enabled!(target: "gateway::shell", tracing::Level::DEBUG),
            )
        })
    }

    #[test]
    fn libraries_log_only_if_a_directive_names_them() {
        assert_eq!(logged(""), (false, false));
        assert_eq!(logged("debug"), (false, true));
        assert_eq!(logged("boringtun=error"), (true, false));
        assert_eq!(logged("]["), (false, false));
    }

    #[test]
    fn responses_that_kube_cannot_decode_are_not_logged() {
        let subscriber = tracing_subscriber::registry().with(filter(""));
        tracing::subscriber::with_default(subscriber, || {
            assert!(!tracing::enabled!(target: "kube_client::client", tracing::Level::WARN));
            assert!(tracing::enabled!(target: "control_runtime::watch", tracing::Level::WARN));
        });
    }
}
