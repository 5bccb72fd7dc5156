//! Which changes lead from the observed state to the desired one, in which order.

use crate::ruleset::Ruleset;
use crate::state::{Device, Hop, Route, State};
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};

/// One change to the kernel; each is one atomic request, or a few of which none makes traffic worse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Makes a destination unreachable unless a better route leads there.
    AddUnreachable(Ipv4Net),
    /// Sends every packet through our table first.
    AddRule,
    /// Makes or replaces our nft table, in one transaction.
    SetFilter(Ruleset),
    /// Makes the overlay device.
    CreateDevice(Device),
    /// Changes what can be changed about the overlay device.
    SetDevice(Device),
    /// Gives the overlay device an address.
    AddAddress(Ipv4Net),
    /// Makes a hop, or replaces the one with this id.
    SetHop(u32, Hop),
    /// Makes a group, or replaces the members of the one with this id.
    SetGroup(u32, BTreeSet<u32>),
    /// Makes a route, or replaces the one to this destination.
    SetRoute(Ipv4Net, Route),
    /// Deletes the route that leads to this destination; the unreachable one stays.
    DeleteRoute(Ipv4Net),
    /// Deletes a group that no route uses.
    DeleteGroup(u32),
    /// Deletes a hop that no group and no route uses.
    DeleteHop(u32),
    /// Takes an address from the overlay device.
    DeleteAddress(Ipv4Net),
    /// Deletes the overlay device.
    DeleteDevice,
    /// Deletes the policy rule.
    DeleteRule,
    /// Deletes an unreachable route.
    DeleteUnreachable(Ipv4Net),
    /// Deletes our nft table.
    DeleteFilter,
}

/// Whether the changes that come after `failed` may be made although that one failed.
///
/// A filter that cannot be set must not keep a dead replica in its group. But nothing
/// may come in unfiltered: without it, no device is made or brought up.
pub(crate) fn may_go_on(failed: &Op, rest: &[Op], observed: &State) -> bool {
    let makes_device = rest.iter().any(|op| matches!(op, Op::CreateDevice(_)));
    let has_device = observed.device.is_some_and(|device| device.ready);

    matches!(failed, Op::SetFilter(_)) && has_device && !makes_device
}

/// Returns the changes that turn `observed` into `desired`.
///
/// Three promises, each a property test:
/// - the unreachable routes come first and leave last, so that no step leaves a
///   destination of both states without a route of ours;
/// - what refers to something comes after it is made and before it is deleted;
/// - a change of members, of a hop or of a route is one replacement.
pub(crate) fn diff(observed: &State, desired: &State) -> Vec<Op> {
    let mut ops = Vec::new();
    let mut base = observed.clone();

    ops.extend(missing(&observed.unreachable, &desired.unreachable).map(Op::AddUnreachable));
    if desired.rule && !observed.rule {
        ops.push(Op::AddRule);
    }
    // Before the device: nothing may come in unfiltered.
    if let Some(filter) = &desired.filter
        && observed.filter.as_ref() != Some(filter)
    {
        ops.push(Op::SetFilter(filter.clone()));
    }
    for op in device(observed, desired) {
        // The rest is compared with what the kernel drops together with a device.
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
        (Some(old), Some(new)) if old.can_become(&new) => vec![Op::SetDevice(new)],
        (Some(_), Some(new)) => vec![Op::DeleteDevice, Op::CreateDevice(new)],
        (None, Some(new)) => vec![Op::CreateDevice(new)],
        (_, None) => Vec::new(),
    }
}

/// Deletes what cannot be replaced: hops and groups that somebody turned into something else.
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

/// The members of `desired` that `observed` lacks.
fn missing<'a, T: Ord + Copy>(
    observed: &'a BTreeSet<T>,
    desired: &'a BTreeSet<T>,
) -> impl Iterator<Item = T> {
    desired.difference(observed).copied()
}

/// The entries of `desired` that `observed` lacks or holds with another value.
fn changed<'a, K: Ord + Copy, V: PartialEq + Clone>(
    observed: &'a BTreeMap<K, V>,
    desired: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (K, V)> {
    desired
        .iter()
        .filter(|(key, value)| observed.get(key) != Some(value))
        .map(|(key, value)| (*key, value.clone()))
}

/// The keys of `observed` that `desired` lacks.
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
    /// Changes `self` as the kernel changes when it obeys `op`.
    ///
    /// Includes what the kernel deletes on its own: routes whose nexthop or source
    /// address goes, and everything that leads through a deleted device.
    pub(crate) fn apply(&mut self, op: &Op) {
        match op {
            Op::AddUnreachable(dst) => drop(self.unreachable.insert(*dst)),
            Op::AddRule => self.rule = true,
            Op::SetFilter(filter) => self.filter = Some(filter.clone()),
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
