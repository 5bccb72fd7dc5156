//! What the programs count.

/// A counter; its number is the index in the map.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Overlay: sent to a peer.
    OverlayForwarded,
    /// Overlay: probes answered.
    OverlayProbeAnswered,
    /// Overlay: not IPv4, left to others.
    OverlayNotIpv4,
    /// Overlay: dropped, headers truncated or contradictory.
    OverlayMalformed,
    /// Overlay: dropped, came without a tunnel key.
    OverlayNoTunnelKey,
    /// Overlay: dropped, another VXLAN network identifier.
    OverlayWrongVni,
    /// Overlay: dropped, the outer source is no node.
    OverlayUnknownNode,
    /// Overlay: dropped, the inner source is none of ours.
    OverlayUnknownSource,
    /// Overlay: dropped, the destination belongs to no peer.
    OverlayUnknownDestination,
    /// Overlay: dropped, a probe while the engine's process is dead or its heartbeat too old.
    OverlayProbeStale,
    /// Overlay: dropped, no probe on the probe's address and port.
    OverlayProbeMalformed,
    /// Overlay: dropped, the kernel refused a rewrite.
    OverlayRewriteFailed,
    /// TAP: sent to a node.
    TapForwarded,
    /// TAP: sent on to another peer.
    TapTransited,
    /// TAP: ICMP errors of a peer's unknown sources that were let through.
    TapUnknownSourceMapped,
    /// TAP: not IPv4, left to others.
    TapNotIpv4,
    /// TAP: dropped, headers truncated or contradictory.
    TapMalformed,
    /// TAP: dropped, the frame names no peer.
    TapUnknownPeer,
    /// TAP: dropped, the inner source is none of the peer's.
    TapUnknownSource,
    /// TAP: dropped, the destination is none of ours.
    TapUnknownDestination,
    /// TAP: dropped, from one peer to another without an IP object for both.
    TapTransitRefused,
    /// TAP: dropped, too many hops between peers.
    TapTtlExceeded,
    /// TAP: dropped, the kernel refused a rewrite.
    TapRewriteFailed,
    /// Segment sizes lowered in TCP handshakes.
    MssClamped,
}

impl Counter {
    /// Every counter, in the order of the map.
    pub const ALL: [Self; 24] = [
        Self::OverlayForwarded,
        Self::OverlayProbeAnswered,
        Self::OverlayNotIpv4,
        Self::OverlayMalformed,
        Self::OverlayNoTunnelKey,
        Self::OverlayWrongVni,
        Self::OverlayUnknownNode,
        Self::OverlayUnknownSource,
        Self::OverlayUnknownDestination,
        Self::OverlayProbeStale,
        Self::OverlayProbeMalformed,
        Self::OverlayRewriteFailed,
        Self::TapForwarded,
        Self::TapTransited,
        Self::TapUnknownSourceMapped,
        Self::TapNotIpv4,
        Self::TapMalformed,
        Self::TapUnknownPeer,
        Self::TapUnknownSource,
        Self::TapUnknownDestination,
        Self::TapTransitRefused,
        Self::TapTtlExceeded,
        Self::TapRewriteFailed,
        Self::MssClamped,
    ];

    /// Returns the name under which metrics and status show it; stable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OverlayForwarded => "overlay_forwarded",
            Self::OverlayProbeAnswered => "overlay_probe_answered",
            Self::OverlayNotIpv4 => "overlay_not_ipv4",
            Self::OverlayMalformed => "overlay_malformed",
            Self::OverlayNoTunnelKey => "overlay_no_tunnel_key",
            Self::OverlayWrongVni => "overlay_wrong_vni",
            Self::OverlayUnknownNode => "overlay_unknown_node",
            Self::OverlayUnknownSource => "overlay_unknown_source",
            Self::OverlayUnknownDestination => "overlay_unknown_destination",
            Self::OverlayProbeStale => "overlay_probe_stale",
            Self::OverlayProbeMalformed => "overlay_probe_malformed",
            Self::OverlayRewriteFailed => "overlay_rewrite_failed",
            Self::TapForwarded => "tap_forwarded",
            Self::TapTransited => "tap_transited",
            Self::TapUnknownSourceMapped => "tap_unknown_source_mapped",
            Self::TapNotIpv4 => "tap_not_ipv4",
            Self::TapMalformed => "tap_malformed",
            Self::TapUnknownPeer => "tap_unknown_peer",
            Self::TapUnknownSource => "tap_unknown_source",
            Self::TapUnknownDestination => "tap_unknown_destination",
            Self::TapTransitRefused => "tap_transit_refused",
            Self::TapTtlExceeded => "tap_ttl_exceeded",
            Self::TapRewriteFailed => "tap_rewrite_failed",
            Self::MssClamped => "mss_clamped",
        }
    }

    /// Tells whether it counts dropped packets.
    pub const fn is_drop(self) -> bool {
        !matches!(
            self,
            Self::OverlayForwarded
                | Self::OverlayProbeAnswered
                | Self::OverlayNotIpv4
                | Self::TapForwarded
                | Self::TapTransited
                | Self::TapUnknownSourceMapped
                | Self::TapNotIpv4
                | Self::MssClamped
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_indices() {
        for (index, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!(counter as usize, index);
        }
    }

    #[test]
    fn no_two_counters_share_a_name() {
        let mut names: Vec<_> = Counter::ALL.iter().map(|counter| counter.name()).collect();

        names.sort_unstable();
        names.dedup();

        assert_eq!(names.len(), Counter::ALL.len());
    }
}
