//! One pod of the Node, compared with its ShadowPod and its remote pod.

use super::absences::{Absence, is_deletable};
use super::counterparts::Counterparts;
use super::namespaces::Namespaces;
use super::offloading;
use super::update::{is_of_former, update};
use crate::pod::forge::{self, HomeApiServer};
use crate::pod::has_ended;
use crate::pod::kept::KeptShadowPod;
use crate::pod::status::{self, History};
use crate::reflection::event;
use crate::settings::{Settings, api_servers, reserved};
use control_api::offloading::virtual_node::OffloadingPatch;
use control_api::{ShadowPod, VirtualNode, labels};
use control_runtime::{
    Action, Cache, Cluster, Env, Event, Key, Plan, Ref, Resource, Write, merge_patch,
};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;

/// A pod, with what its counterparts depend on.
pub(super) struct Workload<'a> {
    pub(super) settings: &'a Settings,
    pub(super) namespaces: &'a Namespaces,
    pub(super) cache: &'a Cache,
    /// User as which the provider knows this process.
    pub(super) user: Option<&'a str>,
    /// Name of the pod in this cluster.
    pub(super) key: &'a Key,
    /// Why the provider has refused the ShadowPod, or its last change.
    pub(super) refusal: Option<&'a str>,
    /// The end of an earlier pod of the name.
    pub(super) absence: Option<&'a Absence>,
    /// Whether the provider has answered that it has no remote pod.
    pub(super) is_gone: bool,
    /// Whether the Node is not ready, so that the remote status may be outdated.
    pub(super) is_unavailable: bool,
    /// How long the pod still waits for its tokens.
    pub(super) wait: Option<Duration>,
    /// How long the pod still waits for the lists of the provider's objects.
    pub(super) listing: Duration,
}

/// Why a ShadowPod cannot be created, if the provider has another one.
pub(super) const EXISTS: &str = "a ShadowPod of this name exists at the provider and is not of this pod: delete it there, or \
                                 give the pod another name";

impl<'a> Workload<'a> {
    /// Plans ShadowPod, status and end of the pod. `history` is that of its remote pods.
    pub(super) fn plan(&self, history: &mut History, env: &Env<'_>) -> Plan<Key> {
        let mut plan = Plan::default();
        let local = self
            .cache
            .local::<Pod>(self.key)
            .filter(|it| self.settings.is_of_node(it));
        let Some(remote) = self.remote_key() else {
            if let Some(local) = local {
                self.plan_unmapped(local, env, &mut plan);
            }
            return plan;
        };
        let is_withdrawn = self.namespaces.is_withdrawn(&self.key.namespace);
        if let Some(local) = local.filter(|_| is_withdrawn) {
            self.plan_unmapped(local, env, &mut plan);
        }
        let Some(counterparts) = Counterparts::find(self.settings, &remote, self.cache) else {
            if let Some(local) = local.filter(is_live) {
                self.plan_unlisted(local, &remote, env, &mut plan);
            }
            return plan;
        };
        let Counterparts { shadow, pod } = counterparts;
        let is_live = local.is_some_and(|it| it.metadata.deletion_timestamp.is_none());
        match local {
            Some(local) if is_live && !is_withdrawn => {
                self.plan_running(local, counterparts, history, env, &mut plan);
            }
            Some(local) if !is_live => {
                let shadow = shadow.filter(|it| self.settings.is_own(&it.metadata));
                self.delete_shadow(&remote, shadow, &mut plan);
                if shadow.is_none() && pod.is_none() {
                    self.end(local, &mut plan);
                } else if let Some(pod) = pod {
                    self.reflect(local, (pod, true), history, env, &mut plan);
                }
            }
            Some(_) | None => self.delete_shadow(&remote, shadow, &mut plan),
        }

        plan
    }

    /// Plans a pod while the provider has not listed its objects. A read shows why: the list has no outcome of its own.
    fn plan_unlisted(&self, local: &Pod, remote: &Key, env: &Env<'_>, plan: &mut Plan<Key>) {
        if !self.listing.is_zero() {
            return plan.requeue.push((self.listing, self.key.clone()));
        }
        plan.reads.push(self.shadow_ref(remote));
        let Some(refusal) = self.refusal else {
            return;
        };
        plan.events.push(self.failed_reflection(refusal));
        // The remote pod of one that has started may run.
        if !has_started(local) {
            self.set_absent(local, (None, Some(refusal)), env, plan);
        }
    }

    fn plan_running(
        &self,
        local: &Pod,
        counterparts: Counterparts<'_>,
        history: &mut History,
        env: &Env<'_>,
        plan: &mut Plan<Key>,
    ) {
        let Some(node) = self.virtual_node() else {
            return;
        };
        let patch = node.spec.offloading_patch.clone().unwrap_or_default();
        let Some(shadow) = counterparts.shadow else {
            // The remote pod of an earlier ShadowPod is still ending.
            if counterparts.pod.is_none() && !has_ended(local) {
                self.create(local, &patch, plan);
                let refusal = self.refusal;
                plan.events
                    .extend(refusal.map(|it| self.failed_reflection(it)));
                self.set_absent(local, (None, refusal), env, plan);
            }
            return;
        };
        if shadow.metadata.deletion_timestamp.is_some() {
            return self.set_absent(local, (counterparts.pod, None), env, plan);
        }
        if !self.settings.is_own(&shadow.metadata) {
            plan.events.push(self.failed_reflection(EXISTS));
            return self.set_absent(local, (counterparts.pod, Some(EXISTS)), env, plan);
        }
        if is_of_former(local, shadow) || is_aborted(local) {
            if let Some(remote) = self.remote_key() {
                self.delete_shadow(&remote, Some(shadow), plan);
            }
            return;
        }
        self.mark(local, plan);
        let mut is_carried = false;
        if !is_marked_unavailable(local) {
            is_carried = self.update(local, (shadow, counterparts.pod, &patch), plan);
        }
        match counterparts.pod {
            Some(pod) => self.reflect(local, (pod, is_carried), history, env, plan),
            None => {
                if let Some(status) = status::terminated(local, shadow.phase, env.now) {
                    self.set_status(local, &status, plan);
                } else {
                    let message = self.failed_creation(shadow);
                    let message =
                        message.map(|it| format!("the provider does not create the pod: {it}"));
                    self.set_absent(local, (None, message.as_deref()), env, plan);
                }
            }
        }
    }

    fn create(&self, local: &Pod, patch: &OffloadingPatch, plan: &mut Plan<Key>) {
        let Some(remote) = self.remote_key() else {
            return;
        };
        if let Some(wait) = self.wait {
            plan.requeue.push((wait, self.key.clone()));
            return;
        }
        let addresses = self.virtual_node().map(api_servers).unwrap_or_default();
        let context = self.context(&remote.namespace, patch, &addresses);
        let shadow = forge::shadow_pod(local, &context);
        let object = self.shadow_ref(&remote);
        plan.writes
            .push(Write::new(object, Action::Create(json!(shadow))));
    }

    /// Plans the changes of a ShadowPod after those of its pod. Returns whether it has all of them.
    fn update(
        &self,
        local: &Pod,
        (shadow, remote, patch): (&KeptShadowPod, Option<&Pod>, &OffloadingPatch),
        plan: &mut Plan<Key>,
    ) -> bool {
        let Some(key) = self.remote_key() else {
            return false;
        };
        let remote = remote.filter(|it| it.metadata.deletion_timestamp.is_none());
        // The hosts file of a pod cannot be changed.
        let context = self.context(&key.namespace, patch, &[]);
        let update = update(local, shadow, remote.filter(|it| !has_ended(it)), &context);
        let note = update.note.as_deref();
        plan.events
            .extend(note.map(|note| self.failed_reflection(note)));
        let Some(patch) = update.patch else {
            return note.is_none();
        };
        if let Some(refusal) = self.refusal {
            plan.events.push(self.failed_reflection(refusal));
        }
        let mut write = Write::new(self.shadow_ref(&key), Action::Merge(patch));
        write.uid.clone_from(&shadow.metadata.uid);
        if update.has_spec {
            let version = &shadow.metadata.resource_version;
            write.resource_version.clone_from(version);
        }
        plan.writes.push(write);

        false
    }

    /// Plans the label by which other parts of this cluster know that the pod runs elsewhere.
    fn mark(&self, local: &Pod, plan: &mut Plan<Key>) {
        let labels = local.metadata.labels.as_ref();
        let is_marked = labels
            .and_then(|it| it.get(labels::SHADOW_POD))
            .is_some_and(|it| it == "true");
        if is_marked {
            return;
        }
        let labels = json!({"metadata": {"labels": {labels::SHADOW_POD: "true"}}});
        self.write_status(local, labels, plan);
    }

    /// Plans the status of the pod by that of the remote pod. `is_carried` if the ShadowPod has all changes of the pod.
    fn reflect(
        &self,
        local: &Pod,
        (pod, is_carried): (&Pod, bool),
        history: &mut History,
        env: &Env<'_>,
        plan: &mut Plan<Key>,
    ) {
        let Some(remote) = pod.status.as_ref().filter(|_| !has_ended(local)) else {
            return;
        };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let current = local.status.clone().unwrap_or_default();
        let reserved = self.reserved();
        let map_ip = |address: IpAddr| self.settings.reflected(address, &reserved);
        status::observe(&mut history.reported, remote);
        let context = status::Context {
            pod: local,
            map_ip: &map_ip,
            host_ip: Some(self.settings.address),
            is_unavailable: self.is_unavailable(local),
            generation: pod.metadata.generation.filter(|_| is_carried),
            restarts: history.restarts.observe(&current, uid, remote),
            reported: &history.reported,
            now: env.now,
        };
        self.set_status(local, &status::local(remote, &context), plan);
    }

    pub(super) fn set_status(&self, local: &Pod, status: &PodStatus, plan: &mut Plan<Key>) {
        let old = json!(local.status.clone().unwrap_or_default());
        let Some(patch) = merge_patch(&old, &json!(status)) else {
            return;
        };
        let has_conditions = patch.get("conditions").is_some();
        self.write_status(local, json!({"status": patch}), plan);
        // The patch replaces the list, with conditions that clients of this cluster may have set meanwhile.
        if has_conditions && status::has_others(local) {
            let version = self
                .cache
                .entry(&self.local_ref())
                .and_then(|it| it.version);
            let write = plan.writes.iter_mut().find(|it| is_of_status(it));
            if let Some(write) = write {
                write.resource_version = version.map(|it| it.to_string());
            }
        }
    }

    /// Plans the write of the pod's status and labels, both in one. The subresource of the status changes the labels of a pod, too
    /// (`podStatusStrategy` in `pkg/registry/core/pod/strategy.go`), so that no right to change the pod itself is needed.
    fn write_status(&self, local: &Pod, patch: Value, plan: &mut Plan<Key>) {
        let planned = plan.writes.iter_mut().filter(|it| is_of_status(it));
        let mut planned = planned.filter_map(|it| {
            let Action::Merge(Value::Object(planned)) = &mut it.action else {
                return None;
            };
            Some(planned)
        });
        if let (Some(planned), Some(patch)) = (planned.next(), patch.as_object()) {
            planned.extend(patch.clone());
            return;
        }
        let mut write = Write::new(self.local_ref(), Action::Merge(patch)).subresource("status");
        write.uid.clone_from(&local.metadata.uid);
        plan.writes.push(write);
    }

    /// Plans the status of a pod without a remote pod, and why there is none, until there is one. A pod that has not started waits.
    pub(super) fn set_absent(
        &self,
        local: &Pod,
        (remote, cause): (Option<&Pod>, Option<&str>),
        env: &Env<'_>,
        plan: &mut Plan<Key>,
    ) {
        if remote.is_some() || has_ended(local) {
            return;
        }
        if has_started(local) {
            // The cache may only lack it, for instance after a take-over.
            let remote = self.remote_key().filter(|_| !self.is_gone);
            if let Some(remote) = remote.filter(|_| !status::is_lost(local)) {
                let cluster = Cluster::remote(&self.settings.provider);
                plan.reads.push(Ref::of::<Pod>(&cluster, &remote));
                return;
            }
            let status = status::lost(local, cause, env.now);
            self.set_status(local, &status, plan);
        } else if let Some(cause) = cause {
            let status = status::waiting(local, cause, env.now);
            self.set_status(local, &status, plan);
        }
    }

    /// Plans the deletion of a ShadowPod, or to read its pod if the cache may only lack it.
    fn delete_shadow(&self, key: &Key, shadow: Option<&KeptShadowPod>, plan: &mut Plan<Key>) {
        let shadow = shadow.filter(|it| {
            self.settings.is_own(&it.metadata) && it.metadata.deletion_timestamp.is_none()
        });
        let Some((shadow, uid)) = shadow.and_then(|it| Some((it, it.metadata.uid.as_deref()?)))
        else {
            return;
        };
        let local = self.cache.local::<Pod>(self.key);
        let local = local.filter(|it| self.settings.is_of_node(it));
        match is_deletable(shadow, local, self.absence) {
            true => plan.delete(self.shadow_ref(key), uid),
            false => plan.reads.push(self.local_ref()),
        }
    }

    /// Plans the end of a pod that has terminated at the provider, as a kubelet does.
    pub(super) fn end(&self, local: &Pod, plan: &mut Plan<Key>) {
        let mut write = Write::new(self.local_ref(), Action::Delete);
        write.uid.clone_from(&local.metadata.uid);
        write.is_immediate = true;
        plan.writes.push(write);
    }

    fn context<'b>(
        &'b self,
        namespace: &'b str,
        patch: &'b OffloadingPatch,
        addresses: &'b [IpAddr],
    ) -> forge::Context<'b> {
        let settings = self.settings;
        let api_server = match &settings.home_api_server {
            Some((host, port)) => HomeApiServer::Fixed { host, port: *port },
            None => HomeApiServer::Alias {
                port: settings.service_port,
                addresses,
            },
        };
        forge::Context {
            origin: &settings.home,
            destination: &settings.provider,
            creator: self.user,
            node_name: &settings.node,
            namespace,
            patch,
            api_server_support: settings.api_server_support,
            api_server,
            repatriation: offloading::repatriation(self.cache, &self.key.namespace),
            applies_changes: false,
        }
    }

    /// Returns whether the status of the remote pod may be outdated: by the Node, or by the label that a controller manager of
    /// upstream's sets.
    fn is_unavailable(&self, pod: &Pod) -> bool {
        self.is_unavailable || is_marked_unavailable(pod)
    }

    /// Returns the CIDRs in which this cluster or another peer has addresses, if networking with the provider is off.
    pub(super) fn reserved(&self) -> Vec<Ipv4Net> {
        self.virtual_node().map(reserved).unwrap_or_default()
    }

    fn virtual_node(&self) -> Option<&'a VirtualNode> {
        self.cache.local(&self.settings.virtual_node())
    }

    fn remote_key(&self) -> Option<Key> {
        let namespace = self.namespaces.remote(&self.key.namespace)?;
        Some(Key::new(namespace, &*self.key.name))
    }

    pub(super) fn local_ref(&self) -> Ref {
        Ref::of::<Pod>(&Cluster::Local, self.key)
    }

    fn shadow_ref(&self, key: &Key) -> Ref {
        Ref::of::<ShadowPod>(&Cluster::remote(&self.settings.provider), key)
    }

    pub(super) fn failed_reflection(&self, note: &str) -> Event {
        self.warning("FailedReflection", note.to_owned())
    }

    /// Returns an Event about the pod.
    pub(super) fn warning(&self, reason: &'static str, note: String) -> Event {
        Event {
            object: self.local_ref(),
            is_warning: true,
            reason,
            note,
            is_repeated: false,
        }
    }

    /// Returns a pod of the Node that has neither ended nor is to end, and its remote pod, while the status of the latter is
    /// current.
    pub(super) fn running(&self) -> Option<(&'a Pod, &'a Pod)> {
        let local = self.live().filter(|it| !self.is_unavailable(it))?;
        let provider = Cluster::remote(&self.settings.provider);
        let remote = self
            .cache
            .objects::<Pod>(&provider)
            .get(&self.remote_key()?);
        let remote = remote.filter(|it| self.settings.is_own(&it.metadata));

        Some((local, remote.filter(is_live)?))
    }

    /// Returns a pod of the Node that has neither ended nor is to end.
    fn live(&self) -> Option<&'a Pod> {
        let local = self.cache.local::<Pod>(self.key).filter(is_live);
        local.filter(|it| self.settings.is_of_node(it))
    }

    /// Returns why the provider has not created the pod of the ShadowPod.
    fn failed_creation(&self, shadow: &KeptShadowPod) -> Option<&'a str> {
        if !self.settings.reflects_events {
            return None;
        }
        let uid = shadow.metadata.uid.as_deref();
        event::failed_creation(
            self.cache,
            &self.settings.provider,
            &self.remote_key()?,
            uid,
        )
    }
}

/// Returns whether a write is of the status of a pod of this cluster.
pub(super) fn is_of_status(write: &Write) -> bool {
    write.subresource == Some("status") && write.object.resource == Resource::of::<Pod>()
}

/// Returns whether a pod has neither ended nor is to end.
pub(super) fn is_live(pod: &&Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && !has_ended(pod)
}

/// Returns whether a container of a pod has been started.
pub(super) fn has_started(pod: &Pod) -> bool {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|it| it.container_statuses.as_ref());
    statuses.is_some_and(|it| !it.is_empty())
}

/// Returns whether a pod has failed because its namespace was withdrawn.
fn is_aborted(pod: &Pod) -> bool {
    let reason = pod.status.as_ref().and_then(|it| it.reason.as_deref());
    has_ended(pod) && reason == Some(status::OFFLOADING_ABORTED)
}

/// Returns whether a controller manager of upstream's has found that the Node of a pod is not ready, so that the ShadowPod must not
/// be changed.
fn is_marked_unavailable(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels
        .and_then(|it| it.get(labels::REMOTE_UNAVAILABLE))
        .is_some_and(|it| it == "true")
}
