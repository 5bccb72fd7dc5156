//! Logs to standard error: text on a terminal, else JSON.

use std::io::{self, IsTerminal as _};
use tracing_subscriber::EnvFilter;

/// Directives that precede those of `RUST_LOG`.
///
/// The two libraries log expected conditions as errors: a peer without reply, each attempt to
/// connect to an unreachable API server. Our own logs and metrics report both.
const DEFAULT: &str = "info,boringtun=off,kube_client::client::builder=off";

/// Starts logging, at `INFO` unless `RUST_LOG` sets another level.
///
/// Invalid directives in `RUST_LOG` are ignored, so that a typing error there never
/// keeps a gateway from starting.
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

/// Appends `directives` to [`DEFAULT`]: later directives override earlier ones.
fn filter(directives: &str) -> EnvFilter {
    EnvFilter::builder().parse_lossy(format!("{DEFAULT},{directives}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;

    /// Returns whether an error of boringtun and a `DEBUG` message of the gateway are logged.
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
}
