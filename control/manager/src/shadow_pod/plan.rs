//! Plans the pod of a ShadowPod.

use super::CREATION_TIMEOUT;
use super::change::{Checks, EPHEMERAL_CONTAINERS, Followed, Planned, RESIZE, grows};
use super::demand::Demand;
use super::item::WorkItem;
use super::kept::{KeptShadowPod, is_terminal, keep};
use super::ledger::{Ledger, State};
use super::memory::{Memories, Memory};
use super::objects::{Local, Standing};
use super::pod::{desired, follow, owner, phase};
use super::terms::Excess;
use crate::authentication::warn;
use crate::shadow_endpoint_slice::Mapping;
use control_api::{ShadowPod, labels};
use control_runtime::{Action, Cluster, Env, Event, Key, Plan, Ref, Write};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reason of Events about a pod that is not created.
pub(super) const FAILED_CREATE: &str = "FailedCreatePod";

/// Reason of Events about a pod that is not changed.
pub(super) const FAILED_UPDATE: &str = "FailedUpdatePod";

/// Reason of the Event about a pod that is created after one of these.
const CREATED: &str = "CreatedPod";

/// Time after which a refused change is sent again: no watch reports when the API server, the Quota or the TenantPolicy permits
/// it.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Time after which a creation or a resize whose response was lost has no effect any more, if the API server has given it up.
const SETTLED_AFTER: Duration = CREATION_TIMEOUT.saturating_add(Duration::from_secs(1));

/// One ShadowPod.
pub(super) struct Planner<'a> {
    pub(super) local: &'a Local<'a>,
    pub(super) ledger: &'a mut Ledger,
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
        let awaits_resize = self.awaits_resize(pod, env, &mut plan);
        let Some(shadow_pod) = shadow_pod else {
            return plan;
        };
        let memory = self.memories.get(self.key).cloned().unwrap_or_default();
        match pod {
            Some(pod) if owner(&pod.metadata) == Some(&*shadow_pod.uid) => {
                self.follow(shadow_pod, pod, &memory, &mut plan);
                let is_live = pod.metadata.deletion_timestamp.is_none() && !shadow_pod.is_deleting;
                if is_live && !awaits_resize {
                    self.change(shadow_pod, pod, &memory, env, &mut plan);
                }
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
        if self.is_settled(sent, env, plan) {
            plan.reads.push(self.pod());
        }

        true
    }

    /// Reads the pod if the outcome of its resize is unknown. Returns whether that is to be awaited: another resize meanwhile
    /// could take effect before this one.
    fn awaits_resize(
        &mut self,
        pod: Option<&Pod>,
        env: &Env<'_>,
        plan: &mut Plan<WorkItem>,
    ) -> bool {
        let Some(sent) = self.memories.resizing(self.key).map(|(sent, _)| *sent) else {
            return false;
        };
        if !self.is_settled(sent, env, plan) {
            return true;
        }
        if pod.is_none() {
            // The resize names the UID of the pod that has gone.
            self.memories
                .change(self.key, |memory| memory.resizing = None);
            return false;
        }
        plan.reads.push(self.pod());

        true
    }

    /// Returns whether a request that was sent at this time has no effect any more. Else the name is planned again then.
    fn is_settled(&self, sent: Instant, env: &Env<'_>, plan: &mut Plan<WorkItem>) -> bool {
        let age = env.at.saturating_duration_since(sent);
        let rest = SETTLED_AFTER.saturating_sub(age);
        if !rest.is_zero() {
            plan.requeue.push((rest, WorkItem(self.key.clone())));
        }

        rest.is_zero()
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
            return self.fail(plan, FAILED_CREATE, reason);
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
            self.fail(plan, FAILED_CREATE, message.to_owned());
        } else if let Some((reason, message)) = &memory.failure {
            self.fail(plan, reason, message.clone());
        }
        let mapping = match self.local.mapping(self.key, shadow_pod) {
            Ok(mapping) => mapping,
            Err(reason) => return self.fail(plan, FAILED_CREATE, reason),
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
            memory.removed = Default::default();
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
        let (kept, spec) = read(shadow_pod, memory)?;

        Some(desired(self.key, &kept, spec, mapping))
    }

    /// Reports about the pod, and keeps the status up to date.
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

    /// Keeps labels, annotations, ephemeral containers and resources of the pod up to date.
    fn change(
        &mut self,
        shadow_pod: &KeptShadowPod,
        pod: &Pod,
        memory: &Memory,
        env: &Env<'_>,
        plan: &mut Plan<WorkItem>,
    ) {
        let spec = pod.spec.as_ref();
        let spec = spec.filter(|_| !phase(pod).is_some_and(is_terminal));
        let planned = match (&shadow_pod.followed, spec) {
            (Ok(followed), Some(spec)) => self.planned((shadow_pod, followed), spec, memory, env),
            (Err(refusal), Some(_)) => Planned {
                refusal: Some(refusal.clone()),
                ..Planned::default()
            },
            (_, None) => Planned::default(),
        };
        if let Some(refusal) = &planned.refusal {
            self.warn(plan, FAILED_UPDATE, refusal.clone());
            plan.requeue.push((RETRY_AFTER, WorkItem(self.key.clone())));
        }
        match follow(shadow_pod, pod, &memory.removed, planned.refusal.as_deref()) {
            Some(patch) => {
                let mut write = self.merge(patch);
                write.uid.clone_from(&pod.metadata.uid);
                plan.writes.push(write);
            }
            None => self
                .memories
                .change(self.key, |it| it.removed = Default::default()),
        }
        if planned.needs_spec {
            plan.reads
                .push(Ref::of::<ShadowPod>(&Cluster::Local, self.key));
        }
        for apply in planned.applies {
            let mut write = Write::new(self.pod(), Action::Apply(apply.fields));
            write.subresource = Some(apply.subresource);
            write.uid.clone_from(&pod.metadata.uid);
            // A resize claims from a Quota, so it must have no effect once another replica leads.
            write.server_timeout = (apply.subresource == RESIZE).then_some(CREATION_TIMEOUT);
            plan.writes.push(write);
        }
    }

    /// Plans the difference between a ShadowPod and its pod with this spec.
    fn planned(
        &mut self,
        (shadow_pod, followed): (&KeptShadowPod, &Followed),
        pod: &PodSpec,
        memory: &Memory,
        env: &Env<'_>,
    ) -> Planned {
        let mut change = followed.compare(pod);
        let mut refusals = Vec::new();
        self.memories.change(self.key, |memory| {
            memory.read = None;
            memory
                .refusals
                .retain(|subresource, _| change.needs(subresource));
            for (subresource, refusal) in &mut memory.refusals {
                refusals.push(refusal.message.clone());
                let retry_at = refusal.retry_at.get_or_insert(env.at + RETRY_AFTER);
                if env.at < *retry_at {
                    change.skip(subresource);
                }
            }
        });
        let mut checks = Checks {
            policy: Ok(()),
            quota: Ok(()),
        };
        if change.needs(EPHEMERAL_CONTAINERS) {
            checks.policy = self.local.check_change(self.key, shadow_pod);
        }
        if change.needs(RESIZE) {
            checks.quota = self.claim(&followed.resized(pod), env);
        }
        let read = read(shadow_pod, memory).map(|(_, spec)| spec);
        let spec = shadow_pod.spec.as_deref().or(read);
        let mut planned = change.plan(followed, spec, checks);
        self.memories.change(self.key, |memory| {
            for apply in &planned.applies {
                if let Some(refusal) = memory.refusals.get_mut(apply.subresource) {
                    refusal.retry_at = None;
                }
            }
        });
        refusals.extend(planned.refusal);
        planned.refusal = (!refusals.is_empty()).then(|| refusals.join("; "));

        planned
    }

    /// Claims from the Quota what a resized pod requests, if that is more than before.
    ///
    /// # Errors
    ///
    /// Returns why the Quota does not permit the resize.
    fn claim(&mut self, resized: &PodSpec, env: &Env<'_>) -> Result<(), String> {
        if !self.local.enforces_resources() {
            return Ok(());
        }
        let resized = Demand::of(resized)?;
        let Standing::Exists(group, present) = self.local.standing(self.key) else {
            return Err(Excess::NotCharged.to_string());
        };
        if !grows(&present.amounts, &resized.amounts) && !resized.is_looser(&present) {
            return Ok(());
        }
        let terms = self.local.terms(&group);
        let grown = self.ledger.grow(self.key, &resized, terms.as_ref());
        grown.map_err(|excess| excess.to_string())?;
        self.memories.change(self.key, |memory| {
            memory.resizing = Some((env.at, Arc::new(resized)));
        });

        Ok(())
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

    /// Reports that the pod is not created. Only then another Event reports its creation: that of each pod would cost two
    /// requests, here and at the consumer, and says nothing that the scheduler's Event does not.
    fn fail(&mut self, plan: &mut Plan<WorkItem>, reason: &'static str, message: String) {
        self.warn(plan, reason, message);
        self.memories
            .change(self.key, |memory| memory.was_refused = true);
    }

    fn warn(&self, plan: &mut Plan<WorkItem>, reason: &'static str, message: String) {
        let object = Ref::of::<ShadowPod>(&Cluster::Local, self.key);
        warn(plan, object, (reason, message));
    }
}

/// Returns a ShadowPod that was read, with its spec, if it is judged and charged like the kept one.
fn read<'a>(
    shadow_pod: &KeptShadowPod,
    memory: &'a Memory,
) -> Option<(KeptShadowPod, &'a PodSpec)> {
    let read = memory.read.as_ref()?;
    let kept = keep(ShadowPod::clone(read));
    let is_judged = kept.is_equivalent(shadow_pod);
    let spec = read.spec.pod.as_ref().filter(|_| is_judged)?;

    Some((kept, spec))
}
