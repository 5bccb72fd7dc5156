//! The command `gateway run`.

use super::Instance;
use super::numbers::Numbers;
use crate::cipher::Choice;
use crate::engine::LANES_MAX;
use crate::shell::desired::KeyStore;
use crate::shell::start::{self, Options};
use crate::shell::{datapath_setup, lanes};
use anyhow::Context as _;
use clap::Args;
use control_source::Origin;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum of `--leave-timeout`, in seconds.
const LEAVE_MAX: f64 = 3600.0;

/// Serve all peers of a fabric file, or of the cluster's resources, until stopped.
///
/// The gateway watches the file or the resources. It applies a valid change without losing a
/// session. It reports an invalid change in log, status and metrics, and keeps the last valid
/// state. On SIGTERM or SIGINT it waits until peers and nodes use other replicas.
///
/// With --config, namespace, devices and eBPF programs outlive the process, and the next start
/// adopts them. `gateway cleanup` removes them. With --kubernetes they end with the process.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Run {
    #[command(flatten)]
    source: control_source::Arguments,

    /// Directory of the private keys: DIR/SECRET/privateKey, 32 raw bytes, as in mounted Secrets.
    /// With --kubernetes the default is the Secret liqo-gateway-keys.
    #[arg(
        long,
        value_name = "DIR",
        env = "LIQO_KEYS",
        required_unless_present = "kubernetes"
    )]
    keys: Option<PathBuf>,

    /// Name of this replica in the EndpointSlice [default: the host name].
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    replica: Option<String>,

    #[command(flatten)]
    instance: Instance,

    /// UDP port of WireGuard for all peers.
    #[arg(long, value_name = "PORT", default_value_t = 51840, value_parser = clap::value_parser!(u16).range(1..))]
    listen_port: u16,

    /// Number of packet loops, each with its own sessions [default: one per two cores, at most 4].
    #[arg(long, value_name = "N", env = "LIQO_LANES", value_parser = clap::value_parser!(u8).range(1..=i64::from(LANES_MAX)))]
    lanes: Option<u8>,

    /// Implementation of ChaCha20-Poly1305, which encrypts the packets.
    #[arg(long, value_enum, env = "LIQO_CIPHER", default_value_t = Choice::Auto)]
    cipher: Choice,

    /// Address for /metrics, /healthz and /readyz.
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,

    /// Maximum time to wait after SIGTERM or SIGINT until peers and nodes use other replicas.
    #[arg(long, value_name = "SECONDS", default_value = "8", value_parser = seconds)]
    leave_timeout: Duration,

    /// Interval of the probes of a session without traffic, 0.25 to 2. A peer that fails is detected
    /// that much later than one with traffic.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = idle_probe_interval)]
    idle_probe_interval: Duration,

    /// MTU of the overlay device [default: MTU of the underlay minus 50].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65_000))]
    overlay_mtu: Option<u32>,

    /// Log each packet that the eBPF programs drop, with the reason; slow, for debugging only.
    #[arg(long, env = "LIQO_LOG_DROPS")]
    log_drops: bool,

    #[command(flatten)]
    numbers: Numbers,
}

const EXAMPLES: &str = "\
Examples:
  gateway run --config fabric.yaml --keys keys
  gateway run --config fabric.yaml --keys keys --replica gateway-1 --http 0.0.0.0:9090
  gateway run --config fabric.yaml --keys keys --lanes 4
  gateway run --config fabric.yaml --keys keys --log-drops
  gateway run --kubernetes --namespace liqo --http 0.0.0.0:8082      in a pod
  RUST_LOG=debug gateway run --config fabric.yaml --keys keys";

impl Run {
    pub(super) fn run(self) -> anyhow::Result<()> {
        telemetry::logging::init();
        let replica = match self.replica {
            Some(name) => name,
            None => std::fs::read_to_string("/proc/sys/kernel/hostname")
                .context("failed to read the host name: set --replica")?
                .trim()
                .to_owned(),
        };
        let lanes = self.lanes.unwrap_or_else(lanes::default_count);
        let origin = self.source.origin();
        // The default security profiles of a pod forbid pins and mounts, so devices and programs
        // end with the process. During a restart, other replicas carry the traffic.
        let persistent = matches!(origin, Origin::File(_));
        start::run(Options {
            socket: self.instance.socket(),
            origin,
            keys: self.keys.map_or(KeyStore::Source, KeyStore::Directory),
            replica,
            listen_port: self.listen_port,
            cipher: self.cipher,
            http: self.http,
            leave_timeout: self.leave_timeout,
            idle_probe_interval: self.idle_probe_interval,
            plan: datapath_setup::Plan {
                instance: self.instance.name,
                persistent,
                overlay_mtu: self.overlay_mtu,
                settings: self.numbers.settings(),
                lanes,
                workers: lanes::workers(lanes),
                log_drops: self.log_drops,
            },
        })
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    within(text, 0.0..=LEAVE_MAX)
}

/// The shortest interval is that of a session with traffic.
fn idle_probe_interval(text: &str) -> Result<Duration, String> {
    within(text, 0.25..=2.0)
}

fn within(text: &str, range: RangeInclusive<f64>) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if range.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!(
            "expected a number of seconds from {} to {}, such as 2 or 0.5",
            range.start(),
            range.end()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leave_timeout_is_a_number_of_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "-1", "NaN", "inf", "2s"] {
            assert!(seconds(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_idle_probe_interval_is_limited() {
        assert_eq!(idle_probe_interval("1"), Ok(Duration::from_secs(1)));
        assert!(idle_probe_interval("0.2").is_err());
        assert!(idle_probe_interval("2.1").is_err());
    }
}
