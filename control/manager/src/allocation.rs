//! Which CIDR and which address is whose: what the statuses say, kept so that a new one is found fast.

use crate::kind::{Key, Kind};
use control_api::labels;
use ipam::{AddressError, Addresses, Claim, NetworkError, Networks};
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// The CIDRs and addresses in use.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    networks: Networks<Owner>,
    /// The Networks that hold a CIDR, and whether they can have no other.
    holders: BTreeMap<Key, bool>,
    pools: BTreeMap<Key, Pool>,
    /// The Network that each IP has its address of.
    network_of: BTreeMap<Key, Key>,
    /// Why a Network has no CIDR.
    refusals: BTreeMap<Key, NetworkError>,
    /// The IPs that wait for a Network, or for an address of it.
    waiting: BTreeMap<Key, BTreeSet<Key>>,
    /// The addresses of the underlay, by who has them.
    underlay: BTreeMap<(Kind, Key), BTreeSet<Ipv4Addr>>,
}

/// Who holds a CIDR.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Network(Key),
    /// An address that a gateway or a node itself talks to.
    Underlay(Ipv4Addr),
}

#[derive(Clone, Debug)]
struct Pool {
    pre_allocated: u32,
    addresses: Addresses<Key>,
}

impl Allocation {
    /// Creates an allocation that gives from `pools`, the first one first.
    ///
    /// # Errors
    ///
    /// Returns [`NetworkError::PoolsOverlap`] if pools overlap.
    pub(crate) fn new(pools: &[Ipv4Net]) -> Result<Self, NetworkError> {
        Ok(Self {
            networks: Networks::new(pools.iter().copied())?,
            holders: BTreeMap::new(),
            pools: BTreeMap::new(),
            network_of: BTreeMap::new(),
            refusals: BTreeMap::new(),
            waiting: BTreeMap::new(),
            underlay: BTreeMap::new(),
        })
    }

    /// Returns the CIDR of a Network: the one it holds, else the one it had (`old`), else a new one.
    ///
    /// # Errors
    ///
    /// Returns why it gets none. One that it had, and that overlaps a fixed CIDR or the underlay now, is
    /// not replaced: the peer may use it. Two leaders in turn may have given one CIDR to two Networks;
    /// the one that comes second gets another.
    pub(crate) fn network(
        &mut self,
        key: &Key,
        claim: Claim,
        old: Option<Ipv4Net>,
    ) -> Result<Ipv4Net, NetworkError> {
        let owner = Owner::Network(key.clone());
        let (wanted, is_fixed) = match claim {
            Claim::Remappable(cidr) => (cidr, false),
            Claim::Exclusive(cidr) | Claim::Shared(cidr) => (cidr, true),
        };
        let fits = |held: &Ipv4Net| held.prefix_len() == wanted.prefix_len();
        match self.networks.get(&owner) {
            Some(held) if fits(&held) => return Ok(held),
            Some(_) => {
                self.networks.release(&owner);
            }
            None => {}
        }

        let old = old.filter(|old| fits(old) && !is_fixed);
        let result = match old {
            Some(old) => match self.networks.adopt(owner.clone(), old) {
                Err(NetworkError::Taken { .. }) if self.is_given_twice(old) => {
                    self.networks.acquire(owner, claim)
                }
                result => result,
            },
            None => self.networks.acquire(owner, claim),
        };
        match result {
            Ok(_) => {
                self.holders.insert(key.clone(), is_fixed);
                self.refusals.remove(key);
            }
            Err(error) => {
                self.holders.remove(key);
                self.refusals.insert(key.clone(), error);
            }
        }
        result
    }

    /// Returns whether a CIDR that is taken overlaps only CIDRs of Networks that could have others.
    fn is_given_twice(&self, cidr: Ipv4Net) -> bool {
        let mut fixed = self.holders.iter().filter(|(_, is_fixed)| **is_fixed);
        let mut underlay = self.underlay.values().flatten();

        !underlay.any(|address| cidr.contains(address))
            && !fixed.any(|(key, _)| self.held(key).is_some_and(|held| overlaps(held, cidr)))
    }

    /// Returns the CIDR that a Network holds.
    pub(crate) fn held(&self, key: &Key) -> Option<Ipv4Net> {
        self.networks.get(&Owner::Network(key.clone()))
    }

    /// Returns why a Network holds none.
    pub(crate) fn refusal(&self, key: &Key) -> Option<&NetworkError> {
        self.refusals.get(key)
    }

    /// Takes back the CIDR of a Network, and returns the Networks that may get theirs now.
    pub(crate) fn release_network(&mut self, key: &Key) -> Vec<Key> {
        self.refusals.remove(key);
        self.holders.remove(key);
        self.pools.remove(key);
        self.network_of.retain(|_, network| network != key);
        let released = self.networks.release(&Owner::Network(key.clone()));

        released
            .map(|_| self.refusals.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Takes back the CIDR of a Network because of `error`, and returns the Networks that may get theirs now.
    pub(crate) fn refuse_network(&mut self, key: &Key, error: NetworkError) -> Vec<Key> {
        let waiting = self.release_network(key);
        self.refusals.insert(key.clone(), error);

        waiting
    }

    /// Keeps the CIDRs of peers off the addresses that `source` has; returns those it is too late for.
    pub(crate) fn set_underlay(
        &mut self,
        source: (Kind, Key),
        addresses: BTreeSet<Ipv4Addr>,
    ) -> Vec<Ipv4Addr> {
        let before = self.underlay.remove(&source).unwrap_or_default();
        if !addresses.is_empty() {
            self.underlay.insert(source, addresses.clone());
        }
        for address in before.difference(&addresses) {
            let mut others = self.underlay.values();
            if !others.any(|others| others.contains(address)) {
                self.networks.release(&Owner::Underlay(*address));
            }
        }

        let mut covered = Vec::new();
        for address in addresses {
            let claim = Claim::Shared(Ipv4Net::from(address));
            if self
                .networks
                .acquire(Owner::Underlay(address), claim)
                .is_err()
            {
                covered.push(address);
            }
        }
        covered
    }

    /// Makes the pool of addresses of a Network, in which `held` keep theirs; returns whether it was made now.
    pub(crate) fn pool(
        &mut self,
        network: &Key,
        cidr: Ipv4Net,
        pre_allocated: u32,
        held: impl FnOnce() -> Vec<(Key, Ipv4Addr)>,
    ) -> bool {
        let present = self.pools.get(network);
        if present.is_some_and(|pool| {
            pool.addresses.network() == cidr && pool.pre_allocated == pre_allocated
        }) {
            return false;
        }
        self.network_of.retain(|_, of| of != network);
        let mut addresses = Addresses::new(cidr, pre_allocated);
        for (ip, address) in held() {
            // What is not free is decided anew.
            if addresses.adopt(ip.clone(), address).is_ok() {
                self.network_of.insert(ip, network.clone());
            }
        }
        let pool = Pool {
            pre_allocated,
            addresses,
        };
        self.pools.insert(network.clone(), pool);

        true
    }

    /// Returns the address of an IP: the one it holds, else the one it had, else a new one.
    ///
    /// # Errors
    ///
    /// Returns [`AddressError`] if there is none; `None` if the Network has no pool. Then it waits.
    pub(crate) fn address(
        &mut self,
        ip: &Key,
        network: &Key,
        old: Option<Ipv4Addr>,
    ) -> Result<Ipv4Addr, Option<AddressError>> {
        if self.network_of.get(ip).is_some_and(|of| of != network) {
            self.release_address(ip);
        }
        let Some(pool) = self.pools.get_mut(network) else {
            self.wait(ip, network);
            return Err(None);
        };
        let held = pool.addresses.get(ip);
        let adopted = old.filter(|_| held.is_none());
        let adopted = adopted.and_then(|old| pool.addresses.adopt(ip.clone(), old).ok());
        match adopted.map_or_else(|| pool.addresses.acquire(ip.clone()), Ok) {
            Ok(address) => {
                self.network_of.insert(ip.clone(), network.clone());
                Ok(address)
            }
            Err(error) => {
                self.wait(ip, network);
                Err(Some(error))
            }
        }
    }

    /// Takes back the address of an IP, and returns the IPs that may get one now.
    pub(crate) fn release_address(&mut self, ip: &Key) -> Vec<Key> {
        for waiting in self.waiting.values_mut() {
            waiting.remove(ip);
        }
        let Some(network) = self.network_of.remove(ip) else {
            return Vec::new();
        };
        if let Some(pool) = self.pools.get_mut(&network) {
            pool.addresses.release(ip);
        }

        self.take_waiting(&network)
    }

    /// Returns the IPs that have waited for a Network, which do so no more.
    pub(crate) fn take_waiting(&mut self, network: &Key) -> Vec<Key> {
        let waiting = self.waiting.remove(network).unwrap_or_default();
        waiting.into_iter().collect()
    }

    /// Returns how many Networks hold a CIDR, and how many IPs an address.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.holders.len(), self.network_of.len())
    }

    fn wait(&mut self, ip: &Key, network: &Key) {
        let waiting = self.waiting.entry(network.clone()).or_default();
        waiting.insert(ip.clone());
    }
}

/// Returns whether two CIDRs have an address in common.
pub(crate) fn overlaps(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b) || b.contains(&a)
}

/// Returns what a Network claims.
pub(crate) fn claim(cidr: Ipv4Net, label: impl Fn(&str) -> bool) -> Claim {
    match (
        label(labels::NETWORK_NOT_REMAPPED),
        label(labels::NETWORK_SHARED),
    ) {
        (true, true) => Claim::Shared(cidr),
        (true, false) => Claim::Exclusive(cidr),
        (false, _) => Claim::Remappable(cidr),
    }
}

#[cfg(test)]
mod tests;
