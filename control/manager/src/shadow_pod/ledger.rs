//! The accounts of Quotas (PURE): which ShadowPods may have a pod.
//!
//! ```text
//! Waiting --decide--> Claimed --the pod is observed--> Existing
//!    ^                   |
//!    +---- retry --- Parked (the API server refuses the pod)
//! ```
//!
//! Existing pods come first, whatever the Quota says now, and then claims, which are pods whose creation was requested.
//! ShadowPods wait in the order of their creation and UIDs, so that all leaders decide alike from the same objects. One that
//! does not fit delays no other one. The ledger follows from the objects: a new leader computes it again.

use super::demand::{Amounts, Demand, add, subtract};
use super::terms::{Excess, Terms};
use control_runtime::Key;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The pods that count against one Quota.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    /// Tenant namespace.
    pub(super) tenant: String,
    /// User, as in the label of ShadowPods.
    pub(super) creator: String,
}

/// Position of a ShadowPod among those that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Whether it never had a pod. One whose pod was deleted comes first, so that others do not take its place.
    pub(super) is_new: bool,
    pub(super) created: Option<Timestamp>,
    pub(super) uid: String,
}

/// State of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The pod exists, so its amounts count whatever the Quota says.
    Existing,
    /// A pod may be created.
    Claimed,
    /// No decision, or the ShadowPod does not fit.
    Waiting,
    /// The API server has refused the pod.
    Parked,
}

#[derive(Debug)]
struct Entry {
    group: Group,
    rank: Rank,
    demand: Arc<Demand>,
    state: State,
}

/// ShadowPods of one class fit alike, so only the first of them is compared with the Quota.
type Class = (bool, Arc<Demand>);

type Position = (Rank, Key);

#[derive(Debug, Default)]
struct Account {
    /// Sum of existing pods and claims.
    used: Amounts,
    waiting: BTreeMap<Class, BTreeSet<Position>>,
    /// Classes with ShadowPods about which nothing is decided. Those of all others did not fit, and less is available since,
    /// unless `is_freed`.
    undecided: BTreeSet<Class>,
    is_freed: bool,
}

/// The accounts of all Quotas.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<Key, Entry>,
    accounts: BTreeMap<Group, Account>,
}

impl Ledger {
    /// Charges an existing pod. Returns the groups whose waiting ShadowPods may fit now.
    pub(super) fn exists(&mut self, key: &Key, group: Group, demand: Arc<Demand>) -> Vec<Group> {
        let rank = Rank::default();
        self.put(
            key,
            Entry {
                group,
                rank,
                demand,
                state: State::Existing,
            },
        )
    }

    /// Notes that a ShadowPod waits, unless it has a claim already. Returns the groups to decide.
    pub(super) fn waits(
        &mut self,
        key: &Key,
        group: Group,
        rank: Rank,
        demand: Arc<Demand>,
    ) -> Vec<Group> {
        let known = self.entries.get(key).filter(|known| {
            known.state != State::Existing
                && known.rank == rank
                && known.group == group
                && known.demand == demand
        });
        if known.is_some() {
            return Vec::new();
        }
        self.put(
            key,
            Entry {
                group,
                rank,
                demand,
                state: State::Waiting,
            },
        )
    }

    /// Charges an existing pod for a resize, if it fits in place of what is charged for the pod. The pod counts with the larger
    /// of both amounts until [`exists`](Self::exists) charges it again.
    ///
    /// # Errors
    ///
    /// Returns why it does not fit, and charges nothing.
    pub(super) fn grow(
        &mut self,
        key: &Key,
        to: &Demand,
        terms: Option<&Terms>,
    ) -> Result<(), Excess> {
        let entry = self.entries.get(key);
        let entry = entry.filter(|entry| entry.state == State::Existing);
        let entry = entry.ok_or(Excess::NotCharged)?;
        let group = entry.group.clone();
        let terms = terms.ok_or_else(|| Excess::NoQuota {
            tenant: group.tenant.clone(),
        })?;
        let account = self.accounts.get(&group);
        let mut others = account.map(|it| it.used.clone()).unwrap_or_default();
        subtract(&mut others, &entry.demand.amounts);
        terms.check(&others, to, true)?;
        let demand = Arc::new(to.clone().raised(&entry.demand));
        self.exists(key, group, demand);

        Ok(())
    }

    /// Forgets a name. Returns the groups whose waiting ShadowPods may fit now.
    pub(super) fn remove(&mut self, key: &Key) -> Vec<Group> {
        let Some(entry) = self.entries.remove(key) else {
            return Vec::new();
        };
        let account = self.accounts.entry(entry.group.clone()).or_default();
        account.take(key, &entry);
        let is_freed = account.is_freed;
        self.drop_if_empty(&entry.group);

        is_freed.then_some(entry.group).into_iter().collect()
    }

    /// Returns the claim of a ShadowPod that the API server has refused. It waits until [`retry`](Self::retry).
    pub(super) fn park(&mut self, key: &Key) -> Vec<Group> {
        self.change(key, State::Claimed, State::Parked)
    }

    /// Decides about a refused ShadowPod again.
    pub(super) fn retry(&mut self, key: &Key) {
        self.change(key, State::Parked, State::Waiting);
    }

    /// Decides about all ShadowPods of a group again, because its Quota has changed.
    pub(super) fn reconsider(&mut self, group: &Group) {
        if let Some(account) = self.accounts.get_mut(group) {
            account.is_freed = true;
        }
    }

    /// Decides about the ShadowPods of a group that wait, and returns those that have a claim since.
    ///
    /// The cost depends on the number of claims and of different requests, not on that of ShadowPods.
    pub(super) fn decide(&mut self, group: &Group, terms: Option<&Terms>) -> Vec<Key> {
        let Some(account) = self.accounts.get_mut(group) else {
            return Vec::new();
        };
        let mut first = account.candidates();
        let Some(terms) = terms else {
            return Vec::new();
        };
        let mut claimed = Vec::new();
        while let Some(((rank, key), class)) = first.pop_first() {
            let (is_new, demand) = &class;
            if terms.check(&account.used, demand, *is_new).is_err() {
                continue;
            }
            add(&mut account.used, &demand.amounts);
            account.remove(&class, &(rank, key.clone()));
            if let Some(next) = account.first(&class) {
                first.insert((next, class));
            }
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.state = State::Claimed;
            }
            claimed.push(key);
        }

        claimed
    }

    /// Returns what is known about a name.
    pub(super) fn state(&self, key: &Key) -> Option<State> {
        self.entries.get(key).map(|entry| entry.state)
    }

    /// Returns whether a ShadowPod has a claim for exactly this demand.
    pub(super) fn has_claim(
        &self,
        key: &Key,
        (group, rank, demand): (&Group, &Rank, &Arc<Demand>),
    ) -> bool {
        self.entries.get(key).is_some_and(|entry| {
            entry.state == State::Claimed
                && entry.group == *group
                && entry.rank == *rank
                && entry.demand == *demand
        })
    }

    /// Returns why a ShadowPod that waits does not fit.
    pub(super) fn excess(&self, key: &Key, terms: Option<&Terms>) -> Option<Excess> {
        let entry = self.entries.get(key)?;
        let Some(terms) = terms else {
            let tenant = entry.group.tenant.clone();
            return Some(Excess::NoQuota { tenant });
        };
        let used = &self.accounts.get(&entry.group)?.used;
        terms.check(used, &entry.demand, entry.rank.is_new).err()
    }

    /// Returns the resources of all pods and claims of a group.
    #[cfg(test)]
    pub(super) fn used(&self, group: &Group) -> Amounts {
        let account = self.accounts.get(group);
        account.map(|it| it.used.clone()).unwrap_or_default()
    }

    fn change(&mut self, key: &Key, from: State, to: State) -> Vec<Group> {
        let Some(entry) = self.entries.get(key).filter(|entry| entry.state == from) else {
            return Vec::new();
        };
        let changed = Entry {
            group: entry.group.clone(),
            rank: entry.rank.clone(),
            demand: Arc::clone(&entry.demand),
            state: to,
        };
        self.put(key, changed)
    }

    fn put(&mut self, key: &Key, entry: Entry) -> Vec<Group> {
        let group = entry.group.clone();
        // A claim that becomes a pod frees nothing for others.
        let is_kept = self.entries.get(key).is_some_and(|old| {
            old.is_charged()
                && entry.is_charged()
                && old.group == group
                && old.demand == entry.demand
        });
        if is_kept {
            self.entries.insert(key.clone(), entry);
            return Vec::new();
        }
        let mut groups = self.remove(key);
        self.accounts
            .entry(group.clone())
            .or_default()
            .add(key, &entry);
        let is_undecided = entry.state == State::Waiting;
        self.entries.insert(key.clone(), entry);
        if is_undecided && !groups.contains(&group) {
            groups.push(group);
        }

        groups
    }

    fn drop_if_empty(&mut self, group: &Group) {
        let is_empty = self
            .accounts
            .get(group)
            .is_some_and(|account| account.used.is_empty() && account.waiting.is_empty());
        if is_empty {
            self.accounts.remove(group);
        }
    }
}

impl Entry {
    fn is_charged(&self) -> bool {
        matches!(self.state, State::Existing | State::Claimed)
    }

    fn class(&self) -> Class {
        (self.rank.is_new, Arc::clone(&self.demand))
    }
}

impl Account {
    fn add(&mut self, key: &Key, entry: &Entry) {
        match entry.state {
            State::Existing | State::Claimed => add(&mut self.used, &entry.demand.amounts),
            State::Waiting => {
                let position = (entry.rank.clone(), key.clone());
                let class = entry.class();
                let waiting = self.waiting.entry(class.clone()).or_default();
                waiting.insert(position);
                self.undecided.insert(class);
            }
            State::Parked => {}
        }
    }

    fn take(&mut self, key: &Key, entry: &Entry) {
        match entry.state {
            State::Existing | State::Claimed => {
                subtract(&mut self.used, &entry.demand.amounts);
                self.is_freed = true;
            }
            State::Waiting => {
                self.remove(&entry.class(), &(entry.rank.clone(), key.clone()));
            }
            State::Parked => {}
        }
    }

    fn remove(&mut self, class: &Class, position: &Position) {
        if let Some(waiting) = self.waiting.get_mut(class) {
            waiting.remove(position);
            if waiting.is_empty() {
                self.waiting.remove(class);
                self.undecided.remove(class);
            }
        }
    }

    /// Returns the first of each class that may fit, in their order.
    fn candidates(&mut self) -> BTreeSet<(Position, Class)> {
        let undecided = std::mem::take(&mut self.undecided);
        let is_freed = std::mem::take(&mut self.is_freed);
        let classes = if is_freed {
            self.waiting.keys().cloned().collect()
        } else {
            undecided
        };
        let first = classes.into_iter().filter_map(|class| {
            let first = self.first(&class)?;
            Some((first, class))
        });

        first.collect()
    }

    fn first(&self, class: &Class) -> Option<Position> {
        self.waiting.get(class)?.first().cloned()
    }
}
