//! Computes the changes of the kernel's state after a change of the desired state, in time for the
//! changed elements.
//!
//! It uses the functions by which [`plan`](super::plan()) treats a single element. A change that may
//! affect other elements, such as one of this node or of a gateway replica, needs a plan of the whole.

use super::classes::Classes;
use super::{Input, masqueraded, members, mtu_bytes, mtus, mutant, node, slots, translated};
use crate::diff::Op;
use crate::ruleset::{ElementChanges, MAPPED, MASQUERADED};
use crate::settings::PROBES;
use crate::state::{Route, State};
use blocks::Blocks;
use control_fabric::{Difference, Fabric, FabricChange, Keyed as _, Node, Peer, overlaps};
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

mod blocks;

/// Returns the changes of the kernel's state by `change`, which leads from `old` to `input.fabric`.
/// `input.observed` is the state that was planned for `old`.
///
/// The changes are in the order of [`diff`](crate::diff::diff()). Returns `None` if the whole state
/// must be planned.
pub(crate) fn changes(
    input: &Input<'_>,
    old: &Fabric,
    change: &FabricChange<'_>,
) -> Option<Vec<Op>> {
    let node = node(input.fabric, input.node).ok()?;
    let mut nodes = change.nodes.iter().flat_map(Difference::both);
    let is_global = change.is_of_cluster || change.is_of_replicas || change.is_of_echo_responder;
    if is_global || nodes.any(|it| it.name == node.name) {
        return None;
    }

    let filter = input.observed.filter.as_ref()?;
    let hops = Hops::assign(input)?;
    let mut elements = ElementChanges::default();
    change_addresses(node, change, &mut elements);
    let rerouted = Rerouted::new(change);
    let mut ops = Vec::new();
    if rerouted.is_empty() {
        ops.extend(filter_change(elements));
        return Some(ops);
    }
    rerouted.check(input, old)?;
    let blocks = Blocks::change(filter, &rerouted.removed, &rerouted.added)?;
    blocks.add_to(&mut elements);

    let routes = rerouted.routes(input, node, &hops)?;
    let observed = input.observed;
    let new = rerouted.added.difference(&observed.unreachable);
    ops.extend(new.copied().map(Op::AddUnreachable));
    ops.extend(filter_change(elements));
    let is_changed = |(dst, route): &(&Ipv4Net, &Route)| observed.routes.get(*dst) != Some(*route);
    let set = routes.iter().filter(is_changed);
    ops.extend(set.map(|(dst, route)| Op::SetRoute(*dst, *route)));
    let both = rerouted.removed.union(&rerouted.added);
    let stale = both.filter(|dst| observed.routes.contains_key(*dst) && !routes.contains_key(*dst));
    ops.extend(stale.copied().map(Op::DeleteRoute));
    let gone = rerouted.removed.difference(&rerouted.added);
    ops.extend(gone.copied().map(Op::DeleteUnreachable));

    Some(ops)
}

/// Returns the ids of the peers whose routes depend on the change.
pub(crate) fn rerouted<'a>(change: &FabricChange<'a>) -> Vec<&'a str> {
    let peers = change.peers.iter().filter(|it| is_rerouted(it));
    let peers = peers.filter_map(|it| it.new.or(it.old));

    peers.map(|peer| peer.key().0).collect()
}

fn is_rerouted(change: &Difference<'_, Peer>) -> bool {
    let routing = |peer: &Peer| (Fabric::remote_cidrs(peer).collect::<Vec<_>>(), peer.mtu);

    change.old.map(routing) != change.new.map(routing)
}

fn filter_change(elements: ElementChanges) -> Option<Op> {
    (!elements.is_empty()).then_some(Op::ChangeFilter(elements))
}

fn change_addresses(node: &Node, change: &FabricChange<'_>, elements: &mut ElementChanges) {
    for ip in change.ips.iter().filter_map(|it| it.old) {
        elements.remove(MAPPED, translated(ip, node));
        elements.remove(MASQUERADED, masqueraded(ip, node));
    }
    for ip in change.ips.iter().filter_map(|it| it.new) {
        elements.add(MAPPED, translated(ip, node));
        elements.add(MASQUERADED, masqueraded(ip, node));
    }
}

/// The assignment of nexthop ids, which is that of the observed state.
struct Hops {
    slots: BTreeMap<Ipv4Addr, u8>,
    classes: Classes,
}

impl Hops {
    /// Returns `None` if a plan would assign other ids. The ids depend on the observed routes, so
    /// they change after the last route of an MTU is gone.
    fn assign(input: &Input<'_>) -> Option<Self> {
        let Input {
            fabric,
            settings,
            observed,
            ..
        } = *input;
        let slots = slots::assign(&fabric.replicas, observed, settings).ok()?;
        let mtus = mtus(&fabric.peers, input.underlay.mtu_bytes);
        let classes = Classes::assign(&mtus, observed, settings);
        let ids = slots.values().flat_map(|slot| {
            let classes = classes.all().chain([PROBES]);
            classes.map(|class| settings.hop_id(*slot, class))
        });
        let ids: BTreeSet<u32> = ids.collect();

        ids.iter()
            .eq(observed.hops.keys())
            .then_some(Self { slots, classes })
    }
}

/// The peers whose prefixes or MTU change.
struct Rerouted<'a> {
    peers: Vec<&'a Difference<'a, Peer>>,
    /// The prefixes before the change.
    removed: BTreeSet<Ipv4Net>,
    /// The prefixes after the change.
    added: BTreeSet<Ipv4Net>,
}

impl<'a> Rerouted<'a> {
    fn new(change: &'a FabricChange<'_>) -> Self {
        let peers: Vec<_> = change.peers.iter().filter(|it| is_rerouted(it)).collect();
        let cidrs = |peer: Option<&Peer>| peer.into_iter().flat_map(Fabric::remote_cidrs).collect();
        let removed = peers.iter().flat_map(|it| -> Vec<_> { cidrs(it.old) });
        let added = peers.iter().flat_map(|it| -> Vec<_> { cidrs(it.new) });

        Self {
            removed: removed.collect(),
            added: added.collect(),
            peers,
        }
    }

    fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Returns `None` if the change affects the nexthops or prefixes of other peers.
    fn check(&self, input: &Input<'_>, old: &Fabric) -> Option<()> {
        if mutant::disables("unreachable-route") {
            return None;
        }
        let underlay = input.underlay.mtu_bytes;
        let is_same = mtus(&input.fabric.peers, underlay) == mtus(&old.peers, underlay);
        let others = &input.observed.unreachable;
        let probes = input.settings.probe_net;
        let mut prefixes = self.removed.union(&self.added);
        let is_disjoint = prefixes
            .all(|net| !overlaps_others(*net, others, &self.removed) && !overlaps(*net, probes))
            && [&self.removed, &self.added].into_iter().all(are_disjoint);

        (is_same && is_disjoint).then_some(())
    }

    /// Returns the routes of the peers after the change. Returns `None` if a nexthop group must be
    /// created or deleted. Otherwise the MTU of the overlay device stays, because each group has routes
    /// of one MTU.
    fn routes(
        &self,
        input: &Input<'_>,
        node: &Node,
        hops: &Hops,
    ) -> Option<BTreeMap<Ipv4Net, Route>> {
        let observed = input.observed;
        let mut routes = BTreeMap::new();
        let mut left = BTreeSet::new();
        for change in &self.peers {
            let before = change.old.and_then(|peer| route_of(peer, observed));
            let after = match change.new {
                Some(peer) => route(input, node, peer, hops)?,
                None => None,
            };
            left.extend(before.map(|route| route.nexthop));
            if let Some((peer, route)) = change.new.zip(after) {
                routes.extend(Fabric::remote_cidrs(peer).map(|cidr| (cidr, route)));
            }
        }

        let mut left = left.into_iter();
        let is_used = |group| {
            let others = observed.routes.iter();
            let mut others = others.filter(|(dst, _)| !self.removed.contains(dst));
            routes.values().any(|route| route.nexthop == group)
                || others.any(|(_, route)| route.nexthop == group)
        };
        left.all(is_used).then_some(routes)
    }
}

/// Returns the route to the prefixes of a peer, `Some(None)` if no replica reaches it.
///
/// Returns `None` if no nexthop group has exactly the replicas that reach the peer.
fn route(input: &Input<'_>, node: &Node, peer: &Peer, hops: &Hops) -> Option<Option<Route>> {
    let Some((class, mtu)) = hops.classes.of(mtu_bytes(peer, input.underlay.mtu_bytes)) else {
        return Some(None);
    };
    let members = members(input, peer, &hops.slots, class);
    if members.is_empty() {
        return Some(None);
    }
    let mut groups = input.observed.groups.iter();
    let (group, _) = groups.find(|(_, it)| **it == members)?;

    Some(Some(Route {
        nexthop: *group,
        src: node.external_ip,
        mtu_bytes: Some(mtu),
    }))
}

/// Returns the observed route to the prefixes of a peer.
fn route_of(peer: &Peer, observed: &State) -> Option<Route> {
    Fabric::remote_cidrs(peer).find_map(|cidr| observed.routes.get(&cidr).copied())
}

fn are_disjoint(nets: &BTreeSet<Ipv4Net>) -> bool {
    // In this order, the prefixes that overlap a prefix follow it.
    nets.iter()
        .zip(nets.iter().skip(1))
        .all(|(a, b)| !a.contains(b))
}

/// Returns whether `net` overlaps a prefix of `nets` that is not in `except`.
fn overlaps_others(net: Ipv4Net, nets: &BTreeSet<Ipv4Net>, except: &BTreeSet<Ipv4Net>) -> bool {
    let is_other = |it: &Ipv4Net| nets.contains(it) && !except.contains(it);
    let mut above = std::iter::successors(net.supernet(), Ipv4Net::supernet);
    let last = Ipv4Net::from(net.broadcast());
    let mut inside = nets.range(net..=last).filter(|it| net.contains(*it));

    above.any(|it| is_other(&it)) || inside.any(|it| !except.contains(it))
}

#[cfg(test)]
mod tests;
