//! Translates addresses between two CIDRs of equal size.

use ipnet::Ipv4Net;
use std::fmt;
use std::net::Ipv4Addr;

/// A one-to-one translation of the addresses of one CIDR to another CIDR.
///
/// The translation replaces the network bits of an address and keeps the host bits. Like IPv6
/// network prefix translation (RFC 6296), it needs no state per flow.
///
/// Invariant: `from` and `to` have the same prefix length, and their host bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Remap {
    from: Ipv4Net,
    to: Ipv4Net,
}

/// The error for a translation between CIDRs of different prefix lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to remap {from} to {to}: prefix lengths differ")]
pub struct RemapError {
    /// CIDR of the addresses before translation.
    pub from: Ipv4Net,
    /// CIDR of the addresses after translation.
    pub to: Ipv4Net,
}

impl Remap {
    /// Creates the translation from `from` to `to`, and ignores their host bits.
    ///
    /// # Errors
    ///
    /// Returns [`RemapError`] if the prefix lengths differ.
    pub fn new(from: Ipv4Net, to: Ipv4Net) -> Result<Self, RemapError> {
        if from.prefix_len() != to.prefix_len() {
            return Err(RemapError { from, to });
        }

        Ok(Self {
            from: from.trunc(),
            to: to.trunc(),
        })
    }

    /// Creates a translation that maps each address of `net` to itself.
    pub fn identity(net: Ipv4Net) -> Self {
        let net = net.trunc();
        Self { from: net, to: net }
    }

    /// Parses comma-separated pairs of [`to_pair`](Self::to_pair), and leaves out those that are invalid.
    pub fn parse_list(text: &str) -> impl Iterator<Item = Self> {
        text.split(',').filter_map(|pair| {
            let (from, to) = pair.split_once('=')?;
            Self::new(from.parse().ok()?, to.parse().ok()?).ok()
        })
    }

    /// Returns the pair `FROM=TO`.
    pub fn to_pair(&self) -> String {
        format!("{}={}", self.from, self.to)
    }

    /// Returns the CIDR of the addresses before translation, such as a peer's original CIDR.
    pub fn from(&self) -> Ipv4Net {
        self.from
    }

    /// Returns the CIDR of the addresses after translation, such as a peer's remapped CIDR.
    pub fn to(&self) -> Ipv4Net {
        self.to
    }

    /// Returns whether the translation changes no address.
    pub fn is_identity(&self) -> bool {
        self.from == self.to
    }

    /// Returns the translated address, or `None` if `addr` is outside of `from`.
    pub fn apply(&self, addr: Ipv4Addr) -> Option<Ipv4Addr> {
        if !self.from.contains(&addr) {
            return None;
        }

        let host = addr.to_bits() & self.to.hostmask().to_bits();
        Some(Ipv4Addr::from_bits(self.to.network().to_bits() | host))
    }

    /// Returns the translation in the opposite direction.
    pub fn inverse(&self) -> Self {
        Self {
            from: self.to,
            to: self.from,
        }
    }
}

impl fmt::Display for Remap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.from, self.to)
    }
}

#[cfg(test)]
mod tests;
