//! Mechanisms that mutation tests switch off one at a time; a named test must then fail.
//!
//! Only compiled with the feature `mutants`, never in a release.

/// A mechanism of the kernel programs; the loader passes its number to them.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// The check of inner sources, on overlay and TAP.
    SourceCheck = 1,
    /// The check of outer sources on the overlay.
    OuterCheck,
    /// The limit of TCP segments in handshakes.
    MssClamp,
    /// The update of TCP and UDP checksums.
    ChecksumFix,
    /// The rewrite of headers quoted in ICMP errors.
    IcmpQuote,
    /// The check of headers quoted in ICMP errors.
    QuoteCheck,
    /// The rule that an address is remapped only inside its prefix.
    PrefixOnly,
    /// The drop of traffic between peers.
    TransitDrop,
    /// The rule that probes get no reply once the heartbeat is too old.
    HeartbeatAge,
    /// The rule that probes get no reply once the process is dead.
    LifeSocket,
}

impl Mechanism {
    /// Every mechanism.
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

    /// Returns the name that mutation tests use.
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

    /// Returns the mechanism of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|mechanism| mechanism.name() == name)
    }
}
