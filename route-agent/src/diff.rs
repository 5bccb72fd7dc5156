//! Computes the ordered changes that turn the observed kernel state into the desired state.

use crate::ruleset::{ElementChanges, Ruleset};
use crate::state::{Device, Hop, Route, State};
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};

/// One change of the kernel's state: an atomic request, or several requests that do not disturb
/// traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Adds an unreachable route with the maximum metric, so that the kernel prefers a unicast
    /// route to the same destination.
    AddUnreachable(Ipv4Net),
    /// Adds the policy rule, with which the kernel looks up destinations in the agent's routing
    /// table.
    AddRule,
    /// Creates the agent's nft table, or replaces its content in one transaction.
    SetFilter(Ruleset),
    /// Changes elements of the nft table's sets and maps in one transaction.
    ChangeFilter(ElementChanges),
    /// Creates the overlay device, sets its properties, and brings it up.
    CreateDevice(Device),
    /// Changes the overlay device's properties except for the UDP port, which is fixed.
    SetDevice(Device),
    /// Adds a host address (/32) to the overlay device.
    AddAddress(Ipv4Net),
    /// Creates or replaces the nexthop with this id to one gateway replica.
    SetHop(u32, Hop),
    /// Creates the nexthop group with this id, or replaces its members, which are nexthop ids.
    SetGroup(u32, BTreeSet<u32>),
    /// Creates or replaces a unicast route.
    SetRoute(Ipv4Net, Route),
    /// Deletes a unicast route. The unreachable route to the same destination stays.
    DeleteRoute(Ipv4Net),
    /// Deletes a nexthop group. No route may refer to the group.
    DeleteGroup(u32),
    /// Deletes a nexthop. No group and no route may refer to the nexthop.
    DeleteHop(u32),
    /// Deletes an address of the overlay device. No route may have the address as source.
    DeleteAddress(Ipv4Net),
    /// Deletes the overlay device. The kernel also deletes the device's addresses and nexthops, and
    /// the groups and unicast routes that use them.
    DeleteDevice,
    DeleteRule,
    DeleteUnreachable(Ipv4Net),
    /// Deletes the agent's nft table with its counters.
    DeleteFilter,
}

/// Returns whether the changes in `rest` may be applied although the change `failed` has failed.
///
/// After a failure to set the nft table, they may be applied if the overlay device is up and is not
/// recreated, so that dead replicas are still removed from the nexthop groups. A new device would
/// let packets enter the node unfiltered. After any other failure, no changes may be applied.
pub(crate) fn may_continue(failed: &Op, rest: &[Op], observed: &State) -> bool {
    let creates_device = rest.iter().any(|op| matches!(op, Op::CreateDevice(_)));
    let has_device = observed.device.is_some_and(|device| device.ready);

    matches!(failed, Op::SetFilter(_) | Op::ChangeFilter(_)) && has_device && !creates_device
}

/// Returns the changes from `observed` to `desired`.
///
/// The order of the changes has these invariants, which property tests check:
/// - Unreachable routes are added before all other changes, and deleted after the unicast routes. A
///   destination in both states thus has a route in the agent's table after every step.
/// - An object is created before the objects that refer to it, and deleted after them.
/// - Each change of a group, nexthop or route is one atomic replacement.
pub(crate) fn diff(observed: &State, desired: &State) -> Vec<Op> {
    let mut ops = Vec::new();
    let mut base = observed.clone();

    ops.extend(missing(&observed.unreachable, &desired.unreachable).map(Op::AddUnreachable));
    if desired.rule && !observed.rule {
        ops.push(Op::AddRule);
    }
    // The nft table must exist before the device, so that no packet enters the node unfiltered.
    if let Some(filter) = &desired.filter
        && observed.filter.as_ref() != Some(filter)
    {
        ops.push(Op::SetFilter(filter.clone()));
    }
    for op in device(observed, desired) {
        // If the device must be recreated, the kernel also deletes its addresses, nexthops, groups
        // and routes. `State::apply` then removes them from `base`, so that they are added again.
        base.apply(&op);
        ops.push(op);
    }
    for op in malformed(&base, desired) {
        base.apply(&op);
        ops.push(op);
    }
    ops.extend(missing(&base.addresses, &desired.addresses).map(Op::AddAddress));
    ops.extend(changed(&base.hops, &desired.hops).map(|(id, hop)| Op::SetHop(id, hop)));
    ops.extend(changed(&base.groups, &desired.groups).map(|(id, group)| Op::SetGroup(id, group)));
    ops.extend(changed(&base.routes, &desired.routes).map(|(dst, route)| Op::SetRoute(dst, route)));

    ops.extend(stale(&base.routes, &desired.routes).map(Op::DeleteRoute));
    ops.extend(stale(&base.groups, &desired.groups).map(Op::DeleteGroup));
    ops.extend(stale(&base.hops, &desired.hops).map(Op::DeleteHop));
    ops.extend(missing(&desired.addresses, &base.addresses).map(Op::DeleteAddress));
    if desired.device.is_none() && base.device.is_some() {
        ops.push(Op::DeleteDevice);
    }
    if observed.rule && !desired.rule {
        ops.push(Op::DeleteRule);
    }
    ops.extend(missing(&desired.unreachable, &observed.unreachable).map(Op::DeleteUnreachable));
    if desired.filter.is_none() && observed.filter.is_some() {
        ops.push(Op::DeleteFilter);
    }

    ops
}

fn device(observed: &State, desired: &State) -> Vec<Op> {
    match (observed.device, desired.device) {
        (Some(old), Some(new)) if old == new => Vec::new(),
        (Some(old), Some(new)) if old.can_change_to(&new) => vec![Op::SetDevice(new)],
        (Some(_), Some(new)) => vec![Op::DeleteDevice, Op::CreateDevice(new)],
        (None, Some(new)) => vec![Op::CreateDevice(new)],
        (_, None) => Vec::new(),
    }
}

/// Returns the deletions of nexthops and groups of the wrong type, which a replacement cannot
/// change. Another program may have created them with the agent's ids, for example as blackhole
/// nexthops.
fn malformed(observed: &State, desired: &State) -> Vec<Op> {
    let hops = observed.hops.iter();
    let hops = hops.filter(|(id, hop)| **hop == Hop::UNKNOWN && desired.hops.contains_key(id));
    let groups = observed.groups.iter();
    let groups =
        groups.filter(|(id, members)| members.is_empty() && desired.groups.contains_key(id));

    hops.map(|(id, _)| Op::DeleteHop(*id))
        .chain(groups.map(|(id, _)| Op::DeleteGroup(*id)))
        .collect()
}

/// Returns the members of `desired` that `observed` lacks.
fn missing<'a, T: Ord + Copy>(
    observed: &'a BTreeSet<T>,
    desired: &'a BTreeSet<T>,
) -> impl Iterator<Item = T> {
    desired.difference(observed).copied()
}

/// Returns the entries of `desired` whose key is missing in `observed` or has another value there.
fn changed<'a, K: Ord + Copy, V: PartialEq + Clone>(
    observed: &'a BTreeMap<K, V>,
    desired: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (K, V)> {
    desired
        .iter()
        .filter(|(key, value)| observed.get(key) != Some(value))
        .map(|(key, value)| (*key, value.clone()))
}

/// Returns the keys of `observed` that `desired` lacks.
fn stale<'a, K: Ord + Copy, V>(
    observed: &'a BTreeMap<K, V>,
    desired: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = K> {
    observed
        .keys()
        .filter(|key| !desired.contains_key(key))
        .copied()
}

impl State {
    /// Applies `op` to this value, as the kernel applies it to its state.
    ///
    /// Like the kernel, this function also deletes routes whose nexthop or source address is
    /// deleted, and all objects that use a deleted device.
    pub(crate) fn apply(&mut self, op: &Op) {
        match op {
            Op::AddUnreachable(dst) => drop(self.unreachable.insert(*dst)),
            Op::AddRule => self.rule = true,
            Op::SetFilter(filter) => self.filter = Some(filter.clone()),
            Op::ChangeFilter(changes) => {
                if let Some(filter) = &mut self.filter {
                    filter.change(changes);
                }
            }
            Op::CreateDevice(device) | Op::SetDevice(device) => self.device = Some(*device),
            Op::AddAddress(address) => drop(self.addresses.insert(*address)),
            Op::SetHop(id, hop) => drop(self.hops.insert(*id, *hop)),
            Op::SetGroup(id, members) => drop(self.groups.insert(*id, members.clone())),
            Op::SetRoute(dst, route) => drop(self.routes.insert(*dst, *route)),
            Op::DeleteRoute(dst) => drop(self.routes.remove(dst)),
            Op::DeleteGroup(id) => {
                self.groups.remove(id);
                self.routes.retain(|_, route| route.nexthop != *id);
            }
            Op::DeleteHop(id) => self.forget_hop(*id),
            Op::DeleteAddress(address) => {
                self.addresses.remove(address);
                self.routes.retain(|_, route| route.src != address.addr());
            }
            Op::DeleteDevice => {
                self.device = None;
                self.addresses.clear();
                self.hops.clear();
                self.groups.clear();
                self.routes.clear();
            }
            Op::DeleteRule => self.rule = false,
            Op::DeleteUnreachable(dst) => drop(self.unreachable.remove(dst)),
            Op::DeleteFilter => self.filter = None,
        }
    }

    fn forget_hop(&mut self, id: u32) {
        self.hops.remove(&id);
        for members in self.groups.values_mut() {
            members.remove(&id);
        }
        self.groups.retain(|_, members| !members.is_empty());
        let (hops, groups) = (&self.hops, &self.groups);
        self.routes.retain(|_, route| {
            hops.contains_key(&route.nexthop) || groups.contains_key(&route.nexthop)
        });
    }
}

#[cfg(test)]
mod tests;
