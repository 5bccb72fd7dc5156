//! Latencies of the steps of a pod: from its binding to a ready pod, and from its deletion to its end.
//!
//! The start and the end of a step are changes of the pod, its ShadowPod and its remote pod, at the times at which the leader sees
//! them. `progress` follows one pod, and `durations` is the metric.

use super::counterparts::Counterparts;
use super::namespaces::Namespaces;
use super::update::is_of_former;
use crate::pod::status::is_ready;
use crate::settings::Settings;
use control_runtime::{Cache, Key};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::time::Instant;

mod durations;
mod progress;

pub(crate) use durations::Durations;
use progress::{Progress, Stage};

/// Measures the steps of the pods of the Node.
#[derive(Debug, Default)]
pub(super) struct Steps {
    durations: Durations,
    /// One entry for each pod of the Node, by name.
    pods: BTreeMap<Key, Progress>,
}

impl Steps {
    /// Creates the observer, which reports in `durations`.
    pub(super) fn new(durations: Durations) -> Self {
        Self {
            durations,
            pods: BTreeMap::new(),
        }
    }

    /// Takes the state of a pod after a change; `None` if the Node has no pod of this name. The time of the change is `None` if it
    /// was not [seen](control_runtime::Change::seen_at).
    pub(super) fn observe(
        &mut self,
        key: &Key,
        pod: Option<Observed<'_>>,
        seen_at: Option<Instant>,
    ) {
        let Some(Observed { uid, stage }) = pod else {
            let progress = self.pods.remove(key);
            let sample = progress.and_then(|it| it.end(seen_at));
            return self.durations.observe(sample);
        };
        match self.pods.get_mut(key).filter(|it| it.is_of(uid)) {
            Some(progress) => self.durations.observe(progress.advance(stage, seen_at)),
            None => {
                let progress = Progress::new(uid, stage, seen_at);
                self.pods.insert(key.clone(), progress);
            }
        }
    }

    /// Takes the state of a pod after the provider has listed its objects, which may have existed before.
    pub(super) fn listed(&mut self, key: &Key, pod: Option<Observed<'_>>) {
        let Some(Observed { uid, stage }) = pod else {
            return;
        };
        if let Some(progress) = self.pods.get_mut(key).filter(|it| it.is_of(uid)) {
            progress.find(stage);
        }
    }
}

/// The state of a pod of the Node in the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed<'a> {
    uid: &'a str,
    stage: Stage,
}

impl<'a> Observed<'a> {
    /// Returns the state of a pod; `None` if it does not exist, or is not bound to the Node.
    pub(super) fn find(
        settings: &Settings,
        namespaces: &Namespaces,
        key: &Key,
        cache: &'a Cache,
    ) -> Option<Self> {
        let pod = cache.local::<Pod>(key);
        let pod = pod.filter(|it| settings.is_of_node(it))?;
        let remote = namespaces.remote(&key.namespace);
        let remote = remote.map(|it| Key::new(it, &*key.name));
        let counterparts = remote.and_then(|it| Counterparts::find(settings, &it, cache));

        Some(Self {
            uid: pod.metadata.uid.as_deref().unwrap_or_default(),
            stage: stage(pod, counterparts, settings),
        })
    }
}

/// Returns the stage of a pod. The counterparts are `None` while it is unknown whether they exist.
fn stage(pod: &Pod, counterparts: Option<Counterparts<'_>>, settings: &Settings) -> Stage {
    let is_live = |it: &&Pod| it.metadata.deletion_timestamp.is_none();
    if !is_live(&pod) {
        return match counterparts {
            Some(Counterparts { pod: None, .. }) => Stage::RemoteDeleted,
            Some(_) | None => Stage::Terminating,
        };
    }
    if is_ready(pod) {
        return Stage::Ready;
    }
    let shadow = counterparts.and_then(|it| it.shadow);
    let shadow = shadow.filter(|it| settings.is_own(&it.metadata) && !is_of_former(pod, it));
    if shadow.is_none() {
        return Stage::Bound;
    }
    match counterparts.and_then(|it| it.pod).filter(is_live) {
        None => Stage::Written,
        Some(remote) if is_ready(remote) => Stage::RemoteReady,
        Some(_) => Stage::Created,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn key() -> Key {
        Key::new("shop", "web")
    }

    fn observed(uid: &str, stage: Stage) -> Option<Observed<'_>> {
        Some(Observed { uid, stage })
    }

    #[test]
    fn a_recreated_pod_starts_anew() {
        let start = Instant::now();
        let mut steps = Steps::default();
        steps.observe(&key(), observed("a", Stage::Bound), Some(start));
        steps.observe(
            &key(),
            observed("b", Stage::Bound),
            Some(start + SECOND * 60),
        );
        steps.observe(
            &key(),
            observed("b", Stage::Written),
            Some(start + SECOND * 61),
        );

        let samples = steps.durations.samples();
        assert_eq!(samples, [("shadow_pod", 1, 1.0)]);
        assert_eq!(steps.pods.len(), 1);
    }

    #[test]
    fn a_pod_takes_no_memory_after_its_end() {
        let start = Instant::now();
        let mut steps = Steps::default();
        for (number, seen_at) in [(0, Some(start)), (1, None)] {
            let key = Key::new("shop", format!("web-{number}"));
            steps.observe(&key, observed("a", Stage::Bound), seen_at);
            steps.observe(&key, None, seen_at);
        }
        steps.listed(&key(), observed("a", Stage::Written));
        steps.listed(&key(), None);

        assert!(steps.pods.is_empty());
        assert_eq!(steps.durations.samples(), []);
    }
}
