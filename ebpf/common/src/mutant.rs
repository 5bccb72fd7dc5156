//! Mechanisms of the eBPF programs that mutation tests switch off.
//!
//! A mutation test switches off one mechanism and expects that a certain test fails. Releases do
//! not have the feature `mutants`, so they do not contain these switches.

/// A mechanism of the eBPF programs. The loader passes the discriminant to the programs.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Drops packets whose inner source is unknown, at the overlay and at the TAP.
    SourceCheck = 1,
    /// Drops overlay packets whose outer source is not the address of a node.
    OuterCheck,
    /// Lowers the maximum segment size in TCP handshakes.
    MssClamp,
    /// Updates TCP and UDP checksums.
    ChecksumFix,
    /// Rewrites the headers that ICMP errors quote.
    IcmpQuote,
    /// Checks the headers that ICMP errors quote.
    QuoteCheck,
    /// Remaps an address only if it is inside a prefix of the peer.
    PrefixOnly,
    /// Drops packets between peers unless IP objects stand for both ends.
    TransitDrop,
    /// Drops overlay probes if the heartbeat is too old.
    HeartbeatAge,
    /// Drops overlay probes if no socket listens on the probe's port, as after a crash.
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
