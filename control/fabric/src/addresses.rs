//! Allocates the CIDRs of Networks and the addresses of IPs, for `gateway plan` and the controller manager.
//!
//! Statuses contain earlier allocations. [`Allocation::decide`] adopts them and allocates for the other objects.
//! Afterwards each Network and IP is handled alone, at a cost that does not depend on their number.

use crate::cidr::overlaps;
use ipam::{AddressError, Addresses, Claim, NetworkError, Networks};
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// The CIDRs and addresses in use. `K` names Networks and IPs, `S` names objects with addresses of the underlay.
#[derive(Clone, Debug)]
pub struct Allocation<K, S> {
    conflicts: Conflicts,
    networks: Networks<Owner<K>>,
    /// The Networks that hold a CIDR, and whether they can have no other.
    holders: BTreeMap<K, bool>,
    pools: BTreeMap<K, Pool<K>>,
    /// The Network from which the address of each IP is allocated.
    network_of: BTreeMap<K, K>,
    /// The reason why a Network has no CIDR.
    refusals: BTreeMap<K, NetworkError>,
    /// The IPs that wait for the pool of a Network, or for a free address in it.
    waiting: BTreeMap<K, BTreeSet<K>>,
    /// The addresses of the underlay, by source.
    underlay: BTreeMap<S, BTreeSet<Ipv4Addr>>,
}

/// Owner of a CIDR.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner<K> {
    Network(K),
    /// An address of a gateway or a node, to which tunnel packets are sent.
    Underlay(Ipv4Addr),
}

#[derive(Clone, Debug)]
struct Pool<K> {
    pre_allocated: u32,
    addresses: Addresses<K>,
}

/// Treatment of a CIDR in a status that overlaps a fixed CIDR or the underlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflicts {
    /// The CIDR is not replaced, because the peer may use it. The conflict is reported.
    Report,
    /// The CIDR is replaced, because no peer uses it yet.
    Replace,
}

/// A Network that needs a CIDR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<K> {
    /// The Network.
    pub key: K,
    /// The claim.
    pub claim: Claim,
    /// The CIDR in its status.
    pub old: Option<Ipv4Net>,
    /// Precedence over other Networks without a CIDR.
    pub priority: Priority,
}

/// Order in which Networks without a CIDR get one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The external CIDR of the cluster.
    External,
    /// The internal CIDR of the cluster.
    Internal,
    /// Further Networks of the cluster, and those of peers.
    Trusted,
    /// Networks of users. All others take precedence, regardless of the claim.
    User,
}

impl<K> Request<K> {
    /// Returns the step of the request: fixed CIDRs, CIDRs in statuses, CIDRs in statuses of users' Networks, others.
    fn step(&self) -> u8 {
        match (self.priority, self.claim, self.old) {
            (Priority::User, _, Some(_)) => 3,
            (Priority::User, _, None) => NEW,
            (_, Claim::Shared(_), _) => 0,
            (_, Claim::Exclusive(_), _) => 1,
            (_, Claim::Remappable(_), Some(_)) => 2,
            (_, Claim::Remappable(_), None) => NEW,
        }
    }
}

/// Step of the Networks that have no CIDR.
const NEW: u8 = 4;

impl<K: Ord + Clone, S: Ord + Clone> Allocation<K, S> {
    /// Creates an allocation from `pools`, which are in order of preference.
    ///
    /// # Errors
    ///
    /// Returns [`NetworkError::PoolsOverlap`] if pools overlap.
    pub fn new(pools: &[Ipv4Net], conflicts: Conflicts) -> Result<Self, NetworkError> {
        Ok(Self {
            conflicts,
            networks: Networks::new(pools.iter().copied())?,
            holders: BTreeMap::new(),
            pools: BTreeMap::new(),
            network_of: BTreeMap::new(),
            refusals: BTreeMap::new(),
            waiting: BTreeMap::new(),
            underlay: BTreeMap::new(),
        })
    }

    /// Adopts the CIDRs of statuses, and allocates the others. The first of conflicting requests takes precedence,
    /// so the caller sorts them by age or name.
    pub fn decide(
        &mut self,
        requests: Vec<Request<K>>,
        underlay: impl IntoIterator<Item = (S, BTreeSet<Ipv4Addr>)>,
    ) {
        let (mut old, mut new): (Vec<_>, Vec<_>) = requests
            .into_iter()
            .enumerate()
            .partition(|(_, request)| request.step() < NEW);
        old.sort_by_key(|(_, request)| request.step());
        let mut underlay = Some(underlay);
        if self.conflicts == Conflicts::Replace {
            self.set_all_underlay(underlay.take());
        }
        for (position, request) in old {
            if self.is_to_be_replaced(&request) {
                // Such a Network gets a new CIDR after all others.
                new.push((position, request));
            } else {
                // An error is stored as the refusal of the Network.
                self.network(&request.key, request.claim, request.old).ok();
            }
        }
        // A CIDR in a status that contains such an address is reported, but not replaced.
        self.set_all_underlay(underlay);
        new.sort_by_key(|(position, request)| (request.priority, *position));
        for (_, request) in new {
            self.network(&request.key, request.claim, None).ok();
        }
    }

    fn set_all_underlay(
        &mut self,
        underlay: Option<impl IntoIterator<Item = (S, BTreeSet<Ipv4Addr>)>>,
    ) {
        for (source, addresses) in underlay.into_iter().flatten() {
            self.set_underlay(source, addresses);
        }
    }

    fn is_to_be_replaced(&self, request: &Request<K>) -> bool {
        let is_remappable = matches!(request.claim, Claim::Remappable(_));
        let taken = (request.old).filter(|old| is_remappable && !self.networks.is_free(*old));

        taken.is_some_and(|old| self.is_replaceable(old))
    }

    /// Returns the CIDR of a Network: the allocated one, otherwise that in its status (`old`), otherwise a new one.
    ///
    /// Two successive leaders can allocate one CIDR to two Networks. The second Network then gets another CIDR.
    ///
    /// # Errors
    ///
    /// Returns the reason why the Network gets none. With [`Conflicts::Report`], this includes conflicts of `old`.
    pub fn network(
        &mut self,
        key: &K,
        claim: Claim,
        old: Option<Ipv4Net>,
    ) -> Result<Ipv4Net, NetworkError> {
        let owner = Owner::Network(key.clone());
        let (requested, is_fixed) = match claim {
            Claim::Remappable(cidr) => (cidr, false),
            Claim::Exclusive(cidr) | Claim::Shared(cidr) => (cidr, true),
        };
        let fits = |held: &Ipv4Net| held.prefix_len() == requested.prefix_len();
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
                Err(NetworkError::Taken { .. }) if self.is_replaceable(old) => {
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

    /// Returns whether a Network whose CIDR is taken may get another. If all Networks that hold the CIDR are
    /// remappable, it was allocated twice.
    fn is_replaceable(&self, cidr: Ipv4Net) -> bool {
        if self.conflicts == Conflicts::Replace {
            return true;
        }
        let mut fixed = self.holders.iter().filter(|(_, is_fixed)| **is_fixed);
        let mut underlay = self.underlay.values().flatten();

        !underlay.any(|address| cidr.contains(address))
            && !fixed.any(|(key, _)| self.held(key).is_some_and(|held| overlaps(held, cidr)))
    }

    /// Returns the CIDR that a Network holds.
    pub fn held(&self, key: &K) -> Option<Ipv4Net> {
        self.networks.get(&Owner::Network(key.clone()))
    }

    /// Returns the reason why a Network holds no CIDR.
    pub fn refusal(&self, key: &K) -> Option<&NetworkError> {
        self.refusals.get(key)
    }

    /// Releases the CIDR of a Network, and returns the Networks that may get a CIDR now.
    pub fn release_network(&mut self, key: &K) -> Vec<K> {
        self.refusals.remove(key);
        self.holders.remove(key);
        self.pools.remove(key);
        self.network_of.retain(|_, network| network != key);
        let released = self.networks.release(&Owner::Network(key.clone()));

        released
            .map(|_| self.refusals.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Releases the CIDR of a Network because of `error`, and returns the Networks that may get a CIDR now.
    pub fn refuse_network(&mut self, key: &K, error: NetworkError) -> Vec<K> {
        let waiting = self.release_network(key);
        self.refusals.insert(key.clone(), error);

        waiting
    }

    /// Sets the addresses of a source of the underlay, which no CIDR may contain. Returns those that an allocated
    /// CIDR contains already.
    pub fn set_underlay(&mut self, source: S, addresses: BTreeSet<Ipv4Addr>) -> Vec<Ipv4Addr> {
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

    /// Creates the address pool of a Network, in which `held` are allocated. Returns whether the pool is new.
    pub fn pool(
        &mut self,
        network: &K,
        cidr: Ipv4Net,
        pre_allocated: u32,
        held: impl FnOnce() -> Vec<(K, Ipv4Addr)>,
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
            // An IP whose address is not free gets another one later.
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

    /// Returns the address of an IP: the allocated one, otherwise that in its status, otherwise a new one.
    ///
    /// # Errors
    ///
    /// Returns [`AddressError`] if no address is free, or `None` if the Network has no pool. The IP then waits.
    pub fn address(
        &mut self,
        ip: &K,
        network: &K,
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

    /// Releases the address of an IP, and returns the IPs that may get one now.
    pub fn release_address(&mut self, ip: &K) -> Vec<K> {
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

    /// Removes and returns the IPs that wait for a Network.
    pub fn take_waiting(&mut self, network: &K) -> Vec<K> {
        let waiting = self.waiting.remove(network).unwrap_or_default();
        waiting.into_iter().collect()
    }

    /// Returns the number of Networks with a CIDR, and of IPs with an address.
    pub fn counts(&self) -> (usize, usize) {
        (self.holders.len(), self.network_of.len())
    }

    fn wait(&mut self, ip: &K, network: &K) {
        let waiting = self.waiting.entry(network.clone()).or_default();
        waiting.insert(ip.clone());
    }
}

#[cfg(test)]
mod tests;
