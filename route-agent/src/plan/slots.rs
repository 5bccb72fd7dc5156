//! Assigns a slot number to each gateway replica. The number determines the replica's probe
//! address, and the ids of the nexthops to the replica.

use crate::plan::Error;
use crate::settings::{PROBES, Settings};
use crate::state::State;
use control_fabric::{REPLICAS_MAX, Replica};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

const _: () = assert!(
    REPLICAS_MAX == u8::MAX as usize - 1,
    "a slot is a host number in a /24, so it must be neither 0 nor 255"
);

/// Returns the slot of each replica, by the replica's address. Slots are from 1 to
/// [`REPLICAS_MAX`].
///
/// A replica with a nexthop in `observed` keeps its slot. A new replica gets a slot that no nexthop
/// uses, because routes may still use the nexthops of removed replicas.
pub(super) fn assign(
    replicas: &[Replica],
    observed: &State,
    settings: &Settings,
) -> Result<BTreeMap<Ipv4Addr, u8>, Error> {
    let addresses = addresses(replicas)?;
    let occupied: BTreeMap<u8, Ipv4Addr> = (1..=u8::MAX - 1)
        .filter_map(|slot| Some((slot, observed.hops.get(&settings.hop_id(slot, PROBES))?.dst)))
        .collect();
    let mut slots: BTreeMap<Ipv4Addr, u8> = BTreeMap::new();
    for (slot, address) in &occupied {
        if addresses.contains(address) {
            slots.entry(*address).or_insert(*slot);
        }
    }
    let kept: BTreeSet<u8> = slots.values().copied().collect();
    let untouched = (1..=u8::MAX - 1).filter(|slot| !occupied.contains_key(slot));
    // Slots of removed replicas come last, because nexthops still use them.
    let reused = occupied.keys().copied().filter(|slot| !kept.contains(slot));
    let mut free = untouched.chain(reused);
    for address in addresses {
        slots.entry(address).or_insert_with(|| {
            free.next()
                .expect("there are at least as many slots as replicas")
        });
    }

    Ok(slots)
}

/// Returns the addresses of the replicas.
///
/// # Errors
///
/// Returns [`Error::TooManyReplicas`] if there are more than [`REPLICAS_MAX`].
pub(super) fn addresses(replicas: &[Replica]) -> Result<BTreeSet<Ipv4Addr>, Error> {
    let addresses: BTreeSet<_> = replicas.iter().map(|replica| replica.address).collect();
    let count = addresses.len();
    if count > REPLICAS_MAX {
        return Err(Error::TooManyReplicas { count });
    }

    Ok(addresses)
}

#[cfg(test)]
mod tests;
