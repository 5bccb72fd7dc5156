//! `edge proxy`.

use super::{count, raise_descriptor_limit, stop};
use anyhow::Context as _;
use clap::Args;
use edge::proxy::{Limit, Metrics, Proxy, Settings, Timeouts};
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Proxies HTTP CONNECT requests to this cluster's API server.
///
/// Every request leads to the API server, whatever its target is. Clients authenticate themselves at the API server: the
/// proxy has no credentials.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProxyArgs {
    /// Accept clients at this address.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8118")]
    listen: SocketAddr,

    /// The API server.
    #[arg(long, value_name = "HOST:PORT", default_value = "kubernetes.default.svc:443", value_parser = host_and_port)]
    api_server: String,

    /// Maximum number of open connections.
    #[arg(long, value_name = "N", default_value = "1024", value_parser = count)]
    connections_max: usize,

    /// Maximum number of open connections of one source address.
    #[arg(long, value_name = "N", default_value = "256", value_parser = count)]
    connections_per_source_max: usize,

    /// Time without data after which a connection is closed. Watches of Kubernetes may be silent for ten minutes.
    #[arg(long, value_name = "SECONDS", default_value = "900", value_parser = seconds)]
    idle_timeout: Duration,

    /// Serve metrics and health at this address.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    http: SocketAddr,

    /// Time after SIGTERM or SIGINT after which open connections are closed.
    #[arg(long, value_name = "SECONDS", default_value = "25", value_parser = seconds)]
    leave_timeout: Duration,
}

const EXAMPLES: &str = "\
Examples:
  edge proxy
  edge proxy --listen=127.0.0.1:8118 --api-server=192.0.2.7:6443 --leave-timeout=0";

/// Time after which kube-proxy on all nodes knows that this pod is not ready.
const ENDPOINT_REMOVAL: Duration = Duration::from_secs(5);

/// Maximum of times given as flags, in seconds: a year.
const SECONDS_MAX: f64 = 31_536_000.0;

impl ProxyArgs {
    /// Runs until the process receives a signal to stop.
    ///
    /// # Errors
    ///
    /// Returns an error if an address cannot be bound.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        raise_descriptor_limit();
        let mut registry = Registry::with_prefix("liqo_proxy");
        let metrics = Metrics::new(&mut registry);
        let proxy = Proxy::new(self.settings(), metrics);
        let listener = TcpListener::bind(self.listen).await.with_context(|| {
            let address = self.listen;
            format!("failed to listen on {address}: choose another --listen address")
        })?;
        tracing::info!(listen = %self.listen, api_server = self.api_server, "accepting clients");
        let served = telemetry::http::serve(self.http, Arc::new(registry), proxy.state());

        tokio::select! {
            served = served => served.context("the HTTP server has ended"),
            () = proxy.run(listener, stop()) => Ok(()),
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            api_server: self.api_server.clone(),
            limits: Limit {
                total: self.connections_max,
                per_source: self.connections_per_source_max,
            },
            timeouts: Timeouts {
                idle: self.idle_timeout,
                ..Timeouts::default()
            },
            accept_after_stop: ENDPOINT_REMOVAL,
            leave_timeout: self.leave_timeout,
        }
    }
}

fn host_and_port(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':').filter(|(host, port)| {
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        !host.is_empty() && is_port && (!host.contains(':') || host.starts_with('['))
    });

    parts.map(|_| text.to_owned()).ok_or_else(|| {
        format!("`{text}` is no host and port: use one like kubernetes.default.svc:443")
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!(
            "`{text}` is not a number of seconds: use one like 900"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_checked() {
        assert!(host_and_port("kubernetes.default.svc:443").is_ok());
        assert!(host_and_port("[fd00::1]:6443").is_ok());
        for text in ["", "kubernetes", ":443", "x:0", "x:65536", "fd00::1:443"] {
            assert!(host_and_port(text).is_err(), "{text:?}");
        }
        assert_eq!(count("256"), Ok(256));
        for text in ["", "0", "-1", "many"] {
            assert!(count(text).is_err(), "{text:?}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "-1", "NaN", "inf", "1e300", "2s"] {
            assert!(seconds(text).is_err(), "{text:?}");
        }
    }
}
