//! The ports, networks, ids and priorities that the agent uses on a node.
//!
//! Each of them is a setting, because another program may use the default.

use ebpf_common::settings as default;
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// Alias of the overlay device in `ip link`, by which the agent recognises the device.
pub(crate) const DEVICE_ALIAS: &str = "liqo route-agent";

/// Ports, networks, ids and priorities that the agent uses on a node.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Numbers that other programs may also use")]
pub(crate) struct Settings {
    /// UDP port of the overlay. The gateways must use the same port.
    #[arg(long, env = "LIQO_OVERLAY_PORT", default_value_t = default::OVERLAY_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) overlay_port: u16,

    /// VXLAN network identifier of the overlay. The gateways must use the same identifier.
    #[arg(long, env = "LIQO_OVERLAY_VNI", default_value_t = default::OVERLAY_VNI,
          value_parser = clap::value_parser!(u32).range(0..1 << 24))]
    pub(crate) overlay_vni: u32,

    /// UDP port of the probes of gateway replicas. The gateways must use the same port.
    #[arg(long, env = "LIQO_PROBE_PORT", default_value_t = default::PROBE_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) probe_port: u16,

    /// Network of the probe addresses, with one address per gateway replica. The gateways must use
    /// the same network.
    #[arg(long, env = "LIQO_PROBE_NET", default_value_t = probe_net(), value_parser = control_fabric::probe_network)]
    pub(crate) probe_net: Ipv4Net,

    /// Number of the routing table for remote clusters' CIDRs.
    #[arg(long, env = "LIQO_ROUTE_TABLE", default_value_t = default::ROUTE_TABLE,
          value_parser = clap::value_parser!(u32).range(256..))]
    pub(crate) route_table: u32,

    /// Priority of the policy rule. It must be less than 32766, the priority of the table `main`.
    #[arg(long, env = "LIQO_RULE_PRIORITY", default_value_t = default::RULE_PRIORITY,
          value_parser = clap::value_parser!(u32).range(1..32766))]
    pub(crate) rule_priority: u32,

    /// First of the 65,536 nexthop ids that the agent uses.
    #[arg(long, env = "LIQO_NEXTHOP_BASE", default_value_t = default::NEXTHOP_BASE,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(u32::MAX - NEXTHOP_IDS)))]
    pub(crate) nexthop_base: u32,

    /// Routing protocol number of the agent's routes, rules and nexthops.
    #[arg(long, env = "LIQO_ROUTE_PROTOCOL", default_value_t = default::ROUTE_PROTOCOL)]
    pub(crate) route_protocol: u8,

    /// Number to subtract from the standard nft priorities, so that the agent's chains run before
    /// the chains of other programs.
    // The priority of a NAT chain must be greater than -200, and the standard priority is -100.
    #[arg(long, env = "LIQO_NFT_LEAD", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(0..100))]
    pub(crate) nft_lead: u16,

    /// Interfaces on which overlay frames may have any source, because the CNI checks the
    /// sources of the pods behind them. A trailing `*` matches any rest of the name.
    // With Cilium, the routes to pods lead through cilium_host instead of the pods' interfaces, so
    // the reverse path check would fail for every pod.
    #[arg(long, env = "LIQO_TRUSTED_INTERFACES", value_name = "NAMES", value_delimiter = ',',
          default_value = CILIUM_PODS, value_parser = parse_interface)]
    pub(crate) trusted_interfaces: Vec<String>,

    /// Open sockets at the UDP ports on which this node receives the gateways' tunnel datagrams, so that the kernel joins
    /// the datagrams. Without them, cards without UDP segmentation reach half of the throughput.
    #[arg(long, env = "LIQO_TUNNEL_GRO", value_name = "BOOL", default_value_t = true,
          action = clap::ArgAction::Set)]
    pub(crate) tunnel_gro: bool,
}

/// Names of the interfaces through which Cilium connects pods with the node.
const CILIUM_PODS: &str = "lxc*";

impl Default for Settings {
    fn default() -> Self {
        Self {
            overlay_port: default::OVERLAY_PORT,
            overlay_vni: default::OVERLAY_VNI,
            probe_port: default::PROBE_PORT,
            probe_net: probe_net(),
            route_table: default::ROUTE_TABLE,
            rule_priority: default::RULE_PRIORITY,
            nexthop_base: default::NEXTHOP_BASE,
            route_protocol: default::ROUTE_PROTOCOL,
            nft_lead: 1,
            trusted_interfaces: vec![CILIUM_PODS.to_owned()],
            tunnel_gro: true,
        }
    }
}

/// Number of nexthop ids that the agent uses, starting at [`Settings::nexthop_base`].
pub(crate) const NEXTHOP_IDS: u32 = 0x1_0000;
/// Offset of the first nexthop group's id from [`Settings::nexthop_base`]. Single nexthops have
/// lower ids.
pub(crate) const FIRST_GROUP: u32 = 0x1000;
/// Class of the nexthops for probes of gateway replicas. Each other class is for the routes of one
/// MTU.
pub(crate) const PROBES: u8 = 0;
/// Highest class of nexthops. Each class has a range of 256 nexthop ids, with one id for each
/// gateway replica.
pub(crate) const CLASS_MAX: u8 = 15;

const _: () = assert!((CLASS_MAX as u32 + 1) << u8::BITS == FIRST_GROUP);

impl Settings {
    pub(crate) const fn device(&self) -> &'static str {
        default::OVERLAY_DEVICE
    }

    pub(crate) const fn mac(&self) -> [u8; 6] {
        default::NODE_MAC
    }

    /// Returns whether a nexthop id is in the agent's range.
    pub(crate) fn is_nexthop(&self, id: u32) -> bool {
        id.checked_sub(self.nexthop_base)
            .is_some_and(|offset| offset < NEXTHOP_IDS)
    }

    /// Returns the id of the nexthop to the replica with the slot number `slot`, which
    /// `plan::slots` has assigned. `class` is from [`PROBES`] to [`CLASS_MAX`].
    pub(crate) fn hop_id(&self, slot: u8, class: u8) -> u32 {
        let offset = u32::from(class) << u8::BITS | u32::from(slot);

        self.nexthop_base.saturating_add(offset)
    }

    /// Returns the class of the nexthop with this id, `None` for [`PROBES`] and for all other ids.
    pub(crate) fn class_of(&self, id: u32) -> Option<u8> {
        let offset = id.checked_sub(self.nexthop_base)?;
        let class = u8::try_from(offset >> u8::BITS).ok()?;

        (PROBES < class && class <= CLASS_MAX).then_some(class)
    }

    /// Returns the probe address of the replica with the slot number `slot`.
    pub(crate) fn probe_address(&self, slot: u8) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.probe_net.network().to_bits() | u32::from(slot))
    }
}

/// Maximum length of an interface name in bytes: `IFNAMSIZ` of `linux/if.h` without the final zero.
const INTERFACE_LEN_MAX: usize = 15;

fn parse_interface(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('*').unwrap_or(text);
    let is_legal = |c: char| c.is_ascii_graphic() && !"*/\\\"@,".contains(c);
    if name.is_empty() || name.len() > INTERFACE_LEN_MAX || !name.chars().all(is_legal) {
        return Err(format!(
            "expected an interface name of at most {INTERFACE_LEN_MAX} characters, or a prefix of such a name and a *"
        ));
    }

    Ok(text.to_owned())
}

fn probe_net() -> Ipv4Net {
    Ipv4Net::new(default::PROBE_NET, default::PROBE_NET_LEN)
        .expect("the default prefix length is at most 32")
}
