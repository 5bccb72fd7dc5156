//! Mechanisms that tests switch off, one at a time, to see a named test fail.
//!
//! Only compiled with the feature `mutants`, never in a release.

/// A mechanism of the kernel programs; its number is what the loader tells them.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// The check of inner sources, on overlay and TAP.
    SourceCheck = 1,
    /// The check of outer sources on the overlay.
    OuterCheck,
    /// The limit of TCP segments in handshakes.
    MssClamp,
    /// The repair of TCP's and UDP's checksums.
    ChecksumFix,
    /// The rewrite of headers quoted in ICMP errors.
    IcmpQuote,
    /// The rule that an address is swapped only inside the prefix.
    PrefixOnly,
    /// The refusal of traffic between peers.
    TransitDrop,
    /// The silence once the heartbeat is too old.
    HeartbeatAge,
    /// The silence once the process is dead.
    LifeSocket,
}

impl Mechanism {
    /// Every mechanism.
    pub const ALL: [Self; 9] = [
        Self::SourceCheck,
        Self::OuterCheck,
        Self::MssClamp,
        Self::ChecksumFix,
        Self::IcmpQuote,
        Self::PrefixOnly,
        Self::TransitDrop,
        Self::HeartbeatAge,
        Self::LifeSocket,
    ];

    /// Returns the name by which tests switch it off.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SourceCheck => "source-check",
            Self::OuterCheck => "outer-check",
            Self::MssClamp => "mss-clamp",
            Self::ChecksumFix => "checksum-fix",
            Self::IcmpQuote => "icmp-quote",
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
