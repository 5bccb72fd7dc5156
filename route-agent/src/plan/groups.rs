//! Assigns a nexthop group to each distinct set of nexthops.
//!
//! Clusters that the same replicas reach with the same MTU share a group. After the loss of a
//! replica, one netlink request replaces the members of this group, and moves the traffic of all
//! these clusters. The assignment reuses existing groups, so that few routes change.

use crate::settings::{FIRST_GROUP, NEXTHOP_IDS, Settings};
use crate::state::State;
use ipnet::Ipv4Net;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The properties of a remote cluster that determine its group.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    /// Remapped CIDRs, which are the destinations of the cluster's routes.
    pub(super) cidrs: Vec<Ipv4Net>,
    /// Ids of the nexthops to the replicas that reach the cluster.
    pub(super) members: BTreeSet<u32>,
}

/// Returns the id of each cluster's group, `None` for a cluster without members.
///
/// A set of members gets the existing group with exactly these members. If there is no such group,
/// the set gets the group that most clusters with these members use now. The members of that group
/// are then replaced. If another set already has that group, the set gets a new group.
pub(super) fn assign(
    clusters: &[Cluster],
    observed: &State,
    settings: &Settings,
) -> Vec<Option<u32>> {
    let mut sets: BTreeMap<&BTreeSet<u32>, BTreeMap<u32, usize>> = BTreeMap::new();
    for cluster in clusters.iter().filter(|it| !it.members.is_empty()) {
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
            // There are 61,440 ids. With more sets than ids, the remaining clusters get no group,
            // and their unreachable routes apply.
            if let Some(id) = free.next() {
                assigned.insert(members, id);
            }
        }
    }

    clusters
        .iter()
        .map(|cluster| assigned.get(&cluster.members).copied())
        .collect()
}

fn current_group(cluster: &Cluster, observed: &State) -> Option<u32> {
    cluster
        .cidrs
        .iter()
        .find_map(|cidr| observed.routes.get(cidr))
        .map(|route| route.nexthop)
        .filter(|id| observed.groups.contains_key(id))
}

#[cfg(test)]
mod tests;
