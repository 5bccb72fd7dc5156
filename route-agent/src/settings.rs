//! Every number of the node that others might collide with; each can be set.

use ebpf_common::settings as default;
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// Text by which people recognise our device (`ip link`).
pub(crate) const DEVICE_ALIAS: &str = "liqo route-agent";

/// The numbers in use on this node.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Numbers that others might use too")]
pub(crate) struct Settings {
    /// UDP port of the overlay; the gateways' must be the same.
    #[arg(long, env = "LIQO_OVERLAY_PORT", default_value_t = default::OVERLAY_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) overlay_port: u16,

    /// VXLAN network identifier of the overlay; the gateways' must be the same.
    #[arg(long, env = "LIQO_OVERLAY_VNI", default_value_t = default::OVERLAY_VNI,
          value_parser = clap::value_parser!(u32).range(0..1 << 24))]
    pub(crate) overlay_vni: u32,

    /// UDP port of the overlay probe; the gateways' must be the same.
    #[arg(long, env = "LIQO_PROBE_PORT", default_value_t = default::PROBE_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) probe_port: u16,

    /// Network of the probe's addresses, one per gateway replica; the gateways' must be the same.
    #[arg(long, env = "LIQO_PROBE_NET", default_value_t = probe_net(), value_parser = parse_probe_net)]
    pub(crate) probe_net: Ipv4Net,

    /// Number of the routing table.
    #[arg(long, env = "LIQO_ROUTE_TABLE", default_value_t = default::ROUTE_TABLE,
          value_parser = clap::value_parser!(u32).range(256..))]
    pub(crate) route_table: u32,

    /// Priority of the policy rule; must precede that of `main`, 32766.
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

    /// How far before the standard nft priorities our chains run.
    // NAT has priority -100, and the kernel wants its chains above -200.
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

/// Of each id, the part that the nexthop base does not fix.
pub(crate) const NEXTHOP_IDS: u32 = 0x1_0000;
/// The first group's place behind the nexthop base; hops come before.
pub(crate) const FIRST_GROUP: u32 = 0x1000;
/// The class of the hops that probes use.
pub(crate) const PROBES: u8 = 0;
/// The last class of hops; each has 256 ids below the groups'.
pub(crate) const CLASS_MAX: u8 = 15;

const _: () = assert!((CLASS_MAX as u32 + 1) << u8::BITS == FIRST_GROUP);

impl Settings {
    /// Name of the overlay device.
    pub(crate) const fn device(&self) -> &'static str {
        default::OVERLAY_DEVICE
    }

    /// MAC address of the overlay device.
    pub(crate) const fn mac(&self) -> [u8; 6] {
        default::NODE_MAC
    }

    /// Whether a nexthop id is one of ours.
    pub(crate) fn is_nexthop(&self, id: u32) -> bool {
        id.checked_sub(self.nexthop_base)
            .is_some_and(|place| place < NEXTHOP_IDS)
    }

    /// Returns the id of the hop of that class, from [`PROBES`] to [`CLASS_MAX`], in that slot.
    pub(crate) fn hop_id(&self, slot: u8, class: u8) -> u32 {
        let place = u32::from(class) << u8::BITS | u32::from(slot);

        self.nexthop_base.saturating_add(place)
    }

    /// Returns the class of the hop with that id; `None` if it is that of probes, or the id is no hop's.
    pub(crate) fn class_of(&self, id: u32) -> Option<u8> {
        let place = id.checked_sub(self.nexthop_base)?;
        let class = u8::try_from(place >> u8::BITS).ok()?;

        (PROBES < class && class <= CLASS_MAX).then_some(class)
    }

    /// Returns the probe's address of the replica in that slot.
    pub(crate) fn probe_address(&self, slot: u8) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.probe_net.network().to_bits() | u32::from(slot))
    }
}

/// Most bits of the probe's network: it has an address for each slot.
const PROBE_NET_LEN_MAX: u8 = 24;

fn parse_probe_net(text: &str) -> Result<Ipv4Net, String> {
    let net: Ipv4Net = text
        .parse()
        .map_err(|_| "a network such as 169.254.19.0/24 is needed".to_owned())?;
    if net.trunc() != net {
        return Err(format!("write {}: no bits behind the prefix", net.trunc()));
    }
    if net.prefix_len() > PROBE_NET_LEN_MAX {
        return Err(format!(
            "a prefix of at most {PROBE_NET_LEN_MAX} bits is needed"
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
            "a name of 1 to {INTERFACE_LEN_MAX} characters is needed, or the beginning of one and a *"
        ));
    }

    Ok(text.to_owned())
}

fn probe_net() -> Ipv4Net {
    Ipv4Net::new(default::PROBE_NET, default::PROBE_NET_LEN)
        .expect("the default is at most 32 bits long")
}
