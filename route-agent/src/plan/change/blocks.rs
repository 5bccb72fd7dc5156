//! The change of an aggregated set of prefixes by single prefixes.
//!
//! The aggregated set has the largest prefixes that consist of prefixes of the original set, so no
//! two of them are the halves of another prefix. [`Ipv4Net::aggregate`] returns the same set.

use crate::ruleset::{ElementChanges, REMOTE, Ruleset};
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};

/// A change of the set of remote prefixes in a ruleset.
pub(super) struct Blocks<'a> {
    before: &'a Ruleset,
    /// Whether a prefix is in the set after the change; unchanged prefixes have no entry.
    changed: BTreeMap<Ipv4Net, bool>,
}

impl<'a> Blocks<'a> {
    /// Computes the change by removed and added prefixes. No prefix may overlap another prefix of
    /// the original set. Returns `None` if the set lacks a removed prefix.
    pub(super) fn change(
        before: &'a Ruleset,
        removed: &BTreeSet<Ipv4Net>,
        added: &BTreeSet<Ipv4Net>,
    ) -> Option<Self> {
        let changed = BTreeMap::new();
        let mut blocks = Self { before, changed };
        for net in removed.difference(added) {
            blocks.remove(*net)?;
        }
        for net in added.difference(removed) {
            blocks.add(*net);
        }

        Some(blocks)
    }

    pub(super) fn add_to(self, elements: &mut ElementChanges) {
        for (net, is_added) in self.changed {
            match (self.before.has(REMOTE, net), is_added) {
                (true, false) => elements.remove(REMOTE, Some(net)),
                (false, true) => elements.add(REMOTE, Some(net)),
                (true, true) | (false, false) => {}
            }
        }
    }

    fn remove(&mut self, net: Ipv4Net) -> Option<()> {
        let above = std::iter::successors(Some(net), Ipv4Net::supernet);
        let inside: Vec<_> = above.take_while(|it| !self.has(*it)).collect();
        let block = inside.last().map_or(Some(net), Ipv4Net::supernet)?;
        self.changed.insert(block, false);
        for rest in inside.into_iter().filter_map(sibling) {
            self.changed.insert(rest, true);
        }

        Some(())
    }

    fn add(&mut self, mut net: Ipv4Net) {
        while let Some(other) = sibling(net).filter(|it| self.has(*it)) {
            self.changed.insert(other, false);
            let Some(both) = net.supernet() else { break };
            net = both;
        }
        self.changed.insert(net, true);
    }

    fn has(&self, net: Ipv4Net) -> bool {
        let changed = self.changed.get(&net).copied();

        changed.unwrap_or_else(|| self.before.has(REMOTE, net))
    }
}

/// Returns the other half of the prefix that is one bit shorter.
fn sibling(net: Ipv4Net) -> Option<Ipv4Net> {
    let halves = net.supernet()?.subnets(net.prefix_len()).ok()?;

    halves.into_iter().find(|half| *half != net)
}
