//! Packet counters of the eBPF programs.

/// A packet counter. The discriminant is the index in [`crate::maps::COUNTERS`].
///
/// `Overlay*` counts packets that arrive from nodes, and `Tap*` counts packets that arrive from
/// peers.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Packets forwarded to a peer.
    OverlayForwarded,
    /// Overlay probe requests that got a reply.
    OverlayProbeAnswered,
    /// Dropped: the frame is not IPv4.
    OverlayNotIpv4,
    /// Dropped: headers are truncated, contradict each other or are split over fragments.
    OverlayMalformed,
    /// Dropped: a source route option (RFC 791) would bypass the destination check.
    OverlaySourceRouted,
    /// Dropped: the frame has no tunnel key, so it did not arrive through VXLAN.
    OverlayNoTunnelKey,
    /// Dropped: the VXLAN network identifier is not the identifier of the overlay.
    OverlayWrongVni,
    /// Dropped: the outer source is not the address of a node.
    OverlayUnknownNode,
    /// Dropped: the inner source is not an address of this cluster.
    OverlayUnknownSource,
    /// Dropped: the destination belongs to no peer.
    OverlayUnknownDestination,
    /// Dropped: the packet is an ICMP redirect, or an ICMP error whose receiver cannot have sent
    /// the quoted packet to this cluster.
    OverlayQuoteRefused,
    /// Dropped: an overlay probe arrived after the engine's process died, or while the engine's
    /// heartbeat was too old.
    OverlayProbeStale,
    /// Dropped: the packet was sent to an overlay probe address, but is not a probe request.
    OverlayProbeMalformed,
    /// Dropped: a kernel helper failed to rewrite the packet.
    OverlayRewriteFailed,
    /// Packets forwarded to a node.
    TapForwarded,
    /// Packets forwarded from one peer to another peer.
    TapTransited,
    /// ICMP errors from a source in no CIDR of the peer. The program replaced the source by the
    /// peer's address in [`UNKNOWN_SOURCES_V4`](crate::maps::UNKNOWN_SOURCES_V4).
    TapUnknownSourceMapped,
    /// Dropped: the frame is not IPv4.
    TapNotIpv4,
    /// Dropped: headers are truncated, contradict each other or are split over fragments.
    TapMalformed,
    /// Dropped: a source route option (RFC 791) would bypass the destination check.
    TapSourceRouted,
    /// Dropped: the source MAC address encodes no peer.
    TapUnknownPeer,
    /// Dropped: the source is in no CIDR of the peer.
    TapUnknownSource,
    /// Dropped: the destination is not an address of this cluster.
    TapUnknownDestination,
    /// Dropped: the packet is an ICMP redirect, or an ICMP error whose receiver cannot have sent
    /// the quoted packet to the peer.
    TapQuoteRefused,
    /// Dropped: the packet goes from one peer to another, and an IP object is missing for one of
    /// its ends.
    TapTransitRefused,
    /// Dropped: the TTL of a packet between two peers expired.
    TapTtlExceeded,
    /// Dropped: a kernel helper failed to rewrite the packet.
    TapRewriteFailed,
    /// TCP SYN segments in which a program lowered the announced maximum segment size.
    MssClamped,
}

impl Counter {
    /// All counters, in the order of their indices in the map.
    pub const ALL: [Self; 28] = [
        Self::OverlayForwarded,
        Self::OverlayProbeAnswered,
        Self::OverlayNotIpv4,
        Self::OverlayMalformed,
        Self::OverlaySourceRouted,
        Self::OverlayNoTunnelKey,
        Self::OverlayWrongVni,
        Self::OverlayUnknownNode,
        Self::OverlayUnknownSource,
        Self::OverlayUnknownDestination,
        Self::OverlayQuoteRefused,
        Self::OverlayProbeStale,
        Self::OverlayProbeMalformed,
        Self::OverlayRewriteFailed,
        Self::TapForwarded,
        Self::TapTransited,
        Self::TapUnknownSourceMapped,
        Self::TapNotIpv4,
        Self::TapMalformed,
        Self::TapSourceRouted,
        Self::TapUnknownPeer,
        Self::TapUnknownSource,
        Self::TapUnknownDestination,
        Self::TapQuoteRefused,
        Self::TapTransitRefused,
        Self::TapTtlExceeded,
        Self::TapRewriteFailed,
        Self::MssClamped,
    ];

    /// Returns the counter's name in metrics and status. The name is stable across versions.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OverlayForwarded => "overlay_forwarded",
            Self::OverlayProbeAnswered => "overlay_probe_answered",
            Self::OverlayNotIpv4 => "overlay_not_ipv4",
            Self::OverlayMalformed => "overlay_malformed",
            Self::OverlaySourceRouted => "overlay_source_routed",
            Self::OverlayNoTunnelKey => "overlay_no_tunnel_key",
            Self::OverlayWrongVni => "overlay_wrong_vni",
            Self::OverlayUnknownNode => "overlay_unknown_node",
            Self::OverlayUnknownSource => "overlay_unknown_source",
            Self::OverlayUnknownDestination => "overlay_unknown_destination",
            Self::OverlayQuoteRefused => "overlay_quote_refused",
            Self::OverlayProbeStale => "overlay_probe_stale",
            Self::OverlayProbeMalformed => "overlay_probe_malformed",
            Self::OverlayRewriteFailed => "overlay_rewrite_failed",
            Self::TapForwarded => "tap_forwarded",
            Self::TapTransited => "tap_transited",
            Self::TapUnknownSourceMapped => "tap_unknown_source_mapped",
            Self::TapNotIpv4 => "tap_not_ipv4",
            Self::TapMalformed => "tap_malformed",
            Self::TapSourceRouted => "tap_source_routed",
            Self::TapUnknownPeer => "tap_unknown_peer",
            Self::TapUnknownSource => "tap_unknown_source",
            Self::TapUnknownDestination => "tap_unknown_destination",
            Self::TapQuoteRefused => "tap_quote_refused",
            Self::TapTransitRefused => "tap_transit_refused",
            Self::TapTtlExceeded => "tap_ttl_exceeded",
            Self::TapRewriteFailed => "tap_rewrite_failed",
            Self::MssClamped => "mss_clamped",
        }
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
