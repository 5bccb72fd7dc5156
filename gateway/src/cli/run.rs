//! `gateway run`

use super::Instance;
use crate::shell::site;
use crate::shell::start::{self, Options};
use anyhow::Context as _;
use clap::Args;
use ebpf_common::settings::{self, Settings};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The longest that leaving may be asked to take, in seconds.
const LEAVE_MAX: f64 = 3600.0;

/// Serve all peers of the fabric file until stopped.
///
/// The file is watched: a valid change is applied without losing a session, an invalid
/// one is reported (log, status, metrics) and the last good state stays in force.
/// SIGTERM and SIGINT let peers and nodes move to other replicas first. Namespace,
/// devices and kernel programs stay, and the next start adopts them; `gateway cleanup`
/// removes them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Run {
    /// The desired state: a YAML file of Liqo's resources and the nodes.
    #[arg(long, value_name = "FILE", env = "LIQO_CONFIG")]
    config: PathBuf,

    /// The private keys: DIR/SECRET/privateKey, 32 raw bytes, as mounted Secrets have them.
    #[arg(long, value_name = "DIR", env = "LIQO_KEYS")]
    keys: PathBuf,

    /// This replica's name in the file's EndpointSlice [default: the host name].
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    replica: Option<String>,

    #[command(flatten)]
    instance: Instance,

    /// UDP port of WireGuard, for all peers.
    #[arg(long, value_name = "PORT", default_value_t = 51840, value_parser = clap::value_parser!(u16).range(1..))]
    listen_port: u16,

    /// Where to serve /metrics, /healthz and /readyz.
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,

    /// Seconds that leaving may take at most.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    leave_timeout: Duration,

    /// UDP port of the overlay (VXLAN), the same on all nodes and gateways.
    #[arg(long, value_name = "PORT", default_value_t = settings::OVERLAY_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    overlay_port: u16,

    /// VXLAN network identifier of the overlay.
    #[arg(long, value_name = "VNI", default_value_t = settings::OVERLAY_VNI, value_parser = clap::value_parser!(u32).range(1..1 << 24))]
    overlay_vni: u32,

    /// MTU of the overlay device [default: that of the underlay less 50].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65_000))]
    overlay_mtu: Option<u32>,

    /// MAC address of all nodes' overlay devices.
    #[arg(long, value_name = "MAC", default_value = "02:6c:71:00:00:01", value_parser = mac)]
    node_mac: [u8; 6],

    /// MAC address of all gateways' overlay devices.
    #[arg(long, value_name = "MAC", default_value = "02:6c:71:00:00:02", value_parser = mac)]
    gateway_mac: [u8; 6],
}

const EXAMPLES: &str = "\
Examples:
  gateway run --config fabric.yaml --keys keys
  gateway run --config fabric.yaml --keys keys --replica gateway-1 --http 0.0.0.0:9090
  RUST_LOG=debug gateway run --config fabric.yaml --keys keys";

impl Run {
    pub(super) fn run(self) -> anyhow::Result<()> {
        process::logging::init();
        let replica = match self.replica {
            Some(name) => name,
            None => std::fs::read_to_string("/proc/sys/kernel/hostname")
                .context("failed to read the host name: give --replica")?
                .trim()
                .to_owned(),
        };
        start::run(Options {
            socket: self.instance.socket(),
            config: self.config,
            keys: self.keys,
            replica,
            listen_port: self.listen_port,
            http: self.http,
            leave_timeout: self.leave_timeout,
            plan: site::Plan {
                instance: self.instance.name,
                overlay_mtu: self.overlay_mtu,
                settings: Settings {
                    overlay_port: self.overlay_port,
                    overlay_vni: self.overlay_vni,
                    node_mac: self.node_mac,
                    gateway_mac: self.gateway_mac,
                    ..Settings::default()
                },
            },
        })
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=LEAVE_MAX).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!(
            "a number of seconds from 0 to {LEAVE_MAX}, such as 2 or 0.5"
        )),
    }
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    const FORM: &str = "six bytes in hexadecimal, such as 02:6c:71:00:00:01";
    let bytes: Result<Vec<_>, _> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16))
        .collect();
    let mac: [u8; 6] = bytes
        .map_err(|_| FORM.to_owned())?
        .try_into()
        .map_err(|_| FORM.to_owned())?;
    if mac[0] & 1 == 1 {
        return Err("a group address names no device: make the first byte even".into());
    }
    Ok(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_macs_are_the_settings() {
        assert_eq!(mac("02:6c:71:00:00:01"), Ok(settings::NODE_MAC));
        assert_eq!(mac("02:6c:71:00:00:02"), Ok(settings::GATEWAY_MAC));
    }

    #[test]
    fn what_is_no_mac_is_refused() {
        for text in [
            "",
            "02:6c:71:00:00",
            "02:6c:71:00:00:01:02",
            "xx:6c:71:00:00:01",
            "01:00:00:00:00:00",
        ] {
            assert!(mac(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_time_to_leave_is_a_number_of_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "-1", "NaN", "inf", "2s"] {
            assert!(seconds(text).is_err(), "{text:?}");
        }
    }
}
