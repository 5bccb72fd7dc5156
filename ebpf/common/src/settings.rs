//! Numbers and names that another system on the machine might use, too.
//!
//! The constants are the defaults; [`Settings`] holds the values of one installation.

use core::net::Ipv4Addr;

/// UDP port of the overlay's VXLAN: upstream's Geneve port, which no CNI uses.
pub const OVERLAY_PORT: u16 = 6091;

/// VXLAN network identifier of the overlay, 24 bits.
pub const OVERLAY_VNI: u32 = 0x6c71;

/// MAC address of the overlay device of every node.
pub const NODE_MAC: [u8; 6] = [0x02, 0x6c, 0x71, 0, 0, 0x01];

/// MAC address of the overlay device of every gateway replica.
pub const GATEWAY_MAC: [u8; 6] = [0x02, 0x6c, 0x71, 0, 0, 0x02];

/// First four bytes of a peer's MAC address at the TAP; the peer's index follows.
pub const PEER_MAC_PREFIX: [u8; 4] = [0x02, 0x6c, 0x70, 0];

/// Network of the overlay probe's addresses, one per gateway replica.
pub const PROBE_NET: Ipv4Addr = Ipv4Addr::new(169, 254, 19, 0);

/// Prefix length of [`PROBE_NET`].
pub const PROBE_NET_LEN: u8 = 24;

/// UDP port of the overlay probe, at both ends.
pub const PROBE_PORT: u16 = 6092;

/// Network of the addresses of the liveness probe inside the tunnel, as upstream's.
pub const LIVENESS_NET: Ipv4Addr = Ipv4Addr::new(169, 254, 18, 0);

/// Prefix length of [`LIVENESS_NET`].
pub const LIVENESS_NET_LEN: u8 = 24;

/// The server's address in [`LIVENESS_NET`].
pub const LIVENESS_SERVER: Ipv4Addr = Ipv4Addr::new(169, 254, 18, 1);

/// The client's address in [`LIVENESS_NET`].
pub const LIVENESS_CLIENT: Ipv4Addr = Ipv4Addr::new(169, 254, 18, 2);

/// UDP port of the liveness probe inside the tunnel, as upstream's.
pub const LIVENESS_PORT: u16 = 12345;

/// UDP port of the nodes' echo responders; must be the same in both clusters.
pub const REFLECTOR_PORT: u16 = 6093;

/// Routing table of the route agent.
pub const ROUTE_TABLE: u32 = 27761;

/// Priority of the route agent's rules; precedes `main` at 32766.
pub const RULE_PRIORITY: u32 = 27761;

/// First nexthop id of the route agent; the lower 16 bits are a counter.
pub const NEXTHOP_BASE: u32 = 0x6c71_0000;

/// Routing protocol number that marks our routes and nexthops.
pub const ROUTE_PROTOCOL: u8 = 0x6c;

/// Name of the nft table, in family `inet`.
pub const NFT_TABLE: &str = "liqo";

/// Name of the VXLAN device, on nodes and in the gateway's namespace.
pub const OVERLAY_DEVICE: &str = "liqo-overlay";

/// Name of the TAP in the gateway's namespace.
pub const TAP_DEVICE: &str = "liqo-tap";

/// The numbers that the kernel programs and their loader use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// UDP port of the overlay.
    pub overlay_port: u16,
    /// VXLAN network identifier of the overlay, 24 bits.
    pub overlay_vni: u32,
    /// MAC address of the overlay device of every node.
    pub node_mac: [u8; 6],
    /// MAC address of the overlay device of every gateway replica.
    pub gateway_mac: [u8; 6],
    /// First four bytes of a peer's MAC address at the TAP.
    pub peer_mac_prefix: [u8; 4],
    /// Network of the overlay probe's addresses.
    pub probe_net: Ipv4Addr,
    /// Prefix length of `probe_net`, at most 32.
    pub probe_net_len: u8,
    /// UDP port of the overlay probe.
    pub probe_port: u16,
    /// Network of the addresses of the liveness probe inside the tunnel.
    pub liveness_net: Ipv4Addr,
    /// Prefix length of `liveness_net`, at most 32.
    pub liveness_net_len: u8,
    /// UDP port of the liveness probe inside the tunnel.
    pub liveness_port: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            overlay_port: OVERLAY_PORT,
            overlay_vni: OVERLAY_VNI,
            node_mac: NODE_MAC,
            gateway_mac: GATEWAY_MAC,
            peer_mac_prefix: PEER_MAC_PREFIX,
            probe_net: PROBE_NET,
            probe_net_len: PROBE_NET_LEN,
            probe_port: PROBE_PORT,
            liveness_net: LIVENESS_NET,
            liveness_net_len: LIVENESS_NET_LEN,
            liveness_port: LIVENESS_PORT,
        }
    }
}

impl Settings {
    /// Returns the MAC address that encodes `peer` between eBPF and engine.
    pub const fn peer_mac(&self, peer: u16) -> [u8; 6] {
        let [a, b, c, d] = self.peer_mac_prefix;
        let [high, low] = peer.to_be_bytes();
        [a, b, c, d, high, low]
    }

    /// Returns the peer that `mac` encodes, or `None` for any other address.
    pub fn peer_of_mac(&self, mac: [u8; 6]) -> Option<u16> {
        let [a, b, c, d, high, low] = mac;
        ([a, b, c, d] == self.peer_mac_prefix).then(|| u16::from_be_bytes([high, low]))
    }
}

#[cfg(test)]
mod tests;
