//! Simulation of controllers with several clusters, for tests.
//!
//! The pure parts of the runtime (workers, work queues, cache, limits of requests) run against API
//! servers in memory, under virtual time. A seed decides the order in which plans, requests, responses
//! and events of watches happen, so a failure can be repeated:
//!
//! ```text
//! Server --signals--> Cache --observe--> WorkQueue --plan--> InFlight --requests--> Server
//!   one step, chosen by the seed, is one signal, plan, request or response
//! ```
//!
//! It is no second Kubernetes. It leaves out: schemas, defaults and validation; admission, RBAC,
//! garbage collection and deletion of the objects in a namespace; pages, bookmarks, expired history
//! and restored etcds; lists as maps (a list has one owner); the adoption of fields of earlier
//! releases; `generation`; subresources other than `status`, evictions and changes of pods; the Lease itself, of which
//! [`Simulation::hand_over`] is the result; Events. Tests with a real API server and with sockets
//! cover them.

use crate::controller::{Controller, Env, Event, Outcome, Request};
use crate::injector::Injector;
use crate::worker::{TypedWorker, Worker};
use control_client::object::{Cluster, Ref};
use control_client::transport::Kind;
use control_client::watch::WatchId;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod fields;
mod parts;
mod replica;
mod sent;
mod server;

pub use sent::{Sent, Unsettled};
pub use server::Server;

use replica::{Flight, Replica};

/// Time that one step takes. An endless loop of steps so exceeds the limit of [`Simulation::settle`].
const STEP: Duration = Duration::from_millis(1);

type Make = Box<dyn Fn() -> Box<dyn Worker>>;

/// Replicas of one process, and the clusters that they follow.
pub struct Simulation {
    controllers: Vec<Make>,
    replicas: Vec<Replica>,
    leader: usize,
    servers: BTreeMap<Cluster, Server>,
    partitioned: BTreeSet<Cluster>,
    start: Instant,
    elapsed: Duration,
    random: u64,
    log: Vec<Sent>,
    /// Clusters of the probes that reached an API server.
    probed: Vec<Cluster>,
    /// Objects of writes whose response was lost, or that a new leader may not know: they may be
    /// written again.
    uncertain: BTreeSet<Ref>,
}

/// One thing that can happen next, in a replica.
enum Step {
    Plan(usize, usize),
    Watch(usize, Box<WatchId>),
    Execute(usize, usize),
    Answer(usize, usize),
}

impl Simulation {
    /// Creates the local cluster and one replica without controllers.
    pub fn new(seed: u64) -> Self {
        let mut simulation = Self {
            controllers: Vec::new(),
            replicas: vec![Replica::new(Vec::new())],
            leader: 0,
            servers: BTreeMap::new(),
            partitioned: BTreeSet::new(),
            start: Instant::now(),
            elapsed: Duration::ZERO,
            random: seed,
            log: Vec::new(),
            probed: Vec::new(),
            uncertain: BTreeSet::new(),
        };
        simulation.cluster(&Cluster::Local);
        simulation
    }

    /// Adds a controller to all replicas. `make` creates it, again after each crash.
    ///
    /// # Panics
    ///
    /// Panics if its registrations contradict those of another controller.
    #[must_use]
    pub fn host<C: Controller>(self, make: impl Fn() -> C + 'static) -> Self {
        self.host_injected(move |_| make())
    }

    /// Adds a controller, as [`host`](Self::host) does. `make` gets the injector of its replica.
    ///
    /// # Panics
    ///
    /// Panics if its registrations contradict those of another controller.
    #[must_use]
    pub fn host_injected<C, F>(mut self, make: F) -> Self
    where
        C: Controller,
        F: Fn(Injector<C::Item>) -> C + 'static,
    {
        let make = move || -> Box<dyn Worker> {
            let injector = Injector::new(Arc::default());
            let mut worker = TypedWorker::new(make(injector.clone()), injector);
            worker.jitter = || 0.5;
            Box::new(worker)
        };
        self.controllers.push(Box::new(make));
        let count = self.replicas.len();
        self.replicas(count)
    }

    /// Sets the number of replicas. The first one leads.
    #[must_use]
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = (0..count).map(|_| self.replica()).collect();
        self
    }

    fn replica(&self) -> Replica {
        Replica::new(self.controllers.iter().map(|make| make()).collect())
    }

    /// Returns the API server of a cluster, which is created if there is none. A plan has to add a
    /// remote cluster before its objects are followed; the address does not matter.
    pub fn cluster(&mut self, cluster: &Cluster) -> &mut Server {
        let now = self.time();
        let server = self.servers.entry(cluster.clone());
        let server = server.or_insert_with(|| Server::new(cluster.clone()));
        server.now = now;
        server
    }

    /// Returns the API server of the local cluster.
    pub fn local(&mut self) -> &mut Server {
        self.cluster(&Cluster::Local)
    }

    /// Runs until nothing is left to do.
    ///
    /// # Errors
    ///
    /// Returns [`Unsettled`] if that takes longer than `limit`, in virtual time.
    pub fn settle(&mut self, limit: Duration) -> Result<(), Unsettled> {
        if self.run(limit) {
            return Ok(());
        }
        let first = self.log.len().saturating_sub(10);
        let last = self.log[first..].to_vec();
        Err(Unsettled { last })
    }

    /// Runs for a time, or until nothing is left to do; returns whether nothing is.
    pub fn run(&mut self, time: Duration) -> bool {
        let end = self.elapsed + time;
        while self.elapsed < end {
            if !self.step() {
                let Some(at) = self.next_at() else {
                    return true;
                };
                self.elapsed = at.min(end);
            }
        }
        false
    }

    /// Runs for a time, which passes also if nothing is left to do.
    pub fn pass(&mut self, time: Duration) {
        let end = self.elapsed + time;
        self.run(time);
        self.elapsed = self.elapsed.max(end);
    }

    /// Has every object observed again, as a new leader does.
    pub fn replay(&mut self) {
        let now = self.now();
        self.replicas[self.leader].replay(now);
    }

    /// Has every object observed again, and settles; returns the requests that
    /// this caused. There are none if plans that were carried out are followed by empty plans.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    pub fn replan(&mut self, limit: Duration) -> Result<Vec<Sent>, Unsettled> {
        let before = self.log.len();
        self.replay();
        self.settle(limit)?;
        Ok(self.log[before..].to_vec())
    }

    /// Cuts all replicas off a cluster.
    pub fn partition(&mut self, cluster: &Cluster) {
        self.partitioned.insert(cluster.clone());
    }

    /// Ends a partition. Watches continue where they were.
    pub fn heal(&mut self, cluster: &Cluster) {
        self.partitioned.remove(cluster);
    }

    /// Replaces the credentials of a cluster: requests in flight fail, watches continue.
    pub fn swap_credentials(&mut self, cluster: &Cluster) {
        for replica in 0..self.replicas.len() {
            self.lose(replica, |request| request.cluster() == cluster);
        }
    }

    /// Replaces the API server by that of another cluster without objects, which is listed.
    pub fn replace_cluster(&mut self, cluster: &Cluster) {
        self.swap_credentials(cluster);
        self.cluster(cluster).reset();
        self.replicas.iter_mut().for_each(|it| it.relist(cluster));
    }

    /// Drops the state of a replica, which starts again with lists. Requests in flight may still be
    /// carried out.
    pub fn crash(&mut self, replica: usize) {
        self.lose(replica, |_| true);
        self.replicas[replica] = self.replica();
    }

    /// Makes another replica the leader. Requests in flight of the previous one may be carried out
    /// later.
    pub fn hand_over(&mut self, replica: usize) {
        for sent in &mut self.replicas[self.leader].requests {
            sent.is_late = true;
            self.uncertain.extend(sent.request.object().cloned());
        }
        let cache = &self.replicas[replica].cache;
        for sent in &self.log {
            let Some(object) = sent.request.object() else {
                continue;
            };
            let known = cache.entry(object).and_then(|entry| entry.version);
            let server = self.servers.get(&object.cluster);
            if server.and_then(|server| server.version(object)) != known {
                self.uncertain.insert(object.clone());
            }
        }
        self.leader = replica;
        let now = self.now();
        self.replicas[replica].replay(now);
    }

    /// Returns the number of probes that the API server of a cluster has received.
    pub fn probes(&self, cluster: &Cluster) -> usize {
        self.probed.iter().filter(|it| *it == cluster).count()
    }

    /// Returns all reads and writes that API servers have carried out.
    pub fn log(&self) -> &[Sent] {
        &self.log
    }

    /// Returns the Events that the plans of a replica have published since its start.
    pub fn events(&self, replica: usize) -> &[Event] {
        &self.replicas[replica].events
    }

    /// Returns the writes that were sent twice.
    pub fn redundant(&self) -> Vec<&Sent> {
        self.log.iter().filter(|sent| sent.is_redundant).collect()
    }

    /// Returns the time of all clocks, which begins with 1970.
    pub fn time(&self) -> Timestamp {
        let millis = i64::try_from(self.elapsed.as_millis()).unwrap_or_default();
        Timestamp::from_millisecond(millis).unwrap_or_default()
    }

    fn now(&self) -> Instant {
        self.start + self.elapsed
    }

    /// Returns the next random number.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        parts::mix(self.random)
    }

    /// Does one of the things that can happen now; returns whether there was one.
    fn step(&mut self) -> bool {
        let mut steps = self.steps();
        if steps.is_empty() {
            return false;
        }
        let choice = self.next_random() % steps.len() as u64;
        let step = steps.swap_remove(usize::try_from(choice).unwrap_or_default());
        let now = self.now();
        for (number, replica) in self.replicas.iter_mut().enumerate() {
            replica.is_leader = number == self.leader;
        }
        let replica = match step {
            Step::Plan(replica, worker) => {
                let mut seed = self.next_random();
                let mut random = || {
                    seed = seed.wrapping_add(1);
                    let mut bytes = [0; 32];
                    bytes[..8].copy_from_slice(&seed.to_le_bytes());
                    bytes
                };
                let mut env = Env {
                    now: self.time(),
                    at: now,
                    random: &mut random,
                };
                self.replicas[replica].plan(worker, &mut env);
                replica
            }
            Step::Watch(replica, id) => {
                if let Some(server) = self.servers.get_mut(&id.cluster) {
                    self.replicas[replica].watch(&id, server, now);
                }
                replica
            }
            Step::Execute(replica, flight) => {
                self.execute(replica, flight);
                replica
            }
            Step::Answer(replica, flight) => {
                let flight = self.replicas[replica].requests.remove(flight);
                let outcome = flight.outcome.clone();
                let outcome = outcome.filter(|_| self.can_answer(&flight));
                if outcome.is_none() {
                    self.uncertain.extend(flight.request.object().cloned());
                }
                let outcome = outcome.unwrap_or(Outcome::TimedOut);
                self.replicas[replica].take_outcome(&flight, &outcome, now);
                replica
            }
        };
        self.send(replica);
        self.elapsed += STEP;
        true
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (number, replica) in self.replicas.iter().enumerate() {
            for (worker, hosted) in replica.workers.iter().enumerate() {
                let next = hosted.worker.next_at(self.now());
                if hosted.is_started && next.is_some_and(|at| at <= self.now()) {
                    steps.push(Step::Plan(number, worker));
                }
            }
            for id in replica.watches.keys() {
                let server = self.servers.get(&id.cluster);
                let server = server.filter(|_| self.is_connected(replica, &id.cluster));
                let server = server.filter(|it| !it.is_refusing || replica.is_listed(id));
                let server = server.filter(|it| it.is_trusted);
                if server.is_some_and(|server| replica.has_signal(id, server)) {
                    steps.push(Step::Watch(number, Box::new(id.clone())));
                }
            }
            for (flight, sent) in replica.requests.iter().enumerate() {
                if self.can_answer(sent) || sent.deadline <= self.elapsed {
                    steps.push(Step::Answer(number, flight));
                } else if sent.outcome.is_none() && self.is_reachable(&sent.request) {
                    steps.push(Step::Execute(number, flight));
                }
            }
        }
        steps
    }

    fn is_connected(&self, replica: &Replica, cluster: &Cluster) -> bool {
        replica.clusters.contains(cluster) && !self.partitioned.contains(cluster)
    }

    fn is_reachable(&self, request: &Request) -> bool {
        !self.partitioned.contains(request.cluster())
    }

    fn can_answer(&self, flight: &Flight) -> bool {
        let is_sent = !matches!(
            flight.outcome,
            Some(Outcome::NotLeader | Outcome::Failed(_)) | None
        );
        flight.outcome.is_some() && (!is_sent || self.is_reachable(&flight.request))
    }

    /// Returns when something happens next although nothing can happen now.
    fn next_at(&self) -> Option<Duration> {
        let now = self.now();
        let of_replica = |replica: &Replica| {
            let started = replica.workers.iter().filter(|it| it.is_started);
            let plans = started.filter_map(|it| it.worker.next_at(now));
            let plans = plans.map(|at| at.saturating_duration_since(self.start));
            let deadlines = replica.requests.iter().map(|it| it.deadline);
            plans.chain(deadlines).min()
        };
        self.replicas.iter().filter_map(of_replica).min()
    }

    /// Sends the requests that the limits of a replica permit.
    fn send(&mut self, number: usize) {
        let is_leader = number == self.leader;
        let replica = &mut self.replicas[number];
        for ((worker, id), request) in replica.start() {
            let cluster = request.cluster();
            let outcome = if request.is_of_leader() && !is_leader {
                Some(Outcome::NotLeader)
            } else if !replica.clusters.contains(cluster) || !self.servers.contains_key(cluster) {
                Some(Outcome::Failed("the cluster is not connected".into()))
            } else {
                None
            };
            let limit = match &request {
                Request::Read(_) => Kind::Read.deadline(),
                Request::Write(_) => Kind::Write.deadline(),
                Request::Probe(probe) => probe.timeout,
            };
            replica.requests.push(Flight {
                worker,
                id,
                request,
                outcome,
                is_late: false,
                deadline: self.elapsed + limit,
            });
        }
    }

    /// Has the API server carry out a request in flight.
    fn execute(&mut self, number: usize, flight: usize) {
        let now = self.time();
        let replica = &mut self.replicas[number];
        let sent = &mut replica.requests[flight];
        let Some(server) = self.servers.get_mut(sent.request.cluster()) else {
            return;
        };
        let Some(object) = sent.request.object().cloned().filter(|_| server.is_trusted) else {
            let is_probe = sent.request.object().is_none();
            self.probed
                .extend(is_probe.then(|| sent.request.cluster().clone()));
            sent.outcome = Some(server.probe());
            return;
        };
        server.now = now;
        let manager = replica.workers[sent.worker].manager(&sent.request);
        let form = replica.cache.form(&object.resource).map(|form| &**form);
        let before = server.version(&object);
        let outcome = server.answer(&sent.request, manager, form);
        let is_write = matches!(sent.request, Request::Write(_));
        let is_excused = !is_write || sent.is_late || self.uncertain.remove(&object);
        self.log.push(Sent {
            replica: number,
            request: sent.request.clone(),
            is_success: outcome.is_success(),
            is_redundant: !is_excused
                && matches!(outcome, Outcome::Stored(_) | Outcome::Answer(_))
                && before == server.version(&object),
        });
        sent.outcome = Some(outcome);
    }

    /// Fails requests of a replica in flight. Some were carried out.
    fn lose(&mut self, number: usize, is_lost: impl Fn(&Request) -> bool) {
        for flight in 0..self.replicas[number].requests.len() {
            let sent = &self.replicas[number].requests[flight];
            if !is_lost(&sent.request) {
                continue;
            }
            let is_pending = sent.outcome.is_none() && self.is_reachable(&sent.request);
            self.uncertain.extend(sent.request.object().cloned());
            if is_pending && self.next_random().is_multiple_of(2) {
                self.execute(number, flight);
            }
            let sent = &mut self.replicas[number].requests[flight];
            self.uncertain.extend(sent.request.object().cloned());
            sent.outcome = Some(Outcome::Failed("the connection was closed".into()));
        }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("elapsed", &self.elapsed)
            .field("requests", &self.log.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
