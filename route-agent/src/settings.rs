//! The numbers in use on a node; each can be set, because other programs may use the same.

use ebpf_common::settings as default;
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// Identifies our device in `ip link`.
pub(crate) const DEVICE_ALIAS: &str = "liqo route-agent";

/// The numbers in use on a node.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Numbers that others might use too")]
pub(crate) struct Settings {
    /// UDP port of the overlay; the same as the gateways'.
    #[arg(long, env = "LIQO_OVERLAY_PORT", default_value_t = default::OVERLAY_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) overlay_port: u16,

    /// VXLAN network identifier of the overlay; the same as the gateways'.
    #[arg(long, env = "LIQO_OVERLAY_VNI", default_value_t = default::OVERLAY_VNI,
          value_parser = clap::value_parser!(u32).range(0..1 << 24))]
    pub(crate) overlay_vni: u32,

    /// UDP port of the overlay probe; the same as the gateways'.
    #[arg(long, env = "LIQO_PROBE_PORT", default_value_t = default::PROBE_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) probe_port: u16,

    /// Network of the probe addresses, one per gateway replica; the same as the gateways'.
    #[arg(long, env = "LIQO_PROBE_NET", default_value_t = probe_net(), value_parser = parse_probe_net)]
    pub(crate) probe_net: Ipv4Net,

    /// Number of the routing table.
    #[arg(long, env = "LIQO_ROUTE_TABLE", default_value_t = default::ROUTE_TABLE,
          value_parser = clap::value_parser!(u32).range(256..))]
    pub(crate) route_table: u32,

    /// Priority of the policy rule; must be less than that of `main`, 32766.
    #[arg(long, env = "LIQO_RULE_PRIORITY", default_value_t = default::RULE_PRIORITY,
          value_parser = clap::value_parser!(u32).range(1..32766))]
    pub(crate) rule_priority: u32,

    /// First of the 65,536 nexthop ids.
    #[arg(long, env = "LIQO_NEXTHOP_BASE", default_value_t = default::NEXTHOP_BASE,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(u32::MAX - NEXTHOP_IDS)))]
    pub(crate) nexthop_base: u32,

    /// Routing protocol number that marks routes, rules and nexthops.
    #[arg(long, env = "LIQO_ROUTE_PROTOCOL", default_value_t = default::ROUTE_PROTOCOL)]
    pub(crate) route_protocol: u8,

    /// Subtracted from the standard nft priorities, so that our chains run before those of others.
    // The kernel requires more than -200 for NAT, whose standard priority is -100.
    #[arg(long, env = "LIQO_NFT_LEAD", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(0..100))]
    pub(crate) nft_lead: u16,

    /// Interfaces whose overlay packets may have any source, because the CNI checks the
    /// sources of the pods behind them; a trailing `*` matches any rest of the name.
    // Those of Cilium's pods: their routes lead through cilium_host instead.
    #[arg(long, env = "LIQO_TRUSTED_INTERFACES", value_name = "NAMES", value_delimiter = ',',
          default_value = CILIUM_PODS, value_parser = parse_interface)]
    pub(crate) trusted_interfaces: Vec<String>,
}

/// The node's ends of Cilium's pod interfaces.
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
        }
    }
}

/// Number of nexthop ids from the nexthop base on.
pub(crate) const NEXTHOP_IDS: u32 = 0x1_0000;
/// Offset of the first group's id from the nexthop base; hops have lower ids.
pub(crate) const FIRST_GROUP: u32 = 0x1000;
/// The class of the hops for probes.
pub(crate) const PROBES: u8 = 0;
/// The last class of hops; each class has 256 ids.
pub(crate) const CLASS_MAX: u8 = 15;

const _: () = assert!((CLASS_MAX as u32 + 1) << u8::BITS == FIRST_GROUP);

impl Settings {
    pub(crate) const fn device(&self) -> &'static str {
        default::OVERLAY_DEVICE
    }

    pub(crate) const fn mac(&self) -> [u8; 6] {
        default::NODE_MAC
    }

    /// Whether a nexthop id is in our range.
    pub(crate) fn is_nexthop(&self, id: u32) -> bool {
        id.checked_sub(self.nexthop_base)
            .is_some_and(|offset| offset < NEXTHOP_IDS)
    }

    /// Returns the id of the hop to the replica in `slot`; `class` is from [`PROBES`] to [`CLASS_MAX`].
    pub(crate) fn hop_id(&self, slot: u8, class: u8) -> u32 {
        let offset = u32::from(class) << u8::BITS | u32::from(slot);

        self.nexthop_base.saturating_add(offset)
    }

    /// Returns the class of a hop; `None` for [`PROBES`] and for ids of other nexthops.
    pub(crate) fn class_of(&self, id: u32) -> Option<u8> {
        let offset = id.checked_sub(self.nexthop_base)?;
        let class = u8::try_from(offset >> u8::BITS).ok()?;

        (PROBES < class && class <= CLASS_MAX).then_some(class)
    }

    /// Returns the probe address of the replica in `slot`.
    pub(crate) fn probe_address(&self, slot: u8) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.probe_net.network().to_bits() | u32::from(slot))
    }
}

/// Longest prefix of the probe network with an address for each slot.
const PROBE_NET_LEN_MAX: u8 = 24;

fn parse_probe_net(text: &str) -> Result<Ipv4Net, String> {
    let net: Ipv4Net = text
        .parse()
        .map_err(|_| "this is no network such as 169.254.19.0/24".to_owned())?;
    if net.trunc() != net {
        return Err(format!("host bits are set: write {}", net.trunc()));
    }
    if net.prefix_len() > PROBE_NET_LEN_MAX {
        return Err(format!(
            "the prefix length must be at most {PROBE_NET_LEN_MAX}"
        ));
    }

    Ok(net)
}

/// Longest name of an interface: `IFNAMSIZ` of `linux/if.h` without the final zero.
const INTERFACE_LEN_MAX: usize = 15;

fn parse_interface(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('*').unwrap_or(text);
    let is_legal = |c: char| c.is_ascii_graphic() && !"*/\\\"@,".contains(c);
    if name.is_empty() || name.len() > INTERFACE_LEN_MAX || !name.chars().all(is_legal) {
        return Err(format!(
            "this is neither an interface name of at most {INTERFACE_LEN_MAX} characters nor a prefix of one and a *"
        ));
    }

    Ok(text.to_owned())
}

fn probe_net() -> Ipv4Net {
    Ipv4Net::new(default::PROBE_NET, default::PROBE_NET_LEN)
        .expect("the default is at most 32 bits long")
}
