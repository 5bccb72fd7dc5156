//! Prefix-preserving translation between two CIDRs of equal size.

use ipnet::Ipv4Net;
use std::fmt;
use std::net::Ipv4Addr;

/// A one-to-one translation of the addresses of one CIDR onto another.
///
/// The network part is replaced and the host part is kept, so translation needs
/// no per-flow state, as in IPv6 prefix translation (RFC 6296).
///
/// Invariant: `from` and `to` have one prefix length and no host bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Remap {
    from: Ipv4Net,
    to: Ipv4Net,
}

/// The CIDRs of a translation hold a different number of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to remap {from} to {to}: prefix lengths differ")]
pub struct RemapError {
    /// The CIDR to translate from.
    pub from: Ipv4Net,
    /// The CIDR to translate to.
    pub to: Ipv4Net,
}

impl Remap {
    /// Creates the translation of `from` onto `to`, ignoring host bits.
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

    /// Creates the translation of a CIDR onto itself.
    pub fn identity(net: Ipv4Net) -> Self {
        let net = net.trunc();
        Self { from: net, to: net }
    }

    /// Returns the CIDR to translate from; between clusters, the original one.
    pub fn from(&self) -> Ipv4Net {
        self.from
    }

    /// Returns the CIDR to translate to; between clusters, the remapped one.
    pub fn to(&self) -> Ipv4Net {
        self.to
    }

    /// Returns whether both CIDRs are equal.
    pub fn is_identity(&self) -> bool {
        self.from == self.to
    }

    /// Returns the translated address, or `None` if `addr` lies outside `from`.
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
