//! A nexthop group for each distinct set of hops, which are those of the replicas for one MTU.
//!
//! Clusters reached through the same replicas by tunnels of the same MTU share a group: where a replica dies,
//! one replacement moves the traffic for all of them. Group ids are kept from state
//! to state such that the fewest routes change.

use crate::settings::{FIRST_GROUP, NEXTHOP_IDS, Settings};
use crate::state::State;
use ipnet::Ipv4Net;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What one remote cluster needs.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The CIDRs under which it is seen here.
    pub(super) cidrs: Vec<Ipv4Net>,
    /// The hops to the replicas that reach it.
    pub(super) members: BTreeSet<u32>,
}

/// Returns the id of the group of each element of `wanted`; `None` where it has no members.
///
/// Of all groups that exist, a set takes the one that has its members already, else
/// the one that most of its clusters use now, which is then replaced in place.
pub(super) fn assign(wanted: &[Wanted], observed: &State, settings: &Settings) -> Vec<Option<u32>> {
    let mut sets: BTreeMap<&BTreeSet<u32>, BTreeMap<u32, usize>> = BTreeMap::new();
    for cluster in wanted.iter().filter(|it| !it.members.is_empty()) {
        let users = sets.entry(&cluster.members).or_default();
        if let Some(group) = current_group(cluster, observed) {
            *users.entry(group).or_default() += 1;
        }
    }

    let mut assigned: BTreeMap<&BTreeSet<u32>, u32> = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for (members, users) in &sets {
        let same = observed.groups.iter().filter(|(_, it)| it == members);
        let used = |id: &u32| users.get(id).copied().unwrap_or_default();
        if let Some((id, _)) = same.max_by_key(|(id, _)| (used(id), Reverse(**id))) {
            taken.insert(*id);
            assigned.insert(members, *id);
        }
    }
    let mut offers: Vec<_> = sets
        .iter()
        .filter(|(members, _)| !assigned.contains_key(*members))
        .flat_map(|(members, users)| users.iter().map(|(id, count)| (*count, *id, *members)))
        .collect();
    offers.sort_by_key(|(count, id, _)| (Reverse(*count), *id));
    for (_, id, members) in offers {
        if !assigned.contains_key(members) && taken.insert(id) {
            assigned.insert(members, id);
        }
    }
    let first = settings.nexthop_base.saturating_add(FIRST_GROUP);
    let last = settings.nexthop_base.saturating_add(NEXTHOP_IDS - 1);
    let mut free = (first..=last).filter(|id| !observed.groups.contains_key(id));
    for members in sets.keys() {
        if !assigned.contains_key(members) {
            // 61,440 ids for at most as many sets as there are clusters: never exhausted
            // below that, and beyond it the cluster is unreachable rather than misrouted.
            if let Some(id) = free.next() {
                assigned.insert(members, id);
            }
        }
    }

    wanted
        .iter()
        .map(|cluster| assigned.get(&cluster.members).copied())
        .collect()
}

fn current_group(cluster: &Wanted, observed: &State) -> Option<u32> {
    cluster
        .cidrs
        .iter()
        .find_map(|cidr| observed.routes.get(cidr))
        .map(|route| route.nexthop)
        .filter(|id| observed.groups.contains_key(id))
}

#[cfg(test)]
mod tests;
