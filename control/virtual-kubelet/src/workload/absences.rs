//! Pods that the API server of this cluster does not have, and not only the cache.
//!
//! After a take-over, the cache may lack the latest pods for a moment, while that of the provider already has their ShadowPods. The
//! deletion of such a ShadowPod would end a pod that runs. So the pod is read before, unless the watch has reported the end of the
//! pod that the ShadowPod names: a UID never comes back.

use crate::pod::kept::KeptShadowPod;
use crate::settings::Settings;
use control_api::annotations;
use control_runtime::{Change, Key, Outcome};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;

/// Ends of pods that have been seen, by the names of the pods.
#[derive(Debug, Default)]
pub(super) struct Absences(BTreeMap<Key, Absence>);

#[derive(Debug, PartialEq)]
pub(super) enum Absence {
    /// UID of the last pod whose end the watch has reported.
    Ended(String),
    /// UID of the pod of the Node that the API server has, by a read; `None` if it has none.
    Read(Option<String>),
}

impl Absences {
    /// Takes a change of a pod of this cluster.
    pub(super) fn observe(&mut self, change: &Change<'_>) {
        let uid = |it: Option<&Pod>| it.and_then(|it| it.metadata.uid.clone());
        let (before, after) = (uid(change.before()), uid(change.after()));
        let key = &change.object.key;
        if let Some(uid) = before.filter(|it| after.as_ref() != Some(it)) {
            self.0.insert(key.clone(), Absence::Ended(uid));
        } else if matches!(self.0.get(key), Some(Absence::Read(_))) {
            self.0.remove(key);
        }
    }

    /// Takes the outcome of the read of a pod. Returns whether it shows the state of the API server.
    pub(super) fn read(&mut self, pod: &Key, outcome: &Outcome, settings: &Settings) -> bool {
        let Some(found) = outcome.found() else {
            return false;
        };
        let read = found.and_then(|entry| entry.get::<Pod>());
        let read = read.filter(|it| settings.is_of_node(it));
        let read = read.and_then(|it| it.metadata.uid.clone());
        self.0.insert(pod.clone(), Absence::Read(read));

        true
    }

    pub(super) fn get(&self, pod: &Key) -> Option<&Absence> {
        self.0.get(pod)
    }

    /// Forgets a pod after its plan, unless its ShadowPod is to be deleted: the provider may refuse that again and again.
    pub(super) fn planned(&mut self, pod: &Key, deletes_shadow: bool) {
        if !deletes_shadow {
            self.0.remove(pod);
        }
    }
}

/// Returns whether the ShadowPod of a pod may be deleted: it is not that of a pod which the cache lacks and the API server may have.
/// `local` is the pod of the Node in the cache.
pub(super) fn is_deletable(
    shadow: &KeptShadowPod,
    local: Option<&Pod>,
    absence: Option<&Absence>,
) -> bool {
    let annotations = shadow.metadata.annotations.as_ref();
    let named = annotations.and_then(|it| it.get(annotations::POD_UID));
    let cached = local.and_then(|it| it.metadata.uid.as_ref());
    // ShadowPods of earlier releases do not name their pod.
    if local.is_some() && (named.is_none() || named == cached) {
        return true;
    }

    match absence {
        Some(Absence::Ended(uid)) => named == Some(uid),
        Some(Absence::Read(uid)) => uid.as_ref() == cached,
        None => false,
    }
}
