//! Flags for ports, identifiers and networks that may collide with those of other software.

use clap::Args;
use ebpf_common::settings::{self as default, Settings};
use ipnet::Ipv4Net;

/// Ports, identifiers and networks that must be equal in all gateways and route agents of a
/// cluster.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Numbers that may collide with other software")]
pub(super) struct Numbers {
    /// UDP port of the overlay; must be the same in all route agents.
    #[arg(long, value_name = "PORT", env = "LIQO_OVERLAY_PORT", default_value_t = default::OVERLAY_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    overlay_port: u16,

    /// VXLAN network identifier of the overlay; must be the same in all route agents.
    #[arg(long, value_name = "VNI", env = "LIQO_OVERLAY_VNI", default_value_t = default::OVERLAY_VNI,
          value_parser = clap::value_parser!(u32).range(0..1 << 24))]
    overlay_vni: u32,

    /// UDP port of the overlay probe; must be the same in all route agents.
    #[arg(long, value_name = "PORT", env = "LIQO_PROBE_PORT", default_value_t = default::PROBE_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    probe_port: u16,

    /// Network with a probe address for each gateway replica; must be the same in all route agents.
    #[arg(long, value_name = "CIDR", env = "LIQO_PROBE_NET", default_value = "169.254.19.0/24",
          value_parser = control_fabric::probe_network)]
    probe_net: Ipv4Net,
}

impl Numbers {
    /// Returns the settings of the eBPF programs and devices, with defaults for all other fields.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            overlay_port: self.overlay_port,
            overlay_vni: self.overlay_vni,
            probe_port: self.probe_port,
            probe_net: self.probe_net.network(),
            probe_net_len: self.probe_net.prefix_len(),
            ..Settings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        numbers: Numbers,
    }

    #[test]
    fn the_defaults_are_the_settings() {
        let only = Only::try_parse_from(["test"]).unwrap();

        assert_eq!(only.numbers.settings(), Settings::default());
    }

    #[test]
    fn a_probe_network_that_route_agents_refuse_is_refused() {
        for text in ["", "169.254.19.0", "169.254.19.1/24", "169.254.19.0/25"] {
            let only = Only::try_parse_from(["test", "--probe-net", text]);
            assert!(only.is_err(), "{text:?}");
        }
    }
}
