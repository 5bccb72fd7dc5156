//! Events of the provider about the pods: each is written to this cluster at most once in 10 s.

use super::plan::Workload;
use super::unscheduled;
use crate::reflection::event::RemoteEvent;
use control_runtime::{Cluster, Digest, Env, Key, Outcome, Plan, Ref, Write};
use k8s_openapi::api::core::v1::Event;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Shortest time between two writes of an Event.
const INTERVAL: Duration = Duration::from_secs(10);

/// Events of a pod that are written. A hostile provider could invent any number.
const EVENTS_MAX: usize = 8;

/// Time after which an Event counts no longer towards [`EVENTS_MAX`]. Kubernetes deletes Events then, by default.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The Events that this process has written, by the pods and by their names.
#[derive(Debug, Default)]
pub(super) struct Events(BTreeMap<Key, BTreeMap<String, Written>>);

/// The last write of an Event.
#[derive(Clone, Copy, Debug)]
struct Written {
    at: Instant,
    content: Digest,
}

impl Events {
    /// Forgets a pod that is gone.
    pub(super) fn forget(&mut self, pod: &Key) {
        self.0.remove(pod);
    }

    /// Plans the Events about a pod.
    pub(super) fn plan(&mut self, workload: &Workload<'_>, env: &Env<'_>, plan: &mut Plan<Key>) {
        let (key, events) = (workload.key, remote(workload));
        let Some(uid) = workload.uid().filter(|_| !events.is_empty()) else {
            return;
        };
        let written = self.0.entry(key.clone()).or_default();
        written.retain(|_, it| env.at.saturating_duration_since(it.at) < LIFETIME);
        for event in events {
            let name = event.name(key, uid);
            let fields = event.reflected(key, uid);
            let content = Digest::of(&fields);
            let last = written.get(&name).copied();
            let is_written = last.is_some_and(|it| it.content == content);
            if is_written || last.is_none() && written.len() >= EVENTS_MAX {
                continue;
            }
            let age = last.map(|it| env.at.saturating_duration_since(it.at));
            let rest = age.map_or(Duration::ZERO, |age| INTERVAL.saturating_sub(age));
            if !rest.is_zero() {
                plan.requeue.push((rest, key.clone()));
                continue;
            }
            let object = Key::new(&*key.namespace, &*name);
            plan.apply(Ref::of::<Event>(&Cluster::Local, &object), fields);
            let at = env.at;
            written.insert(name, Written { at, content });
        }
    }

    /// Takes the outcome of a write. One that has failed is planned again.
    pub(super) fn done(&mut self, pod: &Key, write: &Write, outcome: &Outcome) {
        let is_stored = matches!(outcome, Outcome::Stored(_) | Outcome::Answer(_));
        if let Some(written) = self.0.get_mut(pod).filter(|_| !is_stored) {
            written.remove(&write.object.key.name);
        }
    }
}

/// Returns the Events about a pod of the Node that has not ended.
fn remote(workload: &Workload<'_>) -> Vec<RemoteEvent> {
    if !workload.settings.reflects_events {
        return Vec::new();
    }
    let unscheduled = unscheduled::event(workload);
    let mut events: Vec<_> = workload.events().cloned().chain(unscheduled).collect();
    // The newest first.
    events.sort_by(|a, b| b.observed().cmp(&a.observed()));

    events
}
