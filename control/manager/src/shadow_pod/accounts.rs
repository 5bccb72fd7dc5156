//! The accounts of Quotas and what is known of names, as objects and outcomes change them.

use super::change::RESIZE;
use super::demand::Demand;
use super::kept::KeptShadowPod;
use super::ledger::{Group, Ledger};
use super::memory::{Memories, Refusal};
use super::objects::{Local, Standing};
use super::pending::Pending;
use super::plan::{FAILED_CREATE, FAILED_UPDATE};
use super::pod::{Removed, owner};
use control_runtime::{Action, Change, Entry, Key, Outcome, Write};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The state of the controller.
#[derive(Default)]
pub(super) struct Accounts {
    pub(super) ledger: Ledger,
    pub(super) memories: Memories,
    pending: Pending,
    /// Whether all objects are known, so that decisions count.
    pub(super) is_started: bool,
}

impl Accounts {
    /// Creates empty accounts, from which on decisions count.
    pub(super) fn started() -> Self {
        Self {
            is_started: true,
            ..Self::default()
        }
    }

    /// Computes the accounts of names again, and decides about the groups that this concerns. Returns the names that have a
    /// claim since.
    pub(super) fn assess(&mut self, local: &Local<'_>, keys: &BTreeSet<Key>) -> Vec<Key> {
        if !self.is_started {
            return Vec::new();
        }
        let mut groups = BTreeSet::new();
        for key in keys {
            self.pending.update(local, key);
            if local.pods.get(key).is_none() && self.memories.sent(key).is_some() {
                // The claim stays until the outcome of the creation is known.
                continue;
            }
            groups.extend(match local.standing(key) {
                Standing::Exists(group, demand) => {
                    let demand = match self.memories.resizing(key) {
                        // The pod may have been resized already.
                        Some((_, claim)) => Arc::new(Demand::clone(&demand).raised(claim)),
                        None => demand,
                    };
                    self.ledger.exists(key, group, demand)
                }
                Standing::Waits(group, rank, demand) => self.ledger.waits(key, group, rank, demand),
                Standing::Ended | Standing::Free | Standing::Refused(_) => self.ledger.remove(key),
            });
        }

        self.decide(local, groups)
    }

    /// Decides about groups, and returns the names that have a claim since.
    pub(super) fn decide(
        &mut self,
        local: &Local<'_>,
        groups: impl IntoIterator<Item = Group>,
    ) -> Vec<Key> {
        let mut claimed = Vec::new();
        for group in groups {
            let terms = local.terms(&group);
            claimed.extend(self.ledger.decide(&group, terms.as_ref()));
        }

        claimed
    }

    /// Returns the names that a change concerns.
    pub(super) fn names_of(&mut self, change: &Change<'_>, local: &Local<'_>) -> BTreeSet<Key> {
        let key = &change.object.key;
        if change.is::<KeptShadowPod>() {
            let states = (
                change.before::<KeptShadowPod>(),
                change.after::<KeptShadowPod>(),
            );
            match states {
                (Some(before), Some(after)) if before.uid == after.uid => {
                    let pod = local.pods.get(key);
                    self.memories.change(key, |memory| {
                        // A pod is created with what its ShadowPod has then.
                        if pod.is_none() && memory.sent.is_none() {
                            memory.removed = Removed::default();
                        } else {
                            memory.removed.add(before, after, pod);
                        }
                        if before.followed != after.followed {
                            memory.refusals.clear();
                        }
                    });
                }
                (None, Some(_)) => {}
                (Some(_), _) | (None, None) => self.memories.forget(key),
            }
            BTreeSet::from([key.clone()])
        } else if change.is::<Pod>() {
            // A resize whose outcome is unknown stays so: another change of the pod does not show whether it had an effect.
            if change.after::<Pod>().is_some() {
                self.memories.change(key, |memory| {
                    memory.sent = None;
                    memory.unlabelled = None;
                    memory.is_taken = false;
                });
            } else {
                self.memories.change(key, |memory| memory.refusals.clear());
            }
            BTreeSet::from([key.clone()])
        } else {
            self.pending.names_of(change, local)
        }
    }

    /// Takes the outcome of a write of a pod. Returns the names to assess.
    pub(super) fn wrote(
        &mut self,
        local: &Local<'_>,
        key: &Key,
        write: &Write,
        outcome: &Outcome,
    ) -> Vec<Key> {
        if let Some(subresource) = write.subresource {
            self.changed(local, key, subresource, outcome);
            return self.assess(local, &BTreeSet::from([key.clone()]));
        }
        let is_creation = matches!(write.action, Action::Create(_));
        let shadow_pod = local.shadow_pods.get(key);
        self.memories.change(key, |memory| match outcome {
            Outcome::Stored(_) => {
                memory.sent = None;
                memory.is_created |= is_creation && std::mem::take(&mut memory.was_refused);
                memory.failure = None;
                memory.unlabelled = None;
                memory.is_taken = false;
            }
            Outcome::AlreadyExists(existing) => {
                memory.sent = None;
                let existing = existing.as_ref();
                let ours = existing.filter(|it| is_of(it, shadow_pod));
                memory.unlabelled = ours.map(|it| it.uid.clone());
                memory.is_taken = existing.is_some() && ours.is_none();
            }
            Outcome::Refused(status) | Outcome::Conflict(status) => {
                let reason = if is_creation {
                    FAILED_CREATE
                } else {
                    FAILED_UPDATE
                };
                let message = format!("the API server refuses the pod: {}", status.message);
                memory.failure = Some((reason, message));
                memory.sent = None;
            }
            Outcome::NotLeader => memory.sent = None,
            Outcome::Gone => memory.unlabelled = None,
            Outcome::Answer(_) | Outcome::TimedOut | Outcome::Failed(_) | Outcome::Untrusted(_) => {
            }
        });
        if !is_creation || !matches!(outcome, Outcome::Refused(_) | Outcome::Conflict(_)) {
            return self.assess(local, &BTreeSet::from([key.clone()]));
        }
        let freed = self.ledger.park(key);

        self.decide(local, freed)
    }

    /// Takes the outcome of a write of a pod's subresource.
    fn changed(
        &mut self,
        local: &Local<'_>,
        key: &Key,
        subresource: &'static str,
        outcome: &Outcome,
    ) {
        let message = match outcome {
            Outcome::Stored(_) | Outcome::NotLeader => None,
            Outcome::Refused(status) | Outcome::Conflict(status) => Some(format!(
                "the API server refuses pods/{subresource}: {}",
                status.message
            )),
            Outcome::Gone => local.pods.get(key).map(|_| {
                format!(
                    "the API server does not have pods/{subresource}: create a new pod, or update Kubernetes of the provider"
                )
            }),
            // The API server may still make the change.
            Outcome::Answer(_)
            | Outcome::AlreadyExists(_)
            | Outcome::TimedOut
            | Outcome::Failed(_)
            | Outcome::Untrusted(_) => return,
        };
        self.memories.change(key, |memory| {
            if subresource == RESIZE {
                memory.resizing = None;
            }
            match message {
                Some(message) => {
                    let retry_at = None;
                    let refusal = Refusal { message, retry_at };
                    memory.refusals.insert(subresource, refusal);
                }
                None => {
                    memory.refusals.remove(subresource);
                }
            }
        });
    }
}

/// Returns whether a pod is controlled by a ShadowPod.
fn is_of(pod: &Entry, shadow_pod: Option<&KeptShadowPod>) -> bool {
    let owner = pod.get::<Pod>().and_then(|pod| owner(&pod.metadata));
    owner.is_some() && owner == shadow_pod.map(|it| it.uid.as_str())
}
