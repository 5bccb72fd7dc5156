//! Withdrawn namespaces of consumers, which are deleted after what was reflected into them.
//!
//! ```text
//! entry removed -> the consumer's virtual kubelets remove their objects, the root CA last -> pods are about to end -> deletion
//! ```
//!
//! Kubernetes waits 5 s before it looks at what a namespace that is being deleted contains, and some seconds more each time
//! that there is still a pod. So the deletion begins up to 4 s before the last pod has ended.
//!
//! A consumer announces by an annotation of its NamespaceMap that it does so. It may be unable to, so each wait has a limit.

use super::item::WorkItem;
use super::objects::Local;
use crate::shadow_pod;
use control_api::root_ca::reflected_name;
use control_api::{NamespaceMap, ShadowEndpointSlice, annotations};
use control_runtime::{Change, Cluster, Env, Kept, Key, Outcome, Plan, Ref};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest time for which a deletion waits until the consumer has removed its objects.
const REMOVAL_MAX: Duration = Duration::from_secs(10);

/// Longest time for which a deletion waits for pods that have no ShadowPod.
const TERMINATION_MAX: Duration = Duration::from_secs(60);

/// Rest of the grace periods of pods during which a deletion begins.
const TERMINATION_REST: Duration = Duration::from_secs(4);

/// Interval at which the root CA is read. It is not watched, so that no object of a consumer is kept.
const READ_INTERVAL: Duration = Duration::from_millis(250);

/// The withdrawn namespaces that exist, by name.
#[derive(Debug, Default)]
pub(super) struct Withdrawals(BTreeMap<String, Withdrawal>);

#[derive(Debug)]
struct Withdrawal {
    /// The NamespaceMap of the consumer.
    map: Key,
    since: Instant,
    root_ca: RootCa,
}

/// State of a consumer's root CA by the last read.
#[derive(Debug, PartialEq)]
enum RootCa {
    Unknown,
    Present,
    Gone,
}

impl Withdrawals {
    /// Returns the item of a change: the deletion of an object in a withdrawn namespace.
    pub(super) fn item_of(&self, change: &Change<'_>) -> Option<WorkItem> {
        let withdrawal = self.0.get(&change.object.key.namespace)?;
        let is_gone = change.entry().is_none();

        is_gone.then(|| WorkItem::Remote(withdrawal.map.clone()))
    }

    /// Takes the outcome of a read; returns the item that can proceed.
    pub(super) fn read(&mut self, object: &Ref, outcome: &Outcome) -> Option<WorkItem> {
        let withdrawal = self.0.get_mut(&object.key.namespace)?;
        let is_present = matches!(outcome, Outcome::Stored(_));
        // After a failure, the runtime plans the item again.
        let is_known = is_present || matches!(outcome, Outcome::Gone);
        if !is_known {
            return None;
        }
        withdrawal.root_ca = if is_present {
            RootCa::Present
        } else {
            RootCa::Gone
        };

        Some(WorkItem::Remote(withdrawal.map.clone()))
    }

    /// Returns whether the deletion of a withdrawn namespace of the consumer `peer` waits, and plans it again at the limit.
    pub(super) fn waits(
        &mut self,
        local: &Local<'_>,
        (map, peer): (&Key, &str),
        namespace: &str,
        env: &Env<'_>,
        plan: &mut Plan<WorkItem>,
    ) -> bool {
        let withdrawal = self.0.entry(namespace.to_owned());
        let withdrawal = withdrawal.or_insert_with(|| Withdrawal {
            map: map.clone(),
            since: env.at,
            root_ca: RootCa::Unknown,
        });
        let has_objects = has::<ShadowEndpointSlice>(local, namespace)
            || shadow_pod::exist_in(local.cache, namespace);
        let elapsed = env.at.saturating_duration_since(withdrawal.since);
        let rest = if has_objects || withdrawal.root_ca != RootCa::Gone {
            REMOVAL_MAX.saturating_sub(elapsed)
        } else {
            let end = termination(local, namespace, env.now);
            TERMINATION_MAX.saturating_sub(elapsed).min(end)
        };
        if rest.is_zero() {
            return false;
        }
        let item = WorkItem::Remote(map.clone());
        match withdrawal.root_ca {
            RootCa::Unknown if !has_objects => {
                let key = Key::new(namespace, reflected_name(peer));
                plan.reads.push(Ref::of::<ConfigMap>(&Cluster::Local, &key));
                plan.requeue.push((rest, item));
            }
            RootCa::Present => {
                withdrawal.root_ca = RootCa::Unknown;
                plan.requeue.push((rest.min(READ_INTERVAL), item));
            }
            RootCa::Unknown | RootCa::Gone => plan.requeue.push((rest, item)),
        }

        true
    }

    /// Forgets the namespaces of a NamespaceMap that are not withdrawn, or are being deleted.
    pub(super) fn retain(&mut self, map: &Key, is_withdrawn: impl Fn(&str) -> bool) {
        self.0
            .retain(|namespace, withdrawal| withdrawal.map != *map || is_withdrawn(namespace));
    }
}

/// Returns whether a consumer has withdrawn a namespace, and removes its objects from it.
pub(super) fn is_withdrawn(map: &NamespaceMap, original: &str) -> bool {
    let annotations = map.metadata.annotations.as_ref();
    let is_announced = annotations
        .and_then(|it| it.get(annotations::REMOVES_OBJECTS))
        .is_some_and(|it| it == "true");

    is_announced && !map.spec.desired_mapping.contains_key(original)
}

/// Returns the time until the grace periods of a namespace's pods have a rest of at most [`TERMINATION_REST`]. A pod that
/// is not being deleted yet has no end.
fn termination(local: &Local<'_>, namespace: &str, now: Timestamp) -> Duration {
    let pods = local.cache.objects::<Pod>(&Cluster::Local);
    let ends = pods.within(namespace).map(|(_, pod)| {
        let end = pod.metadata.deletion_timestamp.as_ref()?;
        let rest = Duration::try_from(end.0.duration_since(now)).unwrap_or_default();
        Some(rest.saturating_sub(TERMINATION_REST))
    });

    ends.map(|end| end.unwrap_or(Duration::MAX))
        .max()
        .unwrap_or_default()
}

/// Returns whether a namespace has objects of a type.
fn has<K: Kept>(local: &Local<'_>, namespace: &str) -> bool {
    let objects = local.cache.objects::<K>(&Cluster::Local);
    objects.within(namespace).next().is_some()
}
