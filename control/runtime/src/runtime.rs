//! The loop between API servers and controllers.
//!
//! One task changes the cache and calls the controllers. Watches and requests run beside it, and
//! their results come to it as inputs, so a slow request delays nothing but its own item.

use crate::admission::Admission;
use crate::cache::{Cache, CacheLimits, CacheReader, Changed, RegistrationError};
use crate::clusters::{self, Clusters};
use crate::controller::{ClusterChange, Controller, Env, Outcome, Request, WatchChange};
use crate::event::Events;
use crate::execute::Context;
use crate::lease::{self, Candidate, Leadership, Timing, Turn};
use crate::metrics::Metrics;
use crate::object::{Cluster, Ref, Resource};
use crate::status::RuntimeStatus;
use crate::watch::{Signal, WatchId};
use crate::worker::{Effects, RequestId, TypedWorker, Worker};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLockWriteGuard};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

mod inputs;

/// Signals of watches that wait to be processed. Watches wait when there are more.
const SIGNALS_MAX: usize = 256;

/// Items that are planned before inputs are looked at again.
const ITEMS_PER_TURN: usize = 32;

/// Longest wait without input.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Time that requests in flight have to end when the process stops.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Settings of a runtime.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the process, as the reporting controller of its Events.
    pub name: &'static str,
    /// Identity of this replica: the name of its pod.
    pub identity: String,
    /// Lease that one of several replicas holds; `None` if there is one replica.
    pub lease: Option<LeaseSettings>,
    /// Returns 32 bytes that cannot be guessed, for controllers that create keys.
    pub random: fn() -> [u8; 32],
}

/// The Lease of several replicas.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: &'static str,
    /// Durations of the election.
    pub timing: Timing,
}

/// Runs controllers. See the [crate's documentation](crate).
pub struct Runtime {
    settings: Settings,
    clusters: Clusters,
    cache: CacheReader,
    workers: Vec<Hosted>,
    admission: Admission<(usize, RequestId)>,
    requests: FuturesUnordered<BoxFuture<'static, Ended>>,
    signals: mpsc::Receiver<Report>,
    sender: mpsc::Sender<Report>,
    watches: BTreeMap<WatchId, RunningWatch>,
    /// Generation of the next watch.
    next_generation: u64,
    tasks: JoinSet<()>,
    events: Events,
    leadership: Leadership,
    metrics: Metrics,
    status: RuntimeStatus,
}

/// A signal, and the generation of the watch that sent it.
type Report = (WatchId, u64, Signal);

/// A watch that runs. A restarted watch has another generation, which its late signals lack.
struct RunningWatch {
    task: AbortHandle,
    generation: u64,
}

/// A controller in a runtime.
struct Hosted {
    worker: Box<dyn Worker>,
    resources: BTreeSet<Resource>,
    /// Watches without which it cannot decide.
    required: Vec<WatchId>,
    is_started: bool,
}

impl Hosted {
    /// Has every object observed, and so every item planned.
    fn start(&mut self, cache: &Cache, now: Instant) {
        for changed in cache.replay(&self.resources) {
            self.worker.observe(&changed.borrow(), cache, now);
        }
        self.worker.started(cache, now);
    }
}

/// Something that ran beside the loop.
enum Ended {
    Request(Box<Response>),
    Identity(Cluster, Option<String>),
}

/// A request with its outcome.
struct Response {
    worker: usize,
    id: RequestId,
    request: Request,
    outcome: Outcome,
    duration: Duration,
}

impl Runtime {
    /// Creates a runtime of the local cluster, without controllers.
    pub fn new(client: Client, settings: Settings, metrics: Metrics) -> Self {
        let (sender, signals) = mpsc::channel(SIGNALS_MAX);
        let events = Events::start(client.clone(), settings.name, &settings.identity);
        let leadership = match settings.lease {
            Some(_) => Leadership::default(),
            None => Leadership::permanent(),
        };
        let cache = CacheReader::default();
        write(&cache).add_cluster(Cluster::Local, CacheLimits::LOCAL);

        Self {
            settings,
            clusters: Clusters::new(client),
            cache,
            workers: Vec::new(),
            admission: Admission::default(),
            requests: FuturesUnordered::new(),
            signals,
            sender,
            watches: BTreeMap::new(),
            next_generation: 0,
            tasks: JoinSet::new(),
            events,
            leadership,
            metrics,
            status: RuntimeStatus::default(),
        }
    }

    /// Adds a controller.
    ///
    /// # Errors
    ///
    /// Returns [`RegistrationError`] if its registrations contradict those of another controller.
    pub fn add<C: Controller>(&mut self, controller: C) -> Result<(), RegistrationError> {
        let worker = TypedWorker::new(controller);
        let mut required = Vec::new();
        for registration in worker.registrations() {
            write(&self.cache).register(registration)?;
            if let Some(id) = registration.watch_id()
                && !registration.is_optional
            {
                self.status.expect(id.clone());
                required.push(id);
            }
        }
        self.workers.push(Hosted {
            resources: worker.resources(),
            worker: Box::new(worker),
            required,
            is_started: false,
        });

        Ok(())
    }

    /// Returns a handle that reads the cache.
    pub fn reader(&self) -> CacheReader {
        self.cache.clone()
    }

    /// Returns a handle that reports readiness and health.
    pub fn status(&self) -> RuntimeStatus {
        self.status.clone()
    }

    /// Runs the controllers until `stop` completes. Then lets the requests in flight end, and
    /// releases the Lease.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let (end_lease, ended) = watch::channel(false);
        let (sender, mut turns) = mpsc::channel(4);
        // Aborted when this future is dropped, so that a Lease is not renewed without a leader.
        let mut election = self.elect(sender, ended);
        for id in self.static_watches() {
            self.add_watch(id);
        }
        let mut stop = std::pin::pin!(stop);
        loop {
            self.turn();
            let now = Instant::now();
            let wait = self.next_at(now).saturating_duration_since(now);
            tokio::select! {
                biased;
                () = &mut stop => break,
                Some(turn) = turns.recv() => self.take_turn(turn),
                Some(ended) = self.requests.next(), if !self.requests.is_empty() => self.take_ended(ended),
                Some(report) = self.signals.recv() => self.take_signal(report),
                () = tokio::time::sleep(wait) => {}
            }
        }

        self.tasks.abort_all();
        let drained = async { while self.requests.next().await.is_some() {} };
        if tokio::time::timeout(STOP_MAX, drained).await.is_err() {
            tracing::warn!("stopped before the API server had answered all requests");
        }
        end_lease.send_replace(true);
        drop(tokio::time::timeout(STOP_MAX, election.join_next()).await);
    }

    /// Starts the election, if there is one.
    fn elect(&self, turns: mpsc::Sender<Turn>, stop: watch::Receiver<bool>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let (Some(settings), Some(client)) =
            (&self.settings.lease, self.clusters.client(&Cluster::Local))
        else {
            self.status.lead(true);
            self.metrics.leads(true);
            return tasks;
        };
        let candidate = Candidate {
            namespace: settings.namespace.clone(),
            name: settings.name,
            identity: self.settings.identity.clone(),
            timing: settings.timing,
        };
        let (leadership, status) = (self.leadership.clone(), self.status.clone());
        let client = client.clone();
        tasks.spawn(lease::hold(
            client, candidate, leadership, status, turns, stop,
        ));

        tasks
    }

    fn static_watches(&self) -> BTreeSet<WatchId> {
        let registrations = (self.workers.iter()).flat_map(|it| it.worker.registrations());
        registrations.filter_map(|it| it.watch_id()).collect()
    }

    /// Takes the inputs that are there, plans due items, and sends requests.
    fn turn(&mut self) {
        self.status.beat();
        for _ in 0..SIGNALS_MAX {
            let Ok(report) = self.signals.try_recv() else {
                break;
            };
            self.take_signal(report);
        }
        for worker in 0..self.workers.len() {
            for _ in 0..ITEMS_PER_TURN {
                let Some(effects) = self.plan(worker) else {
                    break;
                };
                self.carry_out(worker, effects);
            }
            let hosted = &self.workers[worker].worker;
            self.metrics.depth(hosted.name(), hosted.depth());
        }
        self.send();
    }

    fn plan(&mut self, worker: usize) -> Option<Effects> {
        let hosted = &mut self.workers[worker];
        if !hosted.is_started {
            return None;
        }
        let mut random = self.settings.random;
        let mut env = Env {
            now: Timestamp::now(),
            random: &mut random,
        };
        let cache = self.cache.read();
        hosted.worker.step(&cache, &mut env, Instant::now())
    }

    fn next_at(&self, now: Instant) -> Instant {
        let started = self.workers.iter().filter(|it| it.is_started);
        let next = started.filter_map(|it| it.worker.next_at(now)).min();
        next.unwrap_or(now + WAIT_MAX).min(now + WAIT_MAX)
    }

    /// Does what a plan asks for, besides sending requests.
    fn carry_out(&mut self, worker: usize, effects: Effects) {
        let name = self.workers[worker].worker.name();
        for (item, waited) in effects.planned {
            self.metrics.planned(name, item, waited);
        }
        for (item, is_success, duration) in effects.ended {
            self.metrics.ended(name, item, is_success, duration);
        }
        for change in effects.clusters {
            self.change_cluster(change);
        }
        for change in effects.watches {
            match change {
                WatchChange::Add(id) => self.add_watch(id),
                WatchChange::Remove(id) => self.remove_watch(&id),
            }
        }
        for ready in effects.requests {
            self.admission
                .push((worker, ready.id), ready.queue, ready.request);
        }
        for event in effects.events {
            if self.leadership.may_write() {
                let uid = self
                    .cache
                    .read()
                    .entry(&event.object)
                    .map(|it| it.uid.clone());
                self.events.publish(event, uid);
            }
        }
    }

    /// Sends the requests that the limits admit.
    fn send(&mut self) {
        for ((worker, id), request) in self.admission.admit() {
            let context = self.context(worker, request.object());
            self.requests.push(Box::pin(async move {
                let began_at = Instant::now();
                let outcome = match context {
                    Some(context) => context.execute(&request).await,
                    None => Outcome::Failed("the cluster is not connected".into()),
                };
                Ended::Request(Box::new(Response {
                    worker,
                    id,
                    request,
                    outcome,
                    duration: began_at.elapsed(),
                }))
            }));
        }
        self.metrics.waiting(self.admission.waiting());
    }

    /// Returns what a request on an object needs; `None` if its cluster was removed.
    fn context(&self, worker: usize, object: &Ref) -> Option<Context> {
        let client = self.clusters.client(&object.cluster)?.clone();
        let worker = &self.workers[worker].worker;
        let cache = self.cache.read();
        let updaters = cache.entry(object).map(|entry| entry.updaters.as_slice());
        let updaters = updaters.unwrap_or_default();
        let registrations = worker.registrations().iter();
        let of_resource = registrations.filter(|it| it.resource == object.resource);
        let adopted = of_resource.flat_map(|it| it.adopted.iter().copied());

        Some(Context {
            client,
            leadership: self.leadership.clone(),
            form: cache.form(&object.resource).cloned(),
            field_manager: worker.field_manager(),
            adopted: adopted
                .filter(|manager| updaters.iter().any(|updater| updater == manager))
                .collect(),
        })
    }

    fn add_watch(&mut self, id: WatchId) {
        if self.watches.contains_key(&id) {
            return;
        }
        let form = self.cache.read().form(&id.resource).cloned();
        let client = self.clusters.client(&id.cluster).cloned();
        let (Some(form), Some(client)) = (form, client) else {
            tracing::error!(watch = %id, "no controller registers the resource, or the cluster is not connected");
            return;
        };
        write(&self.cache).add_watch(id.clone());
        let signals = form.watch(client, id.clone(), self.is_optional(&id));
        let (mut signals, sender) = (signals, self.sender.clone());
        let (watched, generation) = (id.clone(), self.next_generation);
        self.next_generation += 1;
        let task = self.tasks.spawn(async move {
            while let Some(signal) = signals.next().await {
                let report = (watched.clone(), generation, signal);
                if sender.send(report).await.is_err() {
                    return;
                }
            }
        });
        self.watches.insert(id, RunningWatch { task, generation });
    }

    /// Returns whether a watch is registered, and all registrations of it are optional.
    fn is_optional(&self, id: &WatchId) -> bool {
        let registrations = (self.workers.iter()).flat_map(|it| it.worker.registrations());
        let mut registrations = registrations
            .filter(|it| it.watch_id().as_ref() == Some(id))
            .peekable();
        registrations.peek().is_some() && registrations.all(|it| it.is_optional)
    }

    fn remove_watch(&mut self, id: &WatchId) {
        while self.tasks.try_join_next().is_some() {} // Those that were aborted before.
        if let Some(watch) = self.watches.remove(id) {
            watch.task.abort();
            self.status.removed(id);
            let changes = write(&self.cache).remove_watch(id);
            self.observe(&changes);
        }
    }

    fn change_cluster(&mut self, change: ClusterChange) {
        match change {
            ClusterChange::Set(cluster, config) => match self.clusters.set(&cluster, &config) {
                Ok(is_new) => {
                    if is_new {
                        write(&self.cache).add_cluster(cluster.clone(), CacheLimits::REMOTE);
                    }
                    if let Some(client) = self.clusters.client(&cluster).cloned() {
                        self.requests.push(Box::pin(async move {
                            Ended::Identity(cluster, clusters::identity(client).await)
                        }));
                    }
                }
                Err(error) => {
                    tracing::warn!(%cluster, %error, "failed to use the credentials of a cluster");
                }
            },
            ClusterChange::Remove(cluster) => {
                let watches: Vec<_> = self.watches.keys().cloned().collect();
                for id in watches.into_iter().filter(|id| id.cluster == cluster) {
                    self.remove_watch(&id);
                }
                let changes = write(&self.cache).remove_cluster(&cluster);
                self.observe(&changes);
                self.clusters.remove(&cluster);
                self.metrics.forget(&cluster);
            }
        }
    }

    /// Lists all objects of a cluster again.
    fn relist(&mut self, cluster: &Cluster) {
        tracing::warn!(%cluster, "the history of the API server went back: lists all objects again");
        let ids: Vec<_> = self.watches.keys().cloned().collect();
        for id in ids.into_iter().filter(|id| id.cluster == *cluster) {
            if let Some(watch) = self.watches.remove(&id) {
                watch.task.abort();
            }
            self.add_watch(id);
        }
    }

    fn observe(&mut self, changes: &[Changed]) {
        let (cache, now) = (self.cache.read(), Instant::now());
        for changed in changes {
            for hosted in &mut self.workers {
                if hosted.is_started && hosted.resources.contains(&changed.object.resource) {
                    hosted.worker.observe(&changed.borrow(), &cache, now);
                }
            }
        }
    }
}

fn write(cache: &CacheReader) -> RwLockWriteGuard<'_, Cache> {
    cache.cache.write().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime")
            .field("settings", &self.settings)
            .field("watches", &self.watches.len())
            .finish_non_exhaustive()
    }
}
