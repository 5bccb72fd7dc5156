//! Which cluster-wide CIDR belongs to whom, and which one a remote CIDR is seen under.

use crate::tree::Tree;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The private address space, in the order in which it is given out.
pub const DEFAULT_POOLS: [Ipv4Net; 3] = [
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12),
];

/// The CIDRs in use, by owner.
///
/// Equal calls in equal order give equal CIDRs. Each call costs O(log n) for finding the owner and
/// at most some hundred steps for the address, whatever the number of CIDRs in use.
#[derive(Clone, Debug)]
pub struct Networks<K> {
    pools: Vec<Ipv4Net>,
    held: BTreeMap<K, Held>,
    tree: Tree,
}

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This CIDR, or another of its size out of the pools if it is taken or outside of them. Nobody
    /// else gets it.
    Remappable(Ipv4Net),
    /// This very CIDR, which must lie in a pool. Nobody else gets it.
    Exclusive(Ipv4Net),
    /// This very CIDR, wherever it lies. Others may share it or parts of it.
    Shared(Ipv4Net),
}

/// Why a CIDR is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// Somebody else holds the CIDR, a part of it or one around it.
    #[error("{cidr} overlaps a CIDR in use")]
    Taken {
        /// The CIDR that was asked for.
        cidr: Ipv4Net,
    },
    /// The CIDR is to be exclusive but is not ours to give.
    #[error("{cidr} lies outside of the address pools")]
    OutsidePools {
        /// The CIDR that was asked for.
        cidr: Ipv4Net,
    },
    /// No pool has room.
    #[error("no free /{prefix_len} is left in the address pools")]
    Exhausted {
        /// The size that was asked for.
        prefix_len: u8,
    },
    /// The owner holds another CIDR, and must release it first.
    #[error("{held} is held already")]
    Held {
        /// The CIDR it holds.
        held: Ipv4Net,
    },
    /// Two pools overlap, so their order would not be a rule.
    #[error("the address pools {0} and {1} overlap")]
    PoolsOverlap(Ipv4Net, Ipv4Net),
}

/// What an owner asked for and got.
#[derive(Clone, Copy, Debug)]
struct Held {
    asked: Option<Claim>,
    cidr: Ipv4Net,
    exclusive: bool,
}

impl<K: Ord> Networks<K> {
    /// Creates an allocator that gives from `pools`, the first one first.
    ///
    /// # Errors
    ///
    /// Returns [`NetworkError::PoolsOverlap`] if pools overlap.
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

    /// Gives `owner` a CIDR; asking the same again gives the same again.
    ///
    /// Host bits are ignored.
    ///
    /// # Errors
    ///
    /// Returns [`NetworkError`] if the claim cannot be met; then nothing has changed.
    pub fn acquire(&mut self, owner: K, claim: Claim) -> Result<Ipv4Net, NetworkError> {
        let claim = claim.trunc();
        if let Some(held) = self.held.get(&owner) {
            return if held.asked == Some(claim) {
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

    /// Lets `owner` keep the CIDR that it was given in an earlier life, inside a pool or not.
    ///
    /// # Errors
    ///
    /// Returns [`NetworkError::Taken`] or [`NetworkError::Held`]; then nothing has changed.
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

    /// Takes back what `owner` holds, and returns it.
    pub fn release(&mut self, owner: &K) -> Option<Ipv4Net> {
        let held = self.held.remove(owner)?;
        self.tree.remove(held.cidr, held.exclusive);

        Some(held.cidr)
    }

    /// Returns what `owner` holds.
    pub fn get(&self, owner: &K) -> Option<Ipv4Net> {
        self.held.get(owner).map(|held| held.cidr)
    }

    /// Returns whether nobody holds an address of `cidr`.
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
        asked: Option<Claim>,
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
                asked,
                cidr,
                exclusive,
            },
        );

        Ok(cidr)
    }
}

impl<K: Ord> Default for Networks<K> {
    /// Creates an allocator over [`DEFAULT_POOLS`].
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
