//! One replica of a process: what the runtime keeps in memory, without its tasks.

use super::server::{Manager, Server};
use crate::cache::{Cache, CacheLimits, Changed};
use crate::controller::{ClusterChange, Env, Event, Outcome, Request, WatchChange};
use crate::entry::Signal;
use crate::execute::enter;
use crate::in_flight::InFlight;
use crate::worker::{Effects, RequestId, Worker};
use control_client::object::{Cluster, Resource};
use control_client::watch::WatchId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// The state of a replica. A crash drops it.
pub(super) struct Replica {
    pub(super) cache: Cache,
    pub(super) workers: Vec<Hosted>,
    in_flight: InFlight<(usize, RequestId)>,
    pub(super) watches: BTreeMap<WatchId, Progress>,
    pub(super) clusters: BTreeSet<Cluster>,
    pub(super) requests: Vec<Flight>,
    /// Events of all plans, also while it does not lead.
    pub(super) events: Vec<Event>,
    pub(super) is_leader: bool,
}

pub(super) struct Hosted {
    pub(super) worker: Box<dyn Worker>,
    resources: BTreeSet<Resource>,
    required: Vec<WatchId>,
    pub(super) is_started: bool,
}

/// Signals that a watch has received, and its position in the history; `None` before a list.
#[derive(Default)]
pub(super) struct Progress {
    signals: VecDeque<Signal>,
    position: Option<usize>,
    /// Whether the server has refused its list.
    is_refused: bool,
}

/// A request that was sent.
pub(super) struct Flight {
    pub(super) worker: usize,
    pub(super) id: RequestId,
    pub(super) request: Request,
    /// Set once the server has carried it out.
    pub(super) outcome: Option<Outcome>,
    /// Whether the replica has lost the Lease since: another leader may have made the change.
    pub(super) is_late: bool,
    /// Time since the start of the simulation after which the replica no longer waits.
    pub(super) deadline: Duration,
}

impl Hosted {
    /// Returns the field manager of a request.
    pub(super) fn manager(&self, request: &Request) -> Manager {
        let resource = request.object().map(|object| &object.resource);
        let registrations = self.worker.registrations().iter();
        let of_resource = registrations.filter(|it| Some(&it.resource) == resource);
        let subresource = match request {
            Request::Write(write) => write.subresource.unwrap_or_default(),
            Request::Read(_) | Request::Probe(_) => "",
        };
        let name = self.worker.field_manager();

        Manager {
            name,
            force: of_resource.clone().any(|it| it.is_forced(subresource)),
            adopts: of_resource.clone().any(|it| it.adopted.contains(&name)),
        }
    }
}

impl Replica {
    pub(super) fn new(workers: Vec<Box<dyn Worker>>) -> Self {
        let mut cache = Cache::default();
        cache.add_cluster(Cluster::Local, CacheLimits::LOCAL);
        let mut replica = Self {
            cache,
            workers: Vec::new(),
            in_flight: InFlight::default(),
            watches: BTreeMap::new(),
            events: Vec::new(),
            clusters: BTreeSet::from([Cluster::Local]),
            requests: Vec::new(),
            is_leader: false,
        };
        for worker in workers {
            let registrations = worker.registrations();
            for registration in registrations {
                let registered = replica.cache.register(registration);
                registered.expect("registrations that agree");
            }
            let ids = registrations.iter().filter_map(|it| it.watch_id());
            let required = (registrations.iter().filter(|it| !it.is_optional))
                .filter_map(|it| it.watch_id())
                .collect();
            replica
                .watches
                .extend(ids.map(|id| (id, Progress::default())));
            replica.workers.push(Hosted {
                resources: worker.resources(),
                worker,
                required,
                is_started: false,
            });
        }
        for id in replica.watches.keys() {
            replica.cache.add_watch(id.clone());
        }
        replica
    }

    /// Has every object observed, as when the replica becomes the leader.
    pub(super) fn replay(&mut self, now: Instant) {
        for hosted in self.workers.iter_mut().filter(|it| it.is_started) {
            hosted.start(&self.cache, now);
        }
    }

    /// Returns whether a watch was listed.
    pub(super) fn is_listed(&self, id: &WatchId) -> bool {
        let progress = self.watches.get(id);
        progress.is_some_and(|progress| progress.position.is_some())
    }

    /// Returns whether a watch has a signal to take.
    pub(super) fn has_signal(&self, id: &WatchId, server: &Server) -> bool {
        let (Some(progress), Some(form)) = (self.watches.get(id), self.cache.form(&id.resource))
        else {
            return false;
        };
        if server.refuses_lists(id) {
            return !progress.is_refused;
        }
        let next = progress
            .position
            .map(|position| server.next(id, position, &**form));
        !progress.signals.is_empty() || next.is_none_or(|next| next.is_some())
    }

    /// Takes the next signal of a watch.
    pub(super) fn watch(&mut self, id: &WatchId, server: &mut Server, now: Instant) {
        let (Some(progress), Some(form)) =
            (self.watches.get_mut(id), self.cache.form(&id.resource))
        else {
            return;
        };
        if server.refuses_lists(id) {
            *progress = Progress {
                is_refused: true,
                ..Progress::default()
            };
            return self.take_signal(id, Signal::Refused("Forbidden (status 403)".into()), now);
        }
        if progress.position.is_none() {
            let (signals, position) = server.list(id, &**form);
            *progress = Progress {
                signals,
                position: Some(position),
                is_refused: false,
            };
        }
        let signal = progress.signals.pop_front().or_else(|| {
            let (signal, position) = server.next(id, progress.position?, &**form)?;
            progress.position = Some(position);
            Some(signal)
        });
        if let Some(signal) = signal {
            self.take_signal(id, signal, now);
        }
    }

    fn take_signal(&mut self, id: &WatchId, signal: Signal, now: Instant) {
        let ends_list = matches!(signal, Signal::ListEnds);
        let is_refused = matches!(signal, Signal::Refused(_));
        let changes = self.cache.take_signal(id, signal).unwrap_or_default();
        self.observe(&changes, now);
        for hosted in self.workers.iter_mut().filter(|it| it.is_started) {
            if ends_list && hosted.resources.contains(&id.resource) {
                hosted.worker.listed(id, &self.cache, now);
            }
            if is_refused && hosted.resources.contains(&id.resource) {
                hosted.worker.refused(id, &self.cache, now);
            }
        }
        for hosted in &mut self.workers {
            let is_listed = || hosted.required.iter().all(|id| self.cache.is_synced(id));
            if !hosted.is_started && is_listed() {
                hosted.is_started = true;
                hosted.start(&self.cache, now);
            }
        }
    }

    /// Plans the next item of a worker.
    pub(super) fn plan(&mut self, worker: usize, env: &mut Env<'_>) {
        let step = self.workers[worker].worker.step(&self.cache, env);
        if let Some(effects) = step {
            self.carry_out(worker, effects, env.at);
        }
    }

    /// Takes the outcome of a request.
    pub(super) fn take_outcome(&mut self, flight: &Flight, outcome: &Outcome, now: Instant) {
        self.in_flight.ended(&(flight.worker, flight.id));
        let changes = enter(&mut self.cache, &flight.request, outcome);
        self.observe(changes.as_slice(), now);
        let worker = &mut self.workers[flight.worker].worker;
        let effects = worker.complete(flight.id, outcome, &self.cache, now);
        self.carry_out(flight.worker, effects, now);
    }

    /// Returns the requests that the limits permit.
    pub(super) fn start(&mut self) -> Vec<((usize, RequestId), Request)> {
        self.in_flight.start()
    }

    /// Lists all objects of a cluster again.
    pub(super) fn relist(&mut self, cluster: &Cluster) {
        let watches = self.watches.iter_mut();
        for (_, progress) in watches.filter(|(id, _)| id.cluster == *cluster) {
            *progress = Progress::default();
        }
    }

    fn carry_out(&mut self, worker: usize, effects: Effects, now: Instant) {
        for change in effects.clusters {
            match change {
                ClusterChange::Set(cluster, _) => {
                    let limits = CacheLimits::REMOTE;
                    self.cache.add_cluster(cluster.clone(), limits);
                    self.clusters.insert(cluster);
                }
                ClusterChange::Remove(cluster) => {
                    self.watches.retain(|id, _| id.cluster != cluster);
                    self.clusters.remove(&cluster);
                    let changes = self.cache.remove_cluster(&cluster);
                    self.observe(&changes, now);
                }
            }
        }
        for change in effects.watches {
            match change {
                WatchChange::Add(id) => {
                    self.cache.add_watch(id.clone());
                    self.watches.entry(id).or_default();
                }
                WatchChange::Remove(id) => {
                    self.watches.remove(&id);
                    let changes = self.cache.remove_watch(&id);
                    self.observe(&changes, now);
                }
            }
        }
        self.events.extend(effects.events);
        for ready in effects.requests {
            let id = (worker, ready.id);
            self.in_flight.push(id, ready.queue, ready.request);
        }
    }

    fn observe(&mut self, changes: &[Changed], now: Instant) {
        let seen_at = self.is_leader.then_some(now);
        for changed in changes {
            for hosted in self.workers.iter_mut().filter(|it| it.is_started) {
                if hosted.resources.contains(&changed.object.resource) {
                    hosted
                        .worker
                        .observe(&changed.seen(seen_at), &self.cache, now);
                }
            }
        }
    }
}

impl Hosted {
    fn start(&mut self, cache: &Cache, now: Instant) {
        for changed in cache.replay(&self.resources) {
            self.worker.observe(&changed.as_change(), cache, now);
        }
        self.worker.started(cache, now);
    }
}
