//! The loop between API servers and controllers.
//!
//! One task changes the cache and calls the controllers. Watches and requests run beside it, and
//! their results come to it as inputs, so a slow request delays nothing but its own item.

use crate::cache::{Cache, CacheLimits, CacheReader, Changed};
use crate::controller::{Controller, Env, Outcome, Request};
use crate::entry::Signal;
use crate::event::Events;
use crate::in_flight::InFlight;
use crate::injector::Injector;
use crate::metrics::Metrics;
use crate::registration::{self, RegistrationError};
use crate::status::RuntimeStatus;
use crate::worker::{Effects, RequestId, TypedWorker};
use control_client::clusters::{Clients, Clusters};
use control_client::object::Cluster;
use control_client::watch::WatchId;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use std::sync::{Arc, PoisonError, RwLockWriteGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, watch};

mod effects;
mod elections;
mod hosted;
mod inputs;
mod relists;
mod watches;

use elections::Elections;
use hosted::Hosted;
pub use hosted::Replicas;
use watches::Watches;

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
    /// Returns 32 bytes that cannot be guessed, for controllers that create keys.
    pub random: fn() -> [u8; 32],
}

/// Runs controllers. See the [crate's documentation](crate).
pub struct Runtime {
    settings: Settings,
    clusters: Clusters,
    cache: CacheReader,
    workers: Vec<Hosted>,
    /// Notified of items of [`Injector`]s.
    wake: Arc<Notify>,
    in_flight: InFlight<(usize, RequestId)>,
    requests: FuturesUnordered<BoxFuture<'static, Response>>,
    signals: mpsc::Receiver<Report>,
    sender: mpsc::Sender<Report>,
    watches: Watches,
    elections: Elections,
    events: Events,
    metrics: Metrics,
    status: RuntimeStatus,
}

/// A signal, and the generation of the watch that sent it.
type Report = (WatchId, u64, Signal);

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
        let dropped = metrics.dropped_events.clone();
        let events = Events::start(client.clone(), settings.name, &settings.identity, dropped);
        let cache = CacheReader::default();
        write(&cache).add_cluster(Cluster::Local, CacheLimits::LOCAL);

        Self {
            settings,
            clusters: Clusters::new(client),
            cache,
            workers: Vec::new(),
            wake: Arc::default(),
            in_flight: InFlight::default(),
            requests: FuturesUnordered::new(),
            signals,
            sender,
            watches: Watches::default(),
            elections: Elections::default(),
            events,
            metrics,
            status: RuntimeStatus::default(),
        }
    }

    /// Adds a controller. Controllers that name the same Lease share one election, with the durations
    /// that the first of them names. Returns a handle by which other tasks have items planned.
    ///
    /// # Errors
    ///
    /// Returns [`RegistrationError`] if its registrations contradict those of another controller.
    pub fn add<C: Controller>(
        &mut self,
        controller: C,
        replicas: &Replicas,
    ) -> Result<Injector<C::Item>, RegistrationError> {
        let injector = Injector::new(Arc::clone(&self.wake));
        let worker = TypedWorker::new(controller, injector.clone());
        let mut hosted = Hosted::new(Box::new(worker), replicas);
        let workers = self.workers.iter().chain([&hosted]);
        let registrations = workers.flat_map(|it| {
            let manager = it.worker.field_manager();
            let registrations = it.worker.registrations().iter();
            registrations.map(move |it| (manager, it))
        });
        registration::check(&registrations.collect::<Vec<_>>())?;
        for registration in hosted.worker.registrations() {
            write(&self.cache).register(registration)?;
        }
        if let Some(lease) = replicas.lease() {
            hosted.election = Some(self.elections.join(lease));
            self.status.lead(&lease.name, false);
            self.metrics.leads(&lease.name, false);
        }
        let number = self.workers.len();
        let registrations = hosted.worker.registrations().iter();
        for id in registrations.filter_map(|it| it.watch_id()) {
            self.watches.add(id, number);
        }
        if !hosted.is_cold {
            self.status.expect(&hosted.required);
        }
        self.workers.push(hosted);

        Ok(injector)
    }

    /// Returns a handle that reads the cache.
    pub fn reader(&self) -> CacheReader {
        self.cache.clone()
    }

    /// Returns a handle for requests of other tasks: reviews, and streams that are forwarded. Its clients follow the
    /// addresses and credentials that plans set, and connect to the same destinations.
    pub fn clients(&self) -> Clients {
        self.clusters.clients()
    }

    /// Returns a handle that reports readiness and health.
    pub fn status(&self) -> RuntimeStatus {
        self.status.clone()
    }

    /// Runs the controllers until `stop` completes. Then lets the requests in flight end, and
    /// releases the Leases.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let (end_leases, ended) = watch::channel(false);
        let (sender, mut election_events) = mpsc::channel(4);
        // Aborted when this future is dropped, so that a Lease is not renewed without a leader.
        let mut candidates = self.elect(&sender, &ended);
        for id in self.watches.of_cluster(&Cluster::Local) {
            self.sync_watch(&id);
        }
        let mut stop = std::pin::pin!(stop);
        loop {
            self.turn();
            let now = Instant::now();
            let wait = self.next_at(now).saturating_duration_since(now);
            tokio::select! {
                biased;
                () = &mut stop => break,
                Some((election, event)) = election_events.recv() => self.take_election_event(election, event),
                Some(response) = self.requests.next() => self.take_response(response),
                Some(cluster) = self.clusters.replaced() => {
                    tracing::warn!(%cluster, "it is another cluster now: lists all objects again");
                    self.relist(&cluster);
                }
                Some(report) = self.signals.recv() => self.take_signal(report),
                () = self.wake.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }

        self.watches.stop();
        let drained = async { while self.requests.next().await.is_some() {} };
        if tokio::time::timeout(STOP_MAX, drained).await.is_err() {
            tracing::warn!("stopped before the API server had answered all requests");
        }
        end_leases.send_replace(true);
        let released = async { while candidates.join_next().await.is_some() {} };
        drop(tokio::time::timeout(STOP_MAX, released).await);
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
        let relistable = write(&self.cache).relistable(Instant::now());
        for id in relistable {
            tracing::info!(watch = %id, "lists again, because there is room for rejected objects");
            self.restart_watch(&id, Duration::ZERO);
        }
        for cluster in self.watches.due(Instant::now()) {
            tracing::warn!(%cluster, "the history of the API server went back: lists all objects again");
            self.relist(&cluster);
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
            at: Instant::now(),
            random: &mut random,
        };
        hosted.worker.step(&self.cache.read(), &mut env)
    }

    fn next_at(&self, now: Instant) -> Instant {
        let started = self.workers.iter().filter(|it| it.is_started);
        let next = started.filter_map(|it| it.worker.next_at(now));
        let next = next.chain(self.watches.next_at()).min();
        next.unwrap_or(now + WAIT_MAX).min(now + WAIT_MAX)
    }

    fn observe(&mut self, changes: &[Changed]) {
        let (cache, now) = (self.cache.read(), Instant::now());
        for changed in changes {
            for hosted in &mut self.workers {
                if hosted.is_started && hosted.resources.contains(&changed.object.resource) {
                    let seen_at = self.elections.is_held(hosted.election).then_some(now);
                    hosted.worker.observe(&changed.seen(seen_at), &cache, now);
                }
            }
        }
    }
}

fn write(cache: &CacheReader) -> RwLockWriteGuard<'_, Cache> {
    cache.cache.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
