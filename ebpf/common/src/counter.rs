//! Packet counters of the kernel programs.

/// Counts packets by outcome; the number is the index in [`crate::maps::COUNTERS`].
///
/// `Overlay*` counts what nodes send, `Tap*` what peers send.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Sent to a peer.
    OverlayForwarded,
    /// Overlay probes replied to.
    OverlayProbeAnswered,
    /// Dropped: not IPv4.
    OverlayNotIpv4,
    /// Dropped: headers are truncated, contradict each other or are split over fragments.
    OverlayMalformed,
    /// Dropped: a source route option (RFC 791) would bypass the destination check.
    OverlaySourceRouted,
    /// Dropped: the frame did not come through a tunnel.
    OverlayNoTunnelKey,
    /// Dropped: another VXLAN network identifier.
    OverlayWrongVni,
    /// Dropped: the outer source is no node.
    OverlayUnknownNode,
    /// Dropped: the inner source is not an address of this cluster.
    OverlayUnknownSource,
    /// Dropped: the destination belongs to no peer.
    OverlayUnknownDestination,
    /// Dropped: an ICMP error that quotes a packet which its destination did not send here.
    OverlayQuoteRefused,
    /// Dropped: a probe while the engine's process is dead or its heartbeat too old.
    OverlayProbeStale,
    /// Dropped: sent to the probe's address, but no probe request.
    OverlayProbeMalformed,
    /// Dropped: the kernel refused a rewrite.
    OverlayRewriteFailed,
    /// Sent to a node.
    TapForwarded,
    /// Sent on to another peer.
    TapTransited,
    /// ICMP errors forwarded from the peer's unknown-source address.
    TapUnknownSourceMapped,
    /// Dropped: not IPv4.
    TapNotIpv4,
    /// Dropped: headers are truncated, contradict each other or are split over fragments.
    TapMalformed,
    /// Dropped: a source route option (RFC 791) would bypass the destination check.
    TapSourceRouted,
    /// Dropped: the frame names no peer.
    TapUnknownPeer,
    /// Dropped: the inner source is not an address of the peer.
    TapUnknownSource,
    /// Dropped: the destination is not an address of this cluster.
    TapUnknownDestination,
    /// Dropped: an ICMP error that quotes a packet which its destination did not send to the peer.
    TapQuoteRefused,
    /// Dropped: from one peer to another, without an IP object for both ends.
    TapTransitRefused,
    /// Dropped: the time to live expired between peers.
    TapTtlExceeded,
    /// Dropped: the kernel refused a rewrite.
    TapRewriteFailed,
    /// Segment sizes lowered in TCP handshakes.
    MssClamped,
}

impl Counter {
    /// Every counter, in the order of the map.
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

    /// Returns the name under which metrics and status show it; stable.
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
