//! Compares a reflected object with its desired state.

use super::desired::{Desired, Exclusion, View};
use super::events::About;
use super::item::WorkItem;
use super::kind::Kind;
use super::memory::Memory;
use super::namespaces::State;
use super::present::{self, Present};
use super::registrations::{local_watches, remote_watch};
use super::summary::Fingerprint;
use control_api::offloading::policy::Policy;
use control_api::root_ca::ROOT_CA;
use control_runtime::{Action, Cluster, Event, Key, Plan, Ref, Write};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Interval at which an object whose name another object has is read.
const FOREIGN_INTERVAL: Duration = Duration::from_secs(60);

/// Plans the reflected object of `key`. `remote` is the namespace of the provider that is followed.
pub(super) fn plan(
    view: &View<'_>,
    (kind, key): (Kind, &Key),
    remote: Option<&str>,
    (memory, now): (&mut Memory, Instant),
) -> Plan<WorkItem> {
    let item = WorkItem::Object(kind, key.clone());
    let Some(remote) = remote else {
        memory.forget(&item);
        return Plan::default();
    };
    let peering = &view.settings.peering;
    let remote_key = kind.remote_key(remote, &key.name, &peering.origin);
    let mut object = Object {
        view,
        item,
        about: About {
            kind,
            key,
            destination: &peering.destination,
            name: view.kind_name(kind, key),
        },
        present: Present::find(view.cache, peering, (kind, &remote_key)),
        target: Ref::new(&peering.cluster(), &kind.remote(), &remote_key),
        memory,
        now,
        plan: Plan::default(),
    };
    let watch = remote_watch(peering, kind, remote);
    // Nothing can be written while the provider lacks the kind.
    let is_served = !kind.is_other() || view.cache.refusal(&watch).is_none();
    let is_listed = is_served && view.cache.is_synced(&watch);
    let map = view.settings.map();
    match State::in_cache(view.cache, &map, &key.namespace) {
        State::Accepted(accepted) if is_listed && accepted == remote => object.reflect(),
        State::Withdrawn(_) if is_listed => {
            let is_last = kind == Kind::ConfigMap && key.name == ROOT_CA;
            if !is_last || !present::has_others(view.cache, view.settings, remote) {
                object.remove();
            }
        }
        State::Accepted(_) | State::Withdrawn(_) | State::Suspended | State::Absent => {}
    }

    object.plan
}

/// A reflected object.
struct Object<'a> {
    view: &'a View<'a>,
    item: WorkItem,
    about: About<'a>,
    present: Option<Present<'a>>,
    target: Ref,
    memory: &'a mut Memory,
    now: Instant,
    plan: Plan<WorkItem>,
}

impl Object<'_> {
    fn reflect(&mut self) {
        let (kind, key) = (self.about.kind, self.about.key);
        let watches = local_watches(kind, &key.namespace);
        if !watches.iter().all(|it| self.view.cache.is_synced(it)) {
            return;
        }
        let desired = match self.view.is_replica(kind, key) {
            true => Desired::Absent(Some(Exclusion::Replica)),
            false => self.view.desired(kind, key),
        };
        match desired {
            Desired::Absent(exclusion) => self.exclude(exclusion),
            Desired::Present {
                fingerprint,
                object,
            } => self.write(&fingerprint, object),
        }
    }

    /// Ensures that the object does not exist.
    fn exclude(&mut self, exclusion: Option<Exclusion>) {
        let policy = self.view.settings.policy(self.about.kind);
        let is_present = self.present.is_some_and(|it| it.is_reflected);
        // Most objects are excluded, with an allow list or by their namespace.
        let is_of_most = match exclusion {
            Some(Exclusion::Policy) => policy == Policy::AllowList,
            Some(Exclusion::Namespace) => true,
            Some(
                Exclusion::Never
                | Exclusion::Contradiction
                | Exclusion::ReservedName
                | Exclusion::Replica,
            )
            | None => false,
        };
        let event = exclusion
            .filter(|_| is_present || !is_of_most)
            .and_then(|it| self.about.excluded(it, policy));
        // The root CA has the name, and its reflected object is another item's.
        if exclusion != Some(Exclusion::ReservedName) {
            self.remove();
        }
        if let (Some(_), Some(message)) = (exclusion, self.memory.take_refusal(&self.item)) {
            self.plan.events.push(self.about.not_deleted(&message));
        }
        self.plan.events.extend(event);
    }

    fn remove(&mut self) {
        let Some(present) = self.present.filter(|it| it.is_reflected) else {
            return self.memory.forget(&self.item);
        };
        if !present.is_terminating {
            self.plan.delete(self.target.clone(), present.uid);
        }
    }

    /// Ensures that the object has its desired state.
    fn write(&mut self, desired: &Fingerprint, object: Option<Value>) {
        if let Some(message) = self.memory.take_refusal(&self.item) {
            self.plan.events.push(self.about.refused(&message));
        }
        let Some(present) = self.present else {
            return self.create(desired, object);
        };
        if !present.is_reflected {
            self.memory.mark_foreign(&self.item);
            self.report(self.about.foreign(&self.target.key));
            return;
        }
        self.memory.release(&self.item);
        // A new one is created when it is gone.
        if present.is_terminating {
            return;
        }
        // An Ingress without class may have the default class of the provider, or one that the VirtualNode has offered before. Only the
        // former stays after a write, which is not repeated then.
        let is_current = desired == present.fingerprint
            || self
                .memory
                .is_settled(&self.item, desired, present.fingerprint);
        if is_current {
            self.memory.keep(&self.item);
            if self.memory.take_recovery(&self.item) {
                self.plan.events.push(self.about.recovered());
            }
            let rest = self.memory.calm(&self.item, self.now);
            let later = rest.map(|rest| (rest, self.item.clone()));
            self.plan.requeue.extend(later);
            return;
        }
        let uid = present.uid.to_owned();
        if self.waits(desired) {
            return;
        }
        if self.memory.is_replaced(&self.item, present.uid)
            || desired.is_headless != present.fingerprint.is_headless
        {
            self.plan.delete(self.target.clone(), present.uid);
            return;
        }
        if let Some(object) = self.content(object) {
            let states = (desired, Some(present.fingerprint));
            self.memory.send(&self.item, states, self.now);
            self.plan.apply(self.target.clone(), object);
            // Another object of the name is not changed.
            if let Some(write) = self.plan.writes.last_mut() {
                write.uid = Some(uid);
            }
        }
    }

    /// Creates the object, which fails if another one has its name.
    fn create(&mut self, desired: &Fingerprint, object: Option<Value>) {
        if self.memory.is_foreign(&self.item) {
            self.report(self.about.foreign(&self.target.key));
            self.plan.reads.push(self.target.clone());
            let item = self.item.clone();
            self.plan.requeue.push((FOREIGN_INTERVAL, item));
            return;
        }
        if self.waits(desired) {
            return;
        }
        if let Some(object) = self.content(object) {
            self.memory.send(&self.item, (desired, None), self.now);
            let create = Write::new(self.target.clone(), Action::Create(object));
            self.plan.writes.push(create);
        }
    }

    /// Returns whether others change the object again and again, and plans the object at the time of the next
    /// write.
    fn waits(&mut self, desired: &Fingerprint) -> bool {
        if let Some(rest) = self.memory.rest(&self.item, desired, self.now) {
            self.plan.requeue.push((rest, self.item.clone()));
            return true;
        }
        let Some(rest) = self.memory.wait(&self.item, desired, self.now) else {
            return false;
        };
        self.plan.requeue.push((rest, self.item.clone()));
        match self.memory.other_manager(&self.item) {
            Some(other_manager) => {
                let event = self.about.contested(&self.target.key, other_manager);
                self.report(event);
            }
            // The object names its field managers.
            None => self.plan.reads.push(self.target.clone()),
        }

        true
    }

    /// Publishes the Event about a conflict, again at intervals as long as the conflict lasts.
    fn report(&mut self, event: Event) {
        let is_repeated = self.memory.take_report(&self.item, self.now);
        self.plan.events.push(Event {
            is_repeated,
            ..event
        });
    }

    /// Returns the content of the object, or plans to read the object of this cluster.
    fn content(&mut self, object: Option<Value>) -> Option<Value> {
        if object.is_none() {
            let local = self.about.kind.local();
            let local = Ref::new(&Cluster::Local, &local, self.about.key);
            self.plan.reads.push(local);
        }
        object
    }
}
