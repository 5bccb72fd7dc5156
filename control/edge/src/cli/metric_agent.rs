//! `edge metric-agent`.

use super::{count, raise_descriptor_limit, stop};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use control_runtime::{self as runtime, Replicas, Runtime, transport};
use edge::metric_agent::{
    CertificateFiles, Follower, KubeletCertificates, KubeletSettings, Metrics, ScrapeLimits,
    Server, Settings, TIMEOUTS,
};
use kube::Config;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Serves the metrics of each consumer's pods, as the API `metrics.liqo.io`.
///
/// The API server forwards requests to this API server, and proves itself by its client certificate. A consumer reads the
/// metrics of its own pods. Administrators need the right `get` on `scrape/metrics` and `scrape/all` in the API group
/// `metrics.liqo.io`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MetricAgentArgs {
    /// Accept API servers at this address.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8443")]
    listen: SocketAddr,

    /// File with the certificate of this server, in PEM. It is followed for changes.
    #[arg(long, value_name = "FILE", default_value = "/certificates/tls.crt")]
    cert_path: PathBuf,

    /// File with the private key of this server, in PEM.
    #[arg(long, value_name = "FILE", default_value = "/certificates/tls.key")]
    key_path: PathBuf,

    /// Which certificates of kubelets are accepted. With `any`, a process between this one and a kubelet can read the token
    /// of this process.
    #[arg(long, value_name = "WHICH", default_value = "verified")]
    kubelet_certificates: Accepted,

    /// File with the certificates of the authority of kubelets, in PEM.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    )]
    kubelet_certificate_authority: PathBuf,

    /// File with the token for kubelets.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    )]
    kubelet_token: PathBuf,

    /// Time to connect to a kubelet.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    kubelet_connect_timeout: Duration,

    /// Time for the response of a kubelet.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    kubelet_timeout: Duration,

    /// Time for the responses of all kubelets, at most nine tenths of --write-timeout. metrics-server waits for 10 seconds.
    #[arg(long, value_name = "DURATION", default_value = "8s", value_parser = duration)]
    scrape_timeout: Duration,

    /// Maximum number of scrapes in progress.
    #[arg(long, value_name = "N", default_value = "32", value_parser = count)]
    scrapes_max: usize,

    /// Maximum number of scrapes in progress of one consumer.
    #[arg(long, value_name = "N", default_value = "8", value_parser = count)]
    scrapes_per_consumer_max: usize,

    /// Maximum memory for the samples of all scrapes, in MiB.
    #[arg(long, value_name = "MIB", default_value = "256", value_parser = count)]
    memory_max: usize,

    /// Maximum memory for the samples of one scrape, in MiB.
    #[arg(long, value_name = "MIB", default_value = "64", value_parser = count)]
    scrape_memory_max: usize,

    /// Time from a connection to its first request.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    read_timeout: Duration,

    /// Time from a request to the end of the response.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    write_timeout: Duration,

    /// Serve metrics and health of this process at this address.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    http: SocketAddr,
}

/// Which certificates of kubelets are accepted.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Accepted {
    /// Certificates of the authority, for the address or the name of the node.
    Verified,
    /// All certificates.
    Any,
}

const EXAMPLES: &str = "\
Examples:
  edge metric-agent
  edge metric-agent --kubelet-certificates=any --scrape-timeout=20s";

/// Name of the process in Events.
const NAME: &str = "liqo-metric-agent";

/// Largest amount of memory in MiB, so that its bytes are a number of 64 bits.
const MIB_MAX: usize = 1 << 20;

impl MetricAgentArgs {
    /// Runs until the process receives a signal to stop.
    ///
    /// # Errors
    ///
    /// Returns an error if the process cannot start.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        raise_descriptor_limit();
        let config = Config::infer()
            .await
            .context("failed to find the API server: run in a pod, or set KUBECONFIG")?;
        let client = transport::client(&config)?;
        let mut registry = Registry::with_prefix("liqo_metric_agent");
        let metrics = Metrics::new(&mut registry);
        let runtime_metrics = runtime::Metrics::new(&mut registry);
        let settings = runtime::Settings {
            name: NAME,
            identity: format!("{NAME}-{}", std::process::id()),
            // The process creates no keys.
            random: || [0; 32],
        };
        let mut runtime = Runtime::new(client.clone(), settings, runtime_metrics);
        runtime.add(Follower, &Replicas::Active)?;
        let listener = TcpListener::bind(self.listen).await.with_context(|| {
            let address = self.listen;
            format!("failed to listen on {address}: choose another --listen address")
        })?;
        let (reader, status) = (runtime.reader(), runtime.status());
        let server = Server::new(self.settings(), reader, status, client, metrics)
            .context("failed to set up TLS")?;
        tracing::info!(listen = %self.listen, "accepting API servers");
        let served = telemetry::http::serve(self.http, Arc::new(registry), server.state());
        let running = async { tokio::join!(runtime.run(stop()), server.run(listener, stop())) };

        tokio::select! {
            served = served => served.context("the HTTP server has ended"),
            _ = running => Ok(()),
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            kubelets: KubeletSettings {
                certificates: match self.kubelet_certificates {
                    Accepted::Verified => KubeletCertificates::Verified,
                    Accepted::Any => KubeletCertificates::Any,
                },
                authority: self.kubelet_certificate_authority.clone(),
                token: self.kubelet_token.clone(),
                connect_timeout: self.kubelet_connect_timeout,
                timeout: self.kubelet_timeout,
            },
            certificate: CertificateFiles {
                certificate: self.cert_path.clone(),
                key: self.key_path.clone(),
            },
            limits: ScrapeLimits {
                scrapes: self.scrapes_max,
                scrapes_per_consumer: self.scrapes_per_consumer_max,
                memory: self.memory_max.min(MIB_MAX) << 20,
                memory_per_scrape: self.scrape_memory_max.min(MIB_MAX) << 20,
                timeout: self.scrape_timeout.min(self.write_timeout * 9 / 10),
                ..ScrapeLimits::default()
            },
            timeouts: https_server::Timeouts {
                start: self.read_timeout,
                response: Some(self.write_timeout),
                ..TIMEOUTS
            },
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let remedy = || format!("`{text}` is not a positive duration: use one like 30s");
    let duration: kube::core::Duration = text.trim().parse().map_err(|_| remedy())?;
    let duration = Some(duration).filter(|it| !it.is_negative());
    let duration = duration.map(Duration::from).filter(|it| !it.is_zero());

    duration.ok_or_else(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        agent: MetricAgentArgs,
    }

    fn parsed(flags: &[&str]) -> Result<Settings, clap::Error> {
        let flags = Flags::try_parse_from(["edge"].iter().chain(flags))?;
        Ok(flags.agent.settings())
    }

    #[test]
    fn the_default_verifies_kubelets_and_responds_before_metrics_server_gives_up() {
        let settings = parsed(&[]).unwrap();

        let certificates = settings.kubelets.certificates;
        assert_eq!(certificates, KubeletCertificates::Verified);
        assert!(settings.limits.timeout < Duration::from_secs(10));
        assert!(settings.kubelets.timeout < settings.limits.timeout);
    }

    #[test]
    fn kubelets_have_less_time_than_the_whole_response() {
        let settings = parsed(&["--write-timeout=5s", "--scrape-timeout=1m"]).unwrap();

        assert_eq!(settings.timeouts.response, Some(Duration::from_secs(5)));
        assert_eq!(settings.limits.timeout, Duration::from_millis(4500));
    }

    #[test]
    fn wrong_flags_are_refused() {
        for flag in [
            "--read-timeout=0s",
            "--read-timeout=-1s",
            "--read-timeout=30",
            "--kubelet-certificates=none",
            "--scrapes-max=0",
            "--memory-max=many",
        ] {
            assert!(parsed(&[flag]).is_err(), "{flag}");
        }
        assert!(parsed(&["--memory-max=99999999999999999"]).is_ok());
    }
}
