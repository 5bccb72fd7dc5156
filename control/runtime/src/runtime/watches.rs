//! The watches that controllers need, and those that run.

use super::relists::Relists;
use super::{Runtime, write};
use crate::registration::{Registration, Scope};
use control_client::object::Cluster;
use control_client::watch::{Siblings, Target, WatchId, spread};
use futures_util::StreamExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{AbortHandle, JoinSet};

/// Mean delay after the server has refused a watch that no controller requires: most clusters lack the resource, and every node may
/// ask for it.
const OPTIONAL_DELAY: Duration = Duration::from_secs(600);

/// Mean delay of such a watch that a plan has added. It is spread over 60 to 100 s.
const PLANNED_DELAY: Duration = Duration::from_secs(80);

/// A watch is needed as long as a controller has it registered or planned. It runs while its cluster is
/// connected, unless only cold standbys need it.
#[derive(Default)]
pub(super) struct Watches {
    needed: BTreeMap<WatchId, Needed>,
    clusters: BTreeMap<Cluster, OfCluster>,
    /// Generation of the next watch.
    next_generation: u64,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Needed {
    /// Controllers that need it, by number.
    workers: BTreeSet<usize>,
    running: Option<Running>,
}

#[derive(Default)]
struct OfCluster {
    /// Its running watches share it, and so know their number, and whether the server streams lists.
    siblings: Arc<Siblings>,
    relists: Relists,
}

/// A watch that runs. A restarted watch has another generation, which its late signals lack.
struct Running {
    task: AbortHandle,
    generation: u64,
}

impl Watches {
    pub(super) fn add(&mut self, id: WatchId, worker: usize) {
        self.needed.entry(id).or_default().workers.insert(worker);
    }

    /// Returns the watches that a controller needs.
    pub(super) fn of(&self, worker: usize) -> Vec<WatchId> {
        self.filtered(|_, needed| needed.workers.contains(&worker))
    }

    /// Notes that a controller needs only these watches.
    pub(super) fn release_others(&mut self, worker: usize, needed: &BTreeSet<WatchId>) {
        let others = self
            .needed
            .iter_mut()
            .filter(|(id, _)| !needed.contains(id));
        others.for_each(|(_, it)| {
            it.workers.remove(&worker);
        });
    }

    pub(super) fn of_cluster(&self, cluster: &Cluster) -> Vec<WatchId> {
        self.filtered(|id, _| id.cluster == *cluster)
    }

    fn filtered(&self, filter: impl Fn(&WatchId, &Needed) -> bool) -> Vec<WatchId> {
        let needed = self.needed.iter().filter(|(id, needed)| filter(id, needed));
        needed.map(|(id, _)| id.clone()).collect()
    }

    /// Returns whether a watch of this generation runs.
    pub(super) fn is_current(&self, id: &WatchId, generation: u64) -> bool {
        let running = self.needed.get(id).and_then(|it| it.running.as_ref());
        running.is_some_and(|running| running.generation == generation)
    }

    /// Notes that the versions of a cluster went back.
    pub(super) fn went_back(&mut self, cluster: &Cluster, now: Instant) {
        let of_cluster = self.clusters.entry(cluster.clone()).or_default();
        of_cluster.relists.request(now);
    }

    /// Returns the clusters whose objects are to be listed again now, because versions went back.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Cluster> {
        let clusters = self.clusters.iter_mut();
        let due = clusters.filter_map(|(id, it)| it.relists.take(now).then(|| id.clone()));
        due.collect()
    }

    /// Returns when such lists are due.
    pub(super) fn next_at(&self) -> impl Iterator<Item = Instant> {
        self.clusters.values().filter_map(|it| it.relists.due)
    }

    /// Stops all watches.
    pub(super) fn stop(&mut self) {
        self.tasks.abort_all();
    }
}

impl Runtime {
    pub(super) fn add_watch(&mut self, id: WatchId, worker: usize) {
        if self.cache.read().form(&id.resource).is_none() {
            tracing::error!(watch = %id, "no controller registers the resource");
            return;
        }
        self.watches.add(id.clone(), worker);
        self.sync_watch(&id);
    }

    pub(super) fn remove_watch(&mut self, id: &WatchId, worker: usize) {
        if let Some(needed) = self.watches.needed.get_mut(id) {
            needed.workers.remove(&worker);
            self.sync_watch(id);
        }
    }

    /// Stops the watches of a cluster. Those that other controllers need than the one that removes the
    /// cluster start again when it is set.
    pub(super) fn remove_watches(&mut self, cluster: &Cluster, worker: usize) {
        for id in self.watches.of_cluster(cluster) {
            self.stop_watch(&id);
            self.remove_watch(&id, worker);
        }
        self.watches.clusters.remove(cluster);
    }

    /// Starts or stops a watch, as it is needed now.
    pub(super) fn sync_watch(&mut self, id: &WatchId) {
        let Some(needed) = self.watches.needed.get(id) else {
            return;
        };
        let may_run = |worker: &usize| {
            let hosted = &self.workers[*worker];
            !hosted.is_cold || self.elections.is_held(hosted.election)
        };
        let should_run = needed.workers.iter().any(may_run);
        match (should_run, needed.running.is_some()) {
            (true, false) => self.start_watch(id, Duration::ZERO),
            (false, true) => self.stop_watch(id),
            (true, true) | (false, false) => {}
        }
        let needed = self.watches.needed.get(id);
        if !should_run && needed.is_some_and(|it| it.workers.is_empty()) {
            self.watches.needed.remove(id);
        }
    }

    fn start_watch(&mut self, id: &WatchId, delay: Duration) {
        let form = self.cache.read().form(&id.resource).cloned();
        let client = self.clusters.client(&id.cluster).cloned();
        let (Some(form), Some(client)) = (form, client) else {
            return; // It starts when the cluster is connected.
        };
        write(&self.cache).add_watch(id.clone());
        let of_cluster = self.watches.clusters.entry(id.cluster.clone()).or_default();
        let siblings = Arc::clone(&of_cluster.siblings);
        let mut signals = form.watch(Target {
            client,
            id: id.clone(),
            refused_delay: self.refused_delay(id),
            siblings,
        });
        let (watched, sender) = (id.clone(), self.sender.clone());
        let generation = self.watches.next_generation;
        self.watches.next_generation += 1;
        let task = self.watches.tasks.spawn(async move {
            tokio::time::sleep(delay).await;
            while let Some(signal) = signals.next().await {
                let report = (watched.clone(), generation, signal);
                if sender.send(report).await.is_err() {
                    return;
                }
            }
        });
        if let Some(needed) = self.watches.needed.get_mut(id) {
            needed.running = Some(Running { task, generation });
        }
    }

    /// Stops a watch, and removes the objects that no other watch reports.
    fn stop_watch(&mut self, id: &WatchId) {
        self.abort_watch(id);
        self.status.synced(id);
        let changes = write(&self.cache).remove_watch(id);
        self.observe(&changes);
    }

    /// Ends the task of a watch. Returns whether there was one.
    fn abort_watch(&mut self, id: &WatchId) -> bool {
        while self.watches.tasks.try_join_next().is_some() {} // Those that were aborted before.
        let needed = self.watches.needed.get_mut(id);
        let running = needed.and_then(|needed| needed.running.take());
        running.inspect(|it| it.task.abort()).is_some()
    }

    /// Lists all objects of a cluster again.
    pub(super) fn relist(&mut self, cluster: &Cluster) {
        let watches = self.watches.of_cluster(cluster);
        for id in &watches {
            self.restart_watch(id, spread(watches.len()));
        }
    }

    /// Lists all objects of a watch again after a delay, if it runs.
    pub(super) fn restart_watch(&mut self, id: &WatchId, delay: Duration) {
        if self.abort_watch(id) {
            self.start_watch(id, delay);
        }
    }

    /// Returns whether all controllers that need a watch go on without it.
    pub(super) fn is_optional(&self, id: &WatchId) -> bool {
        let mut registrations = self.registrations(id).peekable();
        registrations.peek().is_some() && registrations.all(|it| it.is_optional)
    }

    /// Returns the mean delay after a refusal of a watch; `None` for a short one that grows.
    fn refused_delay(&self, id: &WatchId) -> Option<Duration> {
        let mut registrations = self.registrations(id);
        let delay = match registrations.any(|it| it.scope != Scope::Planned) {
            true => OPTIONAL_DELAY,
            false => PLANNED_DELAY,
        };

        self.is_optional(id).then_some(delay)
    }

    /// Returns the registrations by which controllers need a watch.
    fn registrations(&self, id: &WatchId) -> impl Iterator<Item = &Registration> {
        let needed = self.watches.needed.get(id);
        let workers = needed.into_iter().flat_map(|it| &it.workers);
        let registrations = workers.flat_map(|it| self.workers[*it].worker.registrations());
        registrations.filter(move |it| {
            let is_planned = it.scope == Scope::Planned && it.resource == id.resource;
            is_planned || it.watch_id().as_ref() == Some(id)
        })
    }
}
