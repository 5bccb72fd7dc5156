//! Allocates single addresses of a network.

use crate::tree::Tree;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The allocated addresses of one network, by owner.
///
/// The allocator returns the lowest free address. With n owners, a call takes O(log n) to find the
/// owner. The search for an address follows one path through a tree of 33 levels, so its cost does
/// not depend on the number of addresses in use.
#[derive(Clone, Debug)]
pub struct Addresses<K> {
    network: Ipv4Net,
    held: BTreeMap<K, Ipv4Addr>,
    tree: Tree,
}

/// The reason for which an address cannot be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// All addresses of the network are reserved or allocated.
    #[error("no free address is left in {network}")]
    Exhausted {
        /// Network of the [`Addresses`] allocator.
        network: Ipv4Net,
    },
    /// The requested address is not in the network.
    #[error("{address} lies outside of {network}")]
    Outside {
        /// The requested address.
        address: Ipv4Addr,
        /// Network of the [`Addresses`] allocator.
        network: Ipv4Net,
    },
    /// The address is reserved, or allocated to another owner.
    #[error("{address} is in use")]
    Taken {
        /// The requested address.
        address: Ipv4Addr,
    },
    /// The owner already has another address, and must release it first.
    #[error("{held} is held already")]
    Held {
        /// The address that is allocated to the owner.
        held: Ipv4Addr,
    },
}

impl<K: Ord> Addresses<K> {
    /// Creates an allocator for the addresses of `network`.
    ///
    /// The first `pre_allocated` addresses are reserved: the allocator never returns them.
    pub fn new(network: Ipv4Net, pre_allocated: u32) -> Self {
        let network = network.trunc();
        let mut tree = Tree::default();
        for prefix in first(network, pre_allocated) {
            tree.insert(prefix, true);
        }

        Self {
            network,
            held: BTreeMap::new(),
            tree,
        }
    }

    /// Returns the network of the allocator, with host bits zero.
    pub fn network(&self) -> Ipv4Net {
        self.network
    }

    /// Allocates the lowest free address to `owner`.
    ///
    /// If the owner already has an address, the method returns that address.
    ///
    /// # Errors
    ///
    /// Returns [`AddressError::Exhausted`] if no address is free.
    pub fn acquire(&mut self, owner: K) -> Result<Ipv4Addr, AddressError> {
        if let Some(&held) = self.held.get(&owner) {
            return Ok(held);
        }

        let network = self.network;
        let free = self
            .tree
            .first_free(network, 32)
            .ok_or(AddressError::Exhausted { network })?;
        self.tree.insert(free, true);
        self.held.insert(owner, free.addr());

        Ok(free.addr())
    }

    /// Allocates `address` to `owner`, to restore an allocation after a restart.
    ///
    /// # Errors
    ///
    /// Returns [`AddressError`] if the address is outside of the network or not free, or if the
    /// owner has another address. An error leaves the allocator unchanged.
    pub fn adopt(&mut self, owner: K, address: Ipv4Addr) -> Result<Ipv4Addr, AddressError> {
        match self.held.get(&owner) {
            Some(&held) if held == address => return Ok(address),
            Some(&held) => return Err(AddressError::Held { held }),
            None => {}
        }

        let network = self.network;
        if !network.contains(&address) {
            return Err(AddressError::Outside { address, network });
        }
        let net = Ipv4Net::from(address);
        if !self.tree.is_free(net) {
            return Err(AddressError::Taken { address });
        }
        self.tree.insert(net, true);
        self.held.insert(owner, address);

        Ok(address)
    }

    /// Releases and returns the address of `owner`, if it has one.
    pub fn release(&mut self, owner: &K) -> Option<Ipv4Addr> {
        let address = self.held.remove(owner)?;
        self.tree.remove(Ipv4Net::from(address), true);

        Some(address)
    }

    /// Returns the address that is allocated to `owner`, if any.
    pub fn get(&self, owner: &K) -> Option<Ipv4Addr> {
        self.held.get(owner).copied()
    }
}

/// Returns the prefixes that cover exactly the first `count` addresses of `network`.
fn first(network: Ipv4Net, count: u32) -> Vec<Ipv4Net> {
    let mut prefixes = Vec::new();
    let mut start = u64::from(network.network().to_bits());
    let end = (start + u64::from(count)).min(u64::from(network.broadcast().to_bits()) + 1);
    // `size` halves in each iteration, so `start` stays a multiple of `size`, as the first address
    // of a prefix must be.
    for prefix_len in network.prefix_len()..=32 {
        let size = 1u64 << (32 - prefix_len);
        if end - start >= size {
            let address = u32::try_from(start).expect("below the end of the address space");
            prefixes.extend(Ipv4Net::new(Ipv4Addr::from_bits(address), prefix_len));
            start += size;
        }
    }

    prefixes
}

#[cfg(test)]
mod tests;
