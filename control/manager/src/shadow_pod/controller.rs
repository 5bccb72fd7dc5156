//! Connects the plan of ShadowPods to the runtime.

use super::objects::{Local, User, has_ended};
use super::plan;
use super::registrations::registrations;
use super::settings::Settings;
use crate::webhook::creator_label;
use control_api::{Quota, ShadowPod, TenantPolicy};
use control_runtime::{Cache, Change, Controller, Env, Key, Plan, Queue, Registration};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use std::collections::BTreeSet;

/// Plans the pods of consumers.
pub(crate) struct ShadowPodController {
    settings: Settings,
}

impl ShadowPodController {
    /// Creates the controller.
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Controller for ShadowPodController {
    type Item = Key;
    const NAME: &'static str = "shadow_pod";
    const FIELD_MANAGER: &'static str = "shadow-pod";

    fn resources(&self) -> Vec<Registration> {
        registrations(&self.settings.namespace)
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<Key> {
        let local = Local::new(cache, &self.settings.namespace);
        Vec::from_iter(items_of(&local, change))
    }

    fn plan(&mut self, item: &Key, cache: &Cache, _env: &mut Env<'_>) -> Plan<Key> {
        let local = Local::new(cache, &self.settings.namespace);
        plan::plan(&local, &self.settings, item)
    }

    fn queue(item: &Key) -> Queue {
        Queue(item.namespace.clone())
    }
}

/// Returns the ShadowPods that a change concerns.
fn items_of(local: &Local<'_>, change: &Change<'_>) -> BTreeSet<Key> {
    let key = &change.object.key;
    if change.is::<ShadowPod>() {
        let mut items = BTreeSet::from([key.clone()]);
        let before = change.before::<ShadowPod>();
        let user = before
            .filter(|_| change.entry().is_none())
            .and_then(|it| local.user(it));
        items.extend(user.into_iter().flat_map(|user| waiting(local, &user)));
        items
    } else if change.is::<Pod>() {
        let mut items = BTreeSet::from([key.clone()]);
        let was_using = change.before::<Pod>().is_some_and(|it| !has_ended(it));
        let is_using = change.after::<Pod>().is_some_and(|it| !has_ended(it));
        if was_using && !is_using {
            let user = local.shadow_pods.get(key).and_then(|it| local.user(it));
            items.extend(user.into_iter().flat_map(|user| waiting(local, &user)));
        }
        items
    } else if change.is::<Quota>() {
        let states = [change.before::<Quota>(), change.after::<Quota>()];
        let creators: BTreeSet<_> = states
            .into_iter()
            .flatten()
            .map(|it| creator_label(&it.spec.user))
            .collect();
        let users = creators.iter().map(|creator| User {
            tenant: &key.namespace,
            creator,
        });
        users.flat_map(|user| waiting(local, &user)).collect()
    } else if change.is::<TenantPolicy>() {
        local
            .shadow_pods
            .iter()
            .map(|(key, _)| key)
            .filter(|key| local.pods.get(key).is_none())
            .cloned()
            .collect()
    } else if change.is::<Namespace>() {
        let of_namespace = local.shadow_pods.within(&key.name);
        of_namespace.map(|(key, _)| key.clone()).collect()
    } else {
        BTreeSet::new()
    }
}

/// Returns the ShadowPods of a user that have no Pod.
fn waiting(local: &Local<'_>, user: &User<'_>) -> Vec<Key> {
    let all = local.shadow_pods_of(user).into_iter().map(|(key, _)| key);

    all.filter(|key| local.pods.get(key).is_none())
        .cloned()
        .collect()
}
