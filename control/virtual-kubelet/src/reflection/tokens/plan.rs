//! Compares the Secrets with tokens with those that pods need.

use super::issued::Issued;
use super::item::TokenItem;
use super::registrations::secrets;
use super::settings::TokenSettings;
use crate::pod::forge::service_account;
use crate::pod::has_ended;
use crate::reflection::namespaces::{Namespaces, State};
use crate::reflection::summary::Summary;
use crate::reflection::token::{TokenSecret, TokenState, remote, until_refresh};
use control_runtime::{Action, Cache, Cluster, Event, Key, Plan, Ref, Write};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use serde_json::json;
use std::collections::BTreeSet;

/// Longest part of an API server's message that is published, in characters.
const MESSAGE_LEN_MAX: usize = 300;

/// Subresource of a ServiceAccount that issues tokens.
const TOKEN: &str = "token";

/// The objects of both clusters.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) cache: &'a Cache,
    pub(super) settings: &'a TokenSettings,
    pub(super) namespaces: &'a Namespaces,
}

impl View<'_> {
    /// Returns the state of a namespace of this cluster.
    fn is_accepted(&self, namespace: &str, remote: &str) -> bool {
        let map = self.settings.map();
        State::in_cache(self.cache, &map, namespace) == State::Accepted(remote)
    }

    /// Returns a pod that is bound to the Node.
    fn pod(&self, key: &Key) -> Option<&Pod> {
        let pod = self.cache.local::<Pod>(key);
        pod.filter(|it| self.settings.is_bound(it))
    }

    /// Returns a Secret with tokens of the Node's pods.
    fn secret(&self, key: &Key) -> Option<(&Summary<Secret>, &TokenState, &str)> {
        let secrets = self
            .cache
            .objects::<Summary<Secret>>(&self.settings.peering.cluster());
        let summary = secrets.get(key)?;
        let tokens = summary.tokens.as_deref()?;
        let is_ours =
            summary.is_reflected(&self.settings.peering) && tokens.node == self.settings.node;
        is_ours.then_some((summary, tokens, secrets.uid(key)?))
    }
}

/// Plans the Secret of a pod. `refused` is why it was not written. `abandoned` is the UID of a Secret of its name that
/// nothing else deletes.
pub(super) fn pod(
    view: &View<'_>,
    key: &Key,
    issued: &mut Issued,
    ((refused, abandoned), now): ((Option<String>, Option<String>), Timestamp),
) -> Plan<TokenItem> {
    let mut plan = Plan::default();
    let needed = view.pod(key).map(|pod| (pod, view.settings.secret_of(pod)));
    let needed = needed.filter(|(pod, desired)| !has_ended(pod) && !desired.tokens.is_empty());
    let (Some((pod, desired)), Some(remote)) = (needed, view.namespaces.remote(&key.namespace))
    else {
        issued.forget(key);
        return plan;
    };
    let is_listed = view.cache.is_synced(&secrets(view.settings, remote));
    if !is_listed || !view.is_accepted(&key.namespace, remote) {
        return plan;
    }
    if let Some(message) = refused {
        plan.events.push(failure(view.settings, key, message));
    }
    let target = Key::new(remote, &*desired.name);
    if let Some(uid) = abandoned {
        let object = Ref::of::<Secret>(&view.settings.peering.cluster(), &target);
        plan.delete(object, &uid);
        return plan;
    }
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let present = view.secret(&target);
    // A new one is created when it is gone.
    if present.is_some_and(|(summary, ..)| summary.is_terminating) {
        return plan;
    }
    if let Some((_, state, _)) = present.filter(|(_, it, _)| it.is_complete(pod, &desired)) {
        let expiration = state.expiration.unwrap_or(now);
        let rest = until_refresh(expiration, &desired, issued.granted(key), (uid, now));
        if !rest.is_zero() {
            let item = TokenItem::Pod(key.clone());
            plan.requeue.push((rest, item));
            return plan;
        }
    }
    let present = present.map(|(_, _, uid)| uid.to_owned());
    if !write(
        view,
        (pod, &desired),
        (target, present),
        (issued, now),
        &mut plan,
    ) {
        request(key, (pod, &desired), (issued, now), &mut plan);
    }

    plan
}

/// Adds the write of a Secret to a plan, if its tokens are issued. `present` is the UID of the existing one.
fn write(
    view: &View<'_>,
    (pod, desired): (&Pod, &TokenSecret),
    (target, present): (Key, Option<String>),
    (issued, now): (&mut Issued, Timestamp),
    plan: &mut Plan<TokenItem>,
) -> bool {
    let settings = view.settings;
    let key = control_runtime::key_of(&pod.metadata);
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let tokens = issued.valid((&key, uid), now);
    let Some(secret) = remote(pod, desired, tokens, (&settings.peering, &settings.node)) else {
        return false;
    };
    let object = Ref::of::<Secret>(&settings.peering.cluster(), &target);
    if let Some(uid) = present {
        plan.apply(object, json!(secret));
        // Another object of the name is not changed.
        if let Some(write) = plan.writes.last_mut() {
            write.uid = Some(uid);
        }
    } else {
        let create = Write::new(object, Action::Create(json!(secret)));
        plan.writes.push(create);
    }

    true
}

/// Adds the requests for the tokens that are missing.
fn request(
    key: &Key,
    (pod, desired): (&Pod, &TokenSecret),
    (issued, now): (&mut Issued, Timestamp),
    plan: &mut Plan<TokenItem>,
) {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let specs: BTreeSet<_> = desired.tokens.iter().map(|it| &it.token).collect();
    let is_first = issued.valid((key, uid), now).is_empty();
    if let Some(rest) = issued.wait((key, uid), now).filter(|_| is_first) {
        plan.requeue.push((rest, TokenItem::Pod(key.clone())));
        return;
    }
    issued.request((key, uid), now);
    let valid = issued.valid((key, uid), now);
    let account = Key::new(&*key.namespace, service_account(pod));
    let account = Ref::of::<ServiceAccount>(&Cluster::Local, &account);
    for spec in specs.into_iter().filter(|it| !valid.contains_key(it)) {
        let post = Action::Post(spec.request(pod));
        plan.writes
            .push(Write::new(account.clone(), post).subresource(TOKEN));
    }
}

/// Plans the deletion of a Secret that no pod needs.
pub(super) fn secret(view: &View<'_>, key: &Key) -> Plan<TokenItem> {
    let mut plan = Plan::default();
    let (Some((summary, tokens, uid)), Some(namespace)) =
        (view.secret(key), view.namespaces.local(&key.namespace))
    else {
        return plan;
    };
    let map = view.settings.map();
    let is_needed = match State::in_cache(view.cache, &map, namespace) {
        State::Accepted(_) => {
            let pod = tokens.pod_name.as_ref().map(|it| Key::new(namespace, it));
            let pod = pod.and_then(|it| view.pod(&it));
            let desired = pod.map(|it| view.settings.secret_of(it));
            desired.is_some_and(|it| it.name == key.name && !it.tokens.is_empty())
        }
        State::Withdrawn(_) => false,
        State::Suspended | State::Absent => true,
    };
    if !is_needed && !summary.is_terminating {
        let object = Ref::of::<Secret>(&view.settings.peering.cluster(), key);
        plan.delete(object, uid);
    }

    plan
}

fn failure(settings: &TokenSettings, pod: &Key, message: String) -> Event {
    let shown = message
        .chars()
        .map(|it| if it.is_control() { ' ' } else { it });
    Event {
        object: Ref::of::<Pod>(&Cluster::Local, pod),
        is_warning: true,
        reason: "FailedSATokensReflection",
        note: format!(
            "tokens are not reflected to cluster {}: {}",
            settings.peering.destination,
            shown.take(MESSAGE_LEN_MAX).collect::<String>()
        ),
        is_repeated: false,
    }
}
