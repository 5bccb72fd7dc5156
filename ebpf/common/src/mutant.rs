//! Mechanisms of the eBPF programs that mutation tests switch off.
//!
//! A mutation test switches off one mechanism and expects that a certain test fails. Releases do
//! not have the feature `mutants`, so they do not contain these switches.

/// A mechanism of the eBPF programs. The loader passes the discriminant to the programs.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Drops packets from nodes with a source outside of this cluster, and packets from a peer with
    /// a source in no CIDR of the peer.
    SourceCheck = 1,
    /// Drops overlay packets whose outer source is not the address of a node.
    OuterCheck,
    /// Lowers the maximum segment size that TCP handshakes announce.
    MssClamp,
    /// Updates TCP and UDP checksums after an address changed.
    ChecksumFix,
    /// Rewrites the headers that ICMP errors quote.
    IcmpQuote,
    /// Drops ICMP errors whose receiver cannot have sent the quoted packet.
    QuoteCheck,
    /// Remaps the source of a packet only if it is in a CIDR of the peer.
    PrefixOnly,
    /// Drops packets between peers unless IP objects stand for both ends.
    TransitDrop,
    /// Drops overlay probes if the heartbeat is too old.
    HeartbeatAge,
    /// Drops overlay probes if no socket is open on the probe's port, because the engine's process
    /// has died.
    LifeSocket,
}

impl Mechanism {
    /// All mechanisms, in the order of their discriminants.
    pub const ALL: [Self; 10] = [
        Self::SourceCheck,
        Self::OuterCheck,
        Self::MssClamp,
        Self::ChecksumFix,
        Self::IcmpQuote,
        Self::QuoteCheck,
        Self::PrefixOnly,
        Self::TransitDrop,
        Self::HeartbeatAge,
        Self::LifeSocket,
    ];

    /// Returns the name by which mutation tests select the mechanism.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SourceCheck => "source-check",
            Self::OuterCheck => "outer-check",
            Self::MssClamp => "mss-clamp",
            Self::ChecksumFix => "checksum-fix",
            Self::IcmpQuote => "icmp-quote",
            Self::QuoteCheck => "quote-check",
            Self::PrefixOnly => "prefix-only",
            Self::TransitDrop => "transit-drop",
            Self::HeartbeatAge => "heartbeat-age",
            Self::LifeSocket => "life-socket",
        }
    }

    /// Returns the mechanism with this [`name`](Self::name).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|mechanism| mechanism.name() == name)
    }
}
