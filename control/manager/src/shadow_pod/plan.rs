//! Plans the pod of a ShadowPod.

use super::CREATION_TIMEOUT;
use super::item::WorkItem;
use super::kept::{KeptShadowPod, is_terminal, keep};
use super::ledger::{Ledger, State};
use super::memory::{Memories, Memory};
use super::objects::{Local, Standing};
use super::pod::{desired, follow, owner, phase};
use crate::authentication::warn;
use crate::shadow_endpoint_slice::Mapping;
use control_api::{ShadowPod, labels};
use control_runtime::{Action, Cluster, Env, Event, Key, Plan, Ref, Write};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::time::Duration;

/// Reason of Events about a pod that is not created.
pub(super) const FAILED_CREATE: &str = "FailedCreatePod";

/// Reason of Events about a pod that is not changed.
pub(super) const FAILED_UPDATE: &str = "FailedUpdatePod";

const CREATED: &str = "CreatedPod";

/// Time after which a creation whose response was lost has no effect any more, if the API server has given it up.
const SETTLED_AFTER: Duration = CREATION_TIMEOUT.saturating_add(Duration::from_secs(1));

/// One ShadowPod.
pub(super) struct Planner<'a> {
    pub(super) local: &'a Local<'a>,
    pub(super) ledger: &'a Ledger,
    pub(super) memories: &'a mut Memories,
    pub(super) key: &'a Key,
}

impl Planner<'_> {
    /// Plans the pod, after its group was decided.
    pub(super) fn plan(&mut self, env: &Env<'_>) -> Plan<WorkItem> {
        let mut plan = Plan::default();
        let shadow_pod = self.local.shadow_pods.get(self.key);
        let pod = self.local.pods.get(self.key);
        if pod.is_none() && self.awaits_creation(env, &mut plan) {
            return plan;
        }
        let Some(shadow_pod) = shadow_pod else {
            return plan;
        };
        let memory = self.memories.get(self.key).cloned().unwrap_or_default();
        match pod {
            Some(pod) if owner(&pod.metadata) == Some(&*shadow_pod.uid) => {
                self.follow(shadow_pod, pod, &memory, &mut plan);
            }
            Some(pod) => self.reject(pod, &mut plan),
            None => self.create(shadow_pod, &memory, env, &mut plan),
        }

        plan
    }

    /// Reads the pod if its ShadowPod has gone or changed while the outcome of its creation is unknown: a late pod counts.
    /// Returns whether that is to be awaited.
    fn awaits_creation(&self, env: &Env<'_>, plan: &mut Plan<WorkItem>) -> bool {
        let Some(sent) = self.memories.sent(self.key) else {
            return false;
        };
        let is_unchanged = match self.local.standing(self.key) {
            Standing::Waits(group, rank, demand) => {
                self.ledger.has_claim(self.key, (&group, &rank, &demand))
            }
            Standing::Free => true,
            Standing::Ended | Standing::Exists(..) | Standing::Refused(_) => false,
        };
        if is_unchanged {
            // Creating the pod once more shows the outcome.
            return false;
        }
        let age = env.at.saturating_duration_since(sent);
        match SETTLED_AFTER.checked_sub(age) {
            Some(rest) if !rest.is_zero() => {
                plan.requeue.push((rest, WorkItem(self.key.clone())));
            }
            Some(_) | None => plan.reads.push(self.pod()),
        }

        true
    }

    /// Creates the pod if it may exist.
    fn create(
        &mut self,
        shadow_pod: &KeptShadowPod,
        memory: &Memory,
        env: &Env<'_>,
        plan: &mut Plan<WorkItem>,
    ) {
        let reason = match self.local.standing(self.key) {
            Standing::Ended | Standing::Exists(..) => return,
            Standing::Refused(reason) => Some(reason),
            Standing::Free => None,
            Standing::Waits(group, ..) => match self.ledger.state(self.key) {
                Some(State::Claimed) => None,
                Some(State::Parked) => return,
                Some(State::Existing | State::Waiting) | None => {
                    let terms = self.local.terms(&group);
                    let excess = self.ledger.excess(self.key, terms.as_ref());
                    // It fits since its group was decided: the next decision admits it.
                    let Some(excess) = excess else {
                        plan.is_incomplete = true;
                        return;
                    };
                    Some(excess.to_string())
                }
            },
        };
        if let Some(reason) = reason {
            return self.warn(plan, FAILED_CREATE, reason);
        }
        if let Some(uid) = &memory.unlabelled {
            let labels = json!({labels::MANAGED_BY: labels::MANAGED_BY_SHADOW_POD});
            let mut write = self.merge(json!({"metadata": {"labels": labels}}));
            write.uid = Some(uid.clone());
            plan.writes.push(write);
            return;
        }
        if memory.is_taken {
            let message = "another pod has this name: delete that pod, or use another name";
            self.warn(plan, FAILED_CREATE, message.to_owned());
        } else if let Some((reason, message)) = &memory.failure {
            self.warn(plan, reason, message.clone());
        }
        let mapping = match self.local.mapping(self.key, shadow_pod) {
            Ok(mapping) => mapping,
            Err(reason) => return self.warn(plan, FAILED_CREATE, reason),
        };
        let Some(body) = self.body(shadow_pod, memory, mapping.as_ref()) else {
            plan.reads
                .push(Ref::of::<ShadowPod>(&Cluster::Local, self.key));
            return;
        };
        let mut write = Write::new(self.pod(), Action::Create(body));
        // It claims from a Quota, so it must have no effect once another replica leads.
        write.server_timeout = Some(CREATION_TIMEOUT);
        plan.writes.push(write);
        self.memories.change(self.key, |memory| {
            memory.sent = Some(env.at);
            memory.read = None;
        });
    }

    /// Returns the pod; `None` if the spec has to be read.
    fn body(
        &self,
        shadow_pod: &KeptShadowPod,
        memory: &Memory,
        mapping: Option<&Mapping>,
    ) -> Option<Value> {
        if let Some(spec) = &shadow_pod.spec {
            return Some(desired(self.key, shadow_pod, spec, mapping));
        }
        let read = memory.read.as_ref()?;
        let kept = keep(ShadowPod::clone(read));
        // Only the spec that was judged and charged is created.
        let is_judged = kept.is_equivalent(shadow_pod);
        let spec = read.spec.pod.as_ref().filter(|_| is_judged)?;

        Some(desired(self.key, &kept, spec, mapping))
    }

    /// Keeps pod and status up to date.
    fn follow(
        &mut self,
        shadow_pod: &KeptShadowPod,
        pod: &Pod,
        memory: &Memory,
        plan: &mut Plan<WorkItem>,
    ) {
        let object = Ref::of::<ShadowPod>(&Cluster::Local, self.key);
        if memory.is_created {
            plan.events.push(Event {
                object: object.clone(),
                is_warning: false,
                reason: CREATED,
                note: "created the pod".to_owned(),
                is_repeated: true,
            });
            self.memories
                .change(self.key, |memory| memory.is_created = false);
        }
        if let Some((reason, message)) = &memory.failure {
            self.warn(plan, reason, message.clone());
            self.memories
                .change(self.key, |memory| memory.failure = None);
        }
        let is_deleting = pod.metadata.deletion_timestamp.is_some();
        if !is_deleting && !shadow_pod.is_deleting {
            match follow(shadow_pod, pod, &memory.removed) {
                Some(patch) => {
                    let mut write = self.merge(patch);
                    write.uid.clone_from(&pod.metadata.uid);
                    plan.writes.push(write);
                }
                None => self
                    .memories
                    .change(self.key, |it| it.removed = Default::default()),
            }
        }
        // The kubelet ends a deleted pod with a terminal phase. The pod is created again then.
        let phase = phase(pod).filter(|phase| !is_deleting || !is_terminal(*phase));
        let changed = phase.filter(|phase| shadow_pod.phase != Some(*phase));
        if let Some(phase) = changed.filter(|_| !shadow_pod.has_ended()) {
            plan.apply(object, json!({"status": {"phase": phase}}));
            if let Some(write) = plan.writes.last_mut() {
                write.subresource = Some("status");
                write.uid = Some(shadow_pod.uid.clone());
            }
        }
    }

    /// Leaves a pod alone that is not of this ShadowPod. That of an earlier ShadowPod of the name is being deleted.
    fn reject(&self, pod: &Pod, plan: &mut Plan<WorkItem>) {
        if pod.metadata.deletion_timestamp.is_none() && owner(&pod.metadata).is_none() {
            let message = "another pod has this name: delete that pod, or use another name";
            self.warn(plan, FAILED_CREATE, message.to_owned());
        }
    }

    fn pod(&self) -> Ref {
        Ref::of::<Pod>(&Cluster::Local, self.key)
    }

    fn merge(&self, patch: Value) -> Write {
        Write::new(self.pod(), Action::Merge(patch))
    }

    fn warn(&self, plan: &mut Plan<WorkItem>, reason: &'static str, message: String) {
        let object = Ref::of::<ShadowPod>(&Cluster::Local, self.key);
        warn(plan, object, (reason, message));
    }
}
