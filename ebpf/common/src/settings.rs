//! Numbers and names that may collide with other software on a node.
//!
//! The constants are the defaults. [`Settings`] holds the values of one installation.

use core::net::Ipv4Addr;

/// UDP port of the overlay's VXLAN. Upstream Liqo uses it for Geneve, and no CNI uses it.
pub const OVERLAY_PORT: u16 = 6091;

/// VXLAN network identifier of the overlay, 24 bits.
pub const OVERLAY_VNI: u32 = 0x6c71;

/// MAC address of the overlay device of every node.
pub const NODE_MAC: [u8; 6] = [0x02, 0x6c, 0x71, 0, 0, 0x01];

/// MAC address of the overlay device of every gateway replica.
pub const GATEWAY_MAC: [u8; 6] = [0x02, 0x6c, 0x71, 0, 0, 0x02];

/// First four bytes of a peer's MAC address on the TAP. The last two bytes are the peer's index.
pub const PEER_MAC_PREFIX: [u8; 4] = [0x02, 0x6c, 0x70, 0];

/// Network that contains one overlay probe address per gateway replica.
pub const PROBE_NET: Ipv4Addr = Ipv4Addr::new(169, 254, 19, 0);

/// Prefix length of [`PROBE_NET`].
pub const PROBE_NET_LEN: u8 = 24;

/// UDP port of the overlay probe, on nodes and gateways.
pub const PROBE_PORT: u16 = 6092;

/// Network of the liveness probe inside the tunnel, as in upstream Liqo.
pub const LIVENESS_NET: Ipv4Addr = Ipv4Addr::new(169, 254, 18, 0);

/// Prefix length of [`LIVENESS_NET`].
pub const LIVENESS_NET_LEN: u8 = 24;

/// Address in [`LIVENESS_NET`] of the gateway that is the server of the tunnel.
pub const LIVENESS_SERVER: Ipv4Addr = Ipv4Addr::new(169, 254, 18, 1);

/// Address in [`LIVENESS_NET`] of the gateway that is the client of the tunnel.
pub const LIVENESS_CLIENT: Ipv4Addr = Ipv4Addr::new(169, 254, 18, 2);

/// UDP port of the liveness probe inside the tunnel, as in upstream Liqo.
pub const LIVENESS_PORT: u16 = 12345;

/// UDP port of the echo responders, which reply to end-to-end checks from nodes of remote clusters.
///
/// The port must be the same in both clusters.
pub const ECHO_RESPONDER_PORT: u16 = 6093;

/// Number of the routing table that holds the route agent's routes.
pub const ROUTE_TABLE: u32 = 27761;

/// Priority of the route agent's routing rules, which precede the rule for `main` at 32766.
pub const RULE_PRIORITY: u32 = 27761;

/// Lowest nexthop id of the route agent. Its other nexthop ids differ only in the lower 16 bits.
pub const NEXTHOP_BASE: u32 = 0x6c71_0000;

/// Routing protocol number that marks the route agent's routes and nexthops.
pub const ROUTE_PROTOCOL: u8 = 0x6c;

/// Name of the route agent's nft table, in family `inet`.
pub const NFT_TABLE: &str = "liqo";

/// Name of the VXLAN device, on nodes and in the gateway's network namespace.
pub const OVERLAY_DEVICE: &str = "liqo-overlay";

/// Name of the TAP device in the gateway's network namespace.
pub const TAP_DEVICE: &str = "liqo-tap";

/// The settings that the eBPF programs and their loader use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// UDP port of the overlay; by default [`OVERLAY_PORT`].
    pub overlay_port: u16,
    /// VXLAN network identifier of the overlay, 24 bits; by default [`OVERLAY_VNI`].
    pub overlay_vni: u32,
    /// MAC address of the overlay device of every node; by default [`NODE_MAC`].
    pub node_mac: [u8; 6],
    /// MAC address of the overlay device of every gateway replica; by default [`GATEWAY_MAC`].
    pub gateway_mac: [u8; 6],
    /// First four bytes of a peer's MAC address on the TAP; by default [`PEER_MAC_PREFIX`].
    pub peer_mac_prefix: [u8; 4],
    /// Network that contains the overlay probe addresses; by default [`PROBE_NET`].
    pub probe_net: Ipv4Addr,
    /// Prefix length of `probe_net`, at most 32; by default [`PROBE_NET_LEN`].
    pub probe_net_len: u8,
    /// UDP port of the overlay probe; by default [`PROBE_PORT`].
    pub probe_port: u16,
    /// Network of the liveness probe inside the tunnel; by default [`LIVENESS_NET`].
    pub liveness_net: Ipv4Addr,
    /// Prefix length of `liveness_net`, at most 32; by default [`LIVENESS_NET_LEN`].
    pub liveness_net_len: u8,
    /// UDP port of the liveness probe inside the tunnel; by default [`LIVENESS_PORT`].
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
    /// Returns the MAC address by which the eBPF programs and the engine identify `peer`.
    pub const fn peer_mac(&self, peer: u16) -> [u8; 6] {
        let [a, b, c, d] = self.peer_mac_prefix;
        let [high, low] = peer.to_be_bytes();
        [a, b, c, d, high, low]
    }

    /// Returns the peer that `mac` encodes, or `None` if `mac` lacks the prefix of peers.
    pub fn peer_of_mac(&self, mac: [u8; 6]) -> Option<u16> {
        let [a, b, c, d, high, low] = mac;
        ([a, b, c, d] == self.peer_mac_prefix).then(|| u16::from_be_bytes([high, low]))
    }
}

#[cfg(test)]
mod tests;
