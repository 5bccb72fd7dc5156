//! Allocates CIDRs, and remaps a remote cluster's CIDR that overlaps a CIDR in use.

use crate::tree::Tree;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The private address space (RFC 1918). [`Networks`] searches the pools in this order.
pub const DEFAULT_POOLS: [Ipv4Net; 3] = [
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12),
];

/// The allocated CIDRs, by owner.
///
/// The same calls in the same order allocate the same CIDRs. With n owners, a call takes O(log n)
/// to find the owner. The search for a CIDR follows one path of at most 33 tree nodes per pool, so
/// its cost does not depend on the number of CIDRs in use.
#[derive(Clone, Debug)]
pub struct Networks<K> {
    pools: Vec<Ipv4Net>,
    held: BTreeMap<K, Held>,
    tree: Tree,
}

/// A request for a CIDR.
///
/// An exclusive CIDR overlaps no other allocated CIDR. A shared CIDR may equal or overlap other
/// shared CIDRs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A request for exclusive use of this CIDR or, if that is impossible, of a substitute.
    ///
    /// The owner gets this CIDR if it is free and inside of a pool. Otherwise the owner gets the
    /// first free CIDR of the same prefix length in the pools.
    Remappable(Ipv4Net),
    /// A request for exclusive use of exactly this CIDR, which must be inside of a pool.
    Exclusive(Ipv4Net),
    /// A request for shared use of exactly this CIDR, which need not be inside of a pool.
    Shared(Ipv4Net),
}

/// The reason for which a CIDR cannot be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The CIDR overlaps a CIDR of another owner, and at least one of the two is exclusive.
    #[error("{cidr} overlaps a CIDR in use")]
    Taken {
        /// The requested CIDR.
        cidr: Ipv4Net,
    },
    /// The CIDR of a [`Claim::Exclusive`] is not inside of a pool.
    #[error("{cidr} lies outside of the address pools")]
    OutsidePools {
        /// The requested CIDR.
        cidr: Ipv4Net,
    },
    /// No pool has a free CIDR with the requested prefix length.
    #[error("no free /{prefix_len} is left in the address pools")]
    Exhausted {
        /// The requested prefix length.
        prefix_len: u8,
    },
    /// The owner already has a CIDR, and must release it first.
    #[error("{held} is held already")]
    Held {
        /// The CIDR that is allocated to the owner.
        held: Ipv4Net,
    },
    /// The configured address pools overlap each other.
    #[error("the address pools {0} and {1} overlap")]
    PoolsOverlap(Ipv4Net, Ipv4Net),
}

/// The CIDR of an owner, and the claim for which it was allocated.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// The claim, or `None` if [`Networks::adopt`] allocated the CIDR.
    claim: Option<Claim>,
    cidr: Ipv4Net,
    exclusive: bool,
}

impl<K: Ord> Networks<K> {
    /// Creates an allocator that takes CIDRs from `pools` in the given order.
    ///
    /// # Errors
    ///
    /// Returns [`NetworkError::PoolsOverlap`] if two pools overlap.
    pub fn new(pools: impl IntoIterator<Item = Ipv4Net>) -> Result<Self, NetworkError> {
        let pools = Vec::from_iter(pools.into_iter().map(|pool| pool.trunc()));
        let mut sorted = pools.clone();
        sorted.sort();
        for pair in sorted.windows(2) {
            if pair[0].contains(&pair[1]) {
                return Err(NetworkError::PoolsOverlap(pair[0], pair[1]));
            }
        }

        Ok(Self {
            pools,
            held: BTreeMap::new(),
            tree: Tree::default(),
        })
    }

    /// Allocates a CIDR to `owner`.
    ///
    /// The method ignores the host bits of the claimed CIDR. If the owner repeats its claim, the
    /// method returns the same CIDR.
    ///
    /// # Errors
    ///
    /// Returns [`NetworkError`] if the claim cannot be satisfied. An error leaves the allocator
    /// unchanged.
    pub fn acquire(&mut self, owner: K, claim: Claim) -> Result<Ipv4Net, NetworkError> {
        let claim = claim.trunc();
        if let Some(held) = self.held.get(&owner) {
            return if held.claim == Some(claim) {
                Ok(held.cidr)
            } else {
                Err(NetworkError::Held { held: held.cidr })
            };
        }

        let (cidr, exclusive) = match claim {
            Claim::Remappable(cidr) => (self.remapped(cidr)?, true),
            Claim::Exclusive(cidr) if !self.in_pool(cidr) => {
                return Err(NetworkError::OutsidePools { cidr });
            }
            Claim::Exclusive(cidr) => (cidr, true),
            Claim::Shared(cidr) => (cidr, false),
        };

        self.hold(owner, Some(claim), cidr, exclusive)
    }

    /// Allocates `cidr` to `owner`, to restore an allocation after a restart.
    ///
    /// The CIDR is exclusive, and need not be inside of a pool.
    ///
    /// # Errors
    ///
    /// Returns [`NetworkError::Taken`] if the CIDR overlaps a CIDR in use, and
    /// [`NetworkError::Held`] if the owner has another CIDR or a shared CIDR. An error leaves the
    /// allocator unchanged.
    pub fn adopt(&mut self, owner: K, cidr: Ipv4Net) -> Result<Ipv4Net, NetworkError> {
        let cidr = cidr.trunc();
        if let Some(held) = self.held.get(&owner) {
            return if held.cidr == cidr && held.exclusive {
                Ok(cidr)
            } else {
                Err(NetworkError::Held { held: held.cidr })
            };
        }

        self.hold(owner, None, cidr, true)
    }

    /// Releases and returns the CIDR of `owner`, if it has one.
    pub fn release(&mut self, owner: &K) -> Option<Ipv4Net> {
        let held = self.held.remove(owner)?;
        self.tree.remove(held.cidr, held.exclusive);

        Some(held.cidr)
    }

    /// Returns the CIDR that is allocated to `owner`, if any.
    pub fn get(&self, owner: &K) -> Option<Ipv4Net> {
        self.held.get(owner).map(|held| held.cidr)
    }

    /// Returns whether `cidr` is free, which means that it overlaps no allocated CIDR.
    pub fn is_free(&self, cidr: Ipv4Net) -> bool {
        self.tree.is_free(cidr.trunc())
    }

    fn remapped(&self, cidr: Ipv4Net) -> Result<Ipv4Net, NetworkError> {
        if self.in_pool(cidr) && self.tree.is_free(cidr) {
            return Ok(cidr);
        }

        let prefix_len = cidr.prefix_len();
        self.pools
            .iter()
            .find_map(|pool| self.tree.first_free(*pool, prefix_len))
            .ok_or(NetworkError::Exhausted { prefix_len })
    }

    fn in_pool(&self, cidr: Ipv4Net) -> bool {
        self.pools.iter().any(|pool| pool.contains(&cidr))
    }

    fn hold(
        &mut self,
        owner: K,
        claim: Option<Claim>,
        cidr: Ipv4Net,
        exclusive: bool,
    ) -> Result<Ipv4Net, NetworkError> {
        let is_taken = if exclusive {
            !self.tree.is_free(cidr)
        } else {
            self.tree.has_exclusive(cidr)
        };
        if is_taken {
            return Err(NetworkError::Taken { cidr });
        }

        self.tree.insert(cidr, exclusive);
        self.held.insert(
            owner,
            Held {
                claim,
                cidr,
                exclusive,
            },
        );

        Ok(cidr)
    }
}

impl<K: Ord> Default for Networks<K> {
    /// Creates an allocator that takes CIDRs from [`DEFAULT_POOLS`].
    fn default() -> Self {
        Self {
            pools: DEFAULT_POOLS.to_vec(),
            held: BTreeMap::new(),
            tree: Tree::default(),
        }
    }
}

impl Claim {
    fn trunc(self) -> Self {
        match self {
            Self::Remappable(cidr) => Self::Remappable(cidr.trunc()),
            Self::Exclusive(cidr) => Self::Exclusive(cidr.trunc()),
            Self::Shared(cidr) => Self::Shared(cidr.trunc()),
        }
    }
}

#[cfg(test)]
mod tests;
