//! Drives one controller: its work queue, and the requests of the items that are in flight.
//!
//! An item has one plan in flight. A change that concerns it meanwhile has it planned again when
//! the last request has ended.

use crate::cache::{Cache, Change};
use crate::controller::{
    Action, ClusterChange, Controller, Env, Event, Outcome, Plan, Queue, Request, WatchChange,
    Write,
};
use crate::injector::Injector;
use crate::queue::WorkQueue;
use crate::registration::Registration;
use control_client::backoff;
use control_client::object::{Ref, Resource};
use control_client::watch::WatchId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Number of a plan and of its request, unique within a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestId {
    plan: u64,
    request: usize,
}

/// A request that may be sent, as soon as the limits permit it.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) id: RequestId,
    pub(crate) queue: Queue,
    pub(crate) request: Request,
}

/// Requests, watches and clusters that the runtime starts or stops after a step of a worker.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) requests: Vec<Ready>,
    pub(crate) watches: Vec<WatchChange>,
    pub(crate) clusters: Vec<ClusterChange>,
    pub(crate) events: Vec<Event>,
    /// Items that have ended: kind, whether all their requests succeeded, duration.
    pub(crate) ended: Vec<(&'static str, bool, Duration)>,
    /// Items that were planned: kind, and how long they had waited.
    pub(crate) planned: Vec<(&'static str, Duration)>,
}

/// A controller without its types.
pub(crate) trait Worker: Send {
    fn name(&self) -> &'static str;
    fn field_manager(&self) -> &'static str;
    fn registrations(&self) -> &[Registration];

    /// Adds the items that a change concerns to the work queue.
    fn observe(&mut self, change: &Change<'_>, cache: &Cache, now: Instant);

    /// Adds the items of [`Controller::started`].
    fn started(&mut self, cache: &Cache, now: Instant);

    /// Adds the items of [`Controller::listed`].
    fn listed(&mut self, id: &WatchId, cache: &Cache, now: Instant);

    /// Adds the items of [`Controller::refused`].
    fn refused(&mut self, id: &WatchId, cache: &Cache, now: Instant);

    /// Plans the next due item; `None` if there is none.
    fn step(&mut self, cache: &Cache, env: &mut Env<'_>) -> Option<Effects>;

    /// Takes the outcome of a request.
    fn complete(
        &mut self,
        id: RequestId,
        outcome: &Outcome,
        cache: &Cache,
        now: Instant,
    ) -> Effects;

    /// Drops all items and plans. Outcomes of their requests are ignored.
    fn reset(&mut self);

    /// Returns when [`step`](Self::step) plans an item next.
    fn next_at(&self, now: Instant) -> Option<Instant>;

    /// Returns the number of items that are not planned yet.
    fn depth(&self) -> usize;

    /// Returns the resources whose changes concern the controller.
    fn resources(&self) -> BTreeSet<Resource> {
        let registrations = self.registrations().iter();
        registrations.map(|it| it.resource.clone()).collect()
    }
}

pub(crate) struct TypedWorker<C: Controller> {
    controller: C,
    registrations: Vec<Registration>,
    queue: WorkQueue<C::Item>,
    injector: Injector<C::Item>,
    flights: BTreeMap<C::Item, Flight>,
    /// The items in flight, by number of the plan.
    plans: BTreeMap<u64, C::Item>,
    next_plan: u64,
    /// Number of plans in sequence that have only read, and after each of which the controller asked for another one.
    rereads: BTreeMap<C::Item, u32>,
    /// Returns a number from 0 to 1, which spreads the delays of failed items.
    pub(crate) jitter: fn() -> f64,
}

/// The requests of one plan.
#[derive(Debug)]
struct Flight {
    plan: u64,
    requests: Vec<(Request, State)>,
    started_at: Instant,
    has_failed: bool,
    /// Whether the item is to be planned again at once, whatever the outcomes are.
    is_outdated: bool,
    /// Changes that have concerned the item since it was planned: the object, and its version, which a deletion does not have.
    changes: BTreeSet<(Ref, Option<u64>)>,
    /// Whether a write of the plan has caused one of the changes. A plan that has failed is repeated after its backoff anyway: an
    /// earlier repetition would evade the backoff if each failure causes another write, for instance of its message into a status.
    has_changed: bool,
    /// Whether the controller plans the item again because of an outcome.
    is_continued: bool,
    /// Whether the plan only puts the item off, for instance to join changes that follow each other. A write that has failed before
    /// is not sent then, so its backoff goes on.
    is_postponed: bool,
}

/// Most plans in sequence that only read, before a further one counts as a failure. The controller then does not get what it needs, for
/// instance because the object is too large to be kept, and would read it without end.
const REREADS_MAX: u32 = 4;

/// Most changes that an item in flight remembers. Any further one is taken for one of others.
const CHANGES_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Ready,
    Ended,
}

impl<C: Controller> TypedWorker<C> {
    /// Creates a worker, which adds the items of `injector` before it plans the next one.
    pub(crate) fn new(controller: C, injector: Injector<C::Item>) -> Self {
        let registrations = controller.resources();
        Self {
            controller,
            registrations,
            queue: WorkQueue::default(),
            injector,
            flights: BTreeMap::new(),
            plans: BTreeMap::new(),
            next_plan: 0,
            rereads: BTreeMap::new(),
            jitter: backoff::random,
        }
    }

    fn push_all(&mut self, items: impl IntoIterator<Item = C::Item>, now: Instant) {
        for item in items {
            self.push(item, now);
        }
    }

    fn push(&mut self, item: C::Item, now: Instant) {
        if let Some(flight) = self.flights.get_mut(&item) {
            flight.is_outdated = true;
        } else {
            let queue = C::queue(&item);
            self.queue.push(item, queue, now);
        }
    }

    /// Starts the requests of a plan.
    fn start(&mut self, item: C::Item, plan: Plan<C::Item>, now: Instant) -> Effects {
        let reads = plan.reads.into_iter().map(Request::Read);
        let probes = plan.probes.into_iter().map(Request::Probe);
        let writes = plan.writes.into_iter().map(Request::Write);
        let requests = reads.chain(probes).chain(writes);
        let requests: Vec<_> = requests.map(|request| (request, State::Waiting)).collect();
        let is_put_off = plan.requeue.iter().any(|(_, later)| *later == item);
        let flight = Flight {
            plan: self.next_plan,
            is_postponed: requests.is_empty() && is_put_off,
            requests,
            started_at: now,
            has_failed: plan.is_incomplete,
            is_outdated: false,
            changes: BTreeSet::new(),
            has_changed: false,
            is_continued: false,
        };
        for (delay, later) in plan.requeue {
            self.queue.push_at(later, now + delay);
        }
        self.plans.insert(self.next_plan, item.clone());
        self.flights.insert(item.clone(), flight);
        self.next_plan += 1;
        let mut effects = Effects {
            watches: plan.watches,
            clusters: plan.clusters,
            events: plan.events,
            ..Effects::default()
        };
        self.advance(&item, &mut effects, now);

        effects
    }

    /// Releases the requests that need not wait for others, and ends the flight after the last one.
    fn advance(&mut self, item: &C::Item, effects: &mut Effects, now: Instant) {
        let Some(flight) = self.flights.get_mut(item) else {
            return;
        };
        for request in flight.release() {
            effects.requests.push(Ready {
                id: RequestId {
                    plan: flight.plan,
                    request,
                },
                queue: C::queue(item),
                request: flight.requests[request].0.clone(),
            });
        }
        let mut states = flight.requests.iter().map(|(_, state)| *state);
        if states.any(|state| state != State::Ended) {
            return;
        }
        let plan = flight.plan;
        let is_outdated = flight.is_outdated || !flight.changes.is_empty();
        let (has_changed, is_postponed) = (flight.has_changed, flight.is_postponed);
        let mut has_failed = flight.has_failed;
        let mut is_continued = flight.is_continued;
        let duration = now.saturating_duration_since(flight.started_at);
        if is_continued && flight.has_only_read() {
            let rereads = self.rereads.entry(item.clone()).or_default();
            *rereads = rereads.saturating_add(1);
            if *rereads > REREADS_MAX {
                has_failed = true;
                is_continued = false;
            }
        } else {
            self.rereads.remove(item);
        }
        effects
            .ended
            .push((C::item_kind(item), !has_failed, duration));
        self.flights.remove(item);
        self.plans.remove(&plan);
        if has_failed {
            self.queue.failed(item.clone(), now, (self.jitter)());
        } else if !is_postponed {
            self.queue.succeeded(item);
        }
        if is_outdated || is_continued || has_changed && !has_failed {
            self.push(item.clone(), now);
        }
    }
}

impl Flight {
    /// Marks the requests that may be sent now as ready, and returns their positions.
    fn release(&mut self) -> Vec<usize> {
        let mut released = Vec::new();
        for position in 0..self.requests.len() {
            let (request, state) = &self.requests[position];
            let waits = self.requests[..position]
                .iter()
                .any(|(earlier, state)| *state != State::Ended && precedes(earlier, request));
            if *state == State::Waiting && !waits {
                self.requests[position].1 = State::Ready;
                released.push(position);
            }
        }

        released
    }

    /// Notes a change that concerns the item.
    fn observe(&mut self, change: &Change<'_>) {
        if self.changes.len() == CHANGES_MAX {
            self.is_outdated = true;
        }
        if !self.is_outdated {
            let version = change.entry().and_then(|it| it.version);
            self.changes.insert((change.object.clone(), version));
        }
    }

    /// Notes the outcome of a write. The watch may have reported its change before.
    fn wrote(&mut self, write: &Write, outcome: &Outcome) {
        let version = match outcome {
            Outcome::Stored(entry) => entry.version,
            Outcome::Gone if write.action == Action::Delete => None,
            Outcome::Gone
            | Outcome::Answer(_)
            | Outcome::AlreadyExists(_)
            | Outcome::Conflict(_)
            | Outcome::Refused(_)
            | Outcome::TimedOut
            | Outcome::Failed(_)
            | Outcome::Untrusted(_)
            | Outcome::NotLeader => return,
        };
        self.has_changed |= self.changes.remove(&(write.object.clone(), version));
    }

    fn has_only_read(&self) -> bool {
        let mut requests = self.requests.iter();
        requests.all(|(request, _)| matches!(request, Request::Read(_)))
    }
}

/// Returns whether a request of a plan waits for an earlier one.
fn precedes(earlier: &Request, later: &Request) -> bool {
    match (earlier, later) {
        (Request::Write(_), Request::Write(later)) if later.is_last => true,
        (Request::Write(earlier), Request::Write(later)) => {
            let (earlier, later) = (&earlier.object, &later.object);
            earlier.cluster == later.cluster && earlier.resource == later.resource
        }
        _ => false,
    }
}

impl<C: Controller> Worker for TypedWorker<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn field_manager(&self) -> &'static str {
        C::FIELD_MANAGER
    }

    fn registrations(&self) -> &[Registration] {
        &self.registrations
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache, now: Instant) {
        for item in self.controller.observe(change, cache) {
            match self.flights.get_mut(&item) {
                Some(flight) => flight.observe(change),
                None => self.push(item, now),
            }
        }
    }

    fn started(&mut self, cache: &Cache, now: Instant) {
        let items = self.controller.started(cache);
        self.push_all(items, now);
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache, now: Instant) {
        let items = self.controller.listed(id, cache);
        self.push_all(items, now);
    }

    fn refused(&mut self, id: &WatchId, cache: &Cache, now: Instant) {
        let items = self.controller.refused(id, cache);
        self.push_all(items, now);
    }

    fn step(&mut self, cache: &Cache, env: &mut Env<'_>) -> Option<Effects> {
        let now = env.at;
        self.push_all(self.injector.take(), now);
        let (item, waited) = self.queue.pop(now, C::queue)?;
        if let Some(flight) = self.flights.get_mut(&item) {
            flight.is_outdated = true;
            return Some(Effects::default());
        }
        let plan = self.controller.plan(&item, cache, env);
        let kind = C::item_kind(&item);
        let mut effects = self.start(item, plan, now);
        effects.planned.push((kind, waited));

        Some(effects)
    }

    fn complete(
        &mut self,
        id: RequestId,
        outcome: &Outcome,
        cache: &Cache,
        now: Instant,
    ) -> Effects {
        let mut effects = Effects::default();
        let Some(item) = self.plans.get(&id.plan).cloned() else {
            return effects;
        };
        let Some((request, _)) = (self.flights.get(&item))
            .and_then(|flight| flight.requests.get(id.request))
            .cloned()
        else {
            return effects;
        };
        let mut items = self.controller.done(&item, &request, outcome, cache);
        if let Some(flight) = self.flights.get_mut(&item) {
            flight.is_continued |= items.contains(&item);
            items.retain(|other| *other != item);
            flight.requests[id.request].1 = State::Ended;
            if let Request::Write(write) = &request {
                flight.wrote(write, outcome);
            }
            let is_answer = match &request {
                Request::Write(_) => false,
                // An object that does not exist is the answer to a read.
                Request::Read(_) => matches!(outcome, Outcome::Gone),
                Request::Probe(_) => true,
            };
            flight.has_failed |= !outcome.is_success() && !is_answer;
        }
        self.push_all(items, now);
        self.advance(&item, &mut effects, now);

        effects
    }

    fn reset(&mut self) {
        self.queue = WorkQueue::default();
        self.flights.clear();
        self.plans.clear();
        self.rereads.clear();
    }

    fn next_at(&self, now: Instant) -> Option<Instant> {
        let injected = (!self.injector.is_empty()).then_some(now);
        injected.or_else(|| self.queue.next_at(now))
    }

    fn depth(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests;
