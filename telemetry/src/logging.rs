//! Logs: for people on a terminal, JSON for machines otherwise.

use std::io::{self, IsTerminal as _};
use tracing_subscriber::EnvFilter;

/// What is logged unless `RUST_LOG` says otherwise: not what libraries call errors although it is
/// none, or is told by us in better words (a peer that does not answer; each try to reach an
/// API server that is away).
const DEFAULT: &str = "info,boringtun=off,kube_client::client::builder=off";

/// Starts logging to standard error, at `INFO` unless `RUST_LOG` says otherwise.
///
/// Directives that `RUST_LOG` holds but nobody understands are ignored, so that
/// a typing error there never keeps a gateway from starting.
///
/// # Panics
///
/// Panics if called twice in one process.
pub fn init() {
    let wishes = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(&wishes))
        .with_writer(io::stderr);

    if io::stderr().is_terminal() {
        builder.with_target(false).init();
    } else {
        builder.json().flatten_event(true).init();
    }
}

/// What is logged if `RUST_LOG` is `wishes`: later directives go before earlier ones.
fn filter(wishes: &str) -> EnvFilter {
    EnvFilter::builder().parse_lossy(format!("{DEFAULT},{wishes}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;

    /// Tells which of an error of boringtun's and a debugging message of ours are logged.
    fn logged(wishes: &str) -> (bool, bool) {
        let subscriber = tracing_subscriber::registry().with(filter(wishes));
        tracing::subscriber::with_default(subscriber, || {
            (
                tracing::enabled!(target: "boringtun::noise", tracing::Level::ERROR),
                tracing::enabled!(target: "gateway::shell", tracing::Level::DEBUG),
            )
        })
    }

    #[test]
    fn libraries_are_quiet_unless_they_are_named() {
        assert_eq!(logged(""), (false, false));
        assert_eq!(logged("debug"), (false, true));
        assert_eq!(logged("boringtun=error"), (true, false));
        assert_eq!(logged("]["), (false, false));
    }
}
