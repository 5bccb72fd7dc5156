//! Connects the planners of authentication to the runtime.

use super::budget::Budgets;
use super::item::WorkItem;
use super::objects::Local;
use super::observe::{items_of, items_within};
use super::parameters::ApiServerSettings;
use super::registrations::{registrations, secrets};
use super::seen::Seen;
use super::verdict::Grants;
use super::{identity, key, leftovers, local_slice, nonce, renew, slice, tenant};
use crate::network::is_bound;
use control_api::Tenant;
use control_credentials::KeyType;
use control_runtime::{
    Cache, Change, Cluster, Controller, Env, Key, Plan, Queue, Ref, Registration, WatchChange,
    WatchId,
};
use k8s_openapi::api::core::v1::Secret;
use std::collections::BTreeSet;
use std::time::Duration;

/// Values of the flags.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Namespace of Liqo itself.
    pub(crate) namespace: String,
    /// Namespaces that the settings allow as tenant namespaces of any peer.
    pub(crate) tenant_namespaces: Vec<String>,
    /// Type of the key of this cluster.
    pub(crate) key_type: KeyType,
    /// Lifetime of a nonce that no Tenant uses.
    pub(crate) nonce_ttl: Duration,
    pub(crate) api_server: ApiServerSettings,
    pub(crate) grants: Grants,
}

/// Plans the key of this cluster, nonces, Tenants and Identities.
pub(crate) struct AuthenticationController {
    settings: Settings,
    /// Name of this process as a user of the API server.
    user: String,
    /// Namespaces whose Secrets are watched.
    watched: BTreeSet<String>,
    seen: Seen,
    budgets: Budgets,
}

impl AuthenticationController {
    /// Creates the controller of a process that is `user` for the API server.
    pub(crate) fn new(settings: Settings, user: String) -> Self {
        Self {
            settings,
            user,
            watched: BTreeSet::new(),
            seen: Seen::default(),
            budgets: Budgets::default(),
        }
    }

    /// Adds or removes the watch of the Secrets of a namespace, so that it follows the rights of the manager.
    fn plan_watch(&mut self, namespace: &str, cache: &Cache) -> Plan<WorkItem> {
        let Settings {
            namespace: liqo,
            tenant_namespaces,
            ..
        } = &self.settings;
        let mut plan = Plan::default();
        if is_bound(cache, liqo, tenant_namespaces, namespace) {
            if self.watched.insert(namespace.to_owned()) {
                plan.watches.push(WatchChange::Add(secrets(namespace)));
            }
        } else if self.watched.remove(namespace) {
            plan.watches.push(WatchChange::Remove(secrets(namespace)));
        }

        plan
    }
}

impl Controller for AuthenticationController {
    type Item = WorkItem;
    const NAME: &'static str = "authentication";
    const FIELD_MANAGER: &'static str = "authentication.liqo.io";

    fn resources(&self) -> Vec<Registration> {
        registrations(&self.settings.namespace)
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        self.budgets.observe(change);
        if change.is::<Secret>() && change.entry().is_none() {
            self.seen.forget(&change.object.key);
        }
        let local = Local::new(cache, &self.settings.namespace);
        Vec::from_iter(items_of(&local, change))
    }

    fn started(&mut self, _cache: &Cache) -> Vec<WorkItem> {
        vec![WorkItem::ClusterKey]
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<WorkItem> {
        let namespace = id.namespace.as_deref().unwrap_or_default();
        if *id != secrets(namespace) {
            return Vec::new();
        }
        let local = Local::new(cache, &self.settings.namespace);
        Vec::from_iter(items_within(&local, namespace))
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        // Before the Secrets are listed, it is not known which of them exist. The end of a Tenant begins without them, and
        // ends without them if the rights to read them are gone.
        let is_listed = |key: &Key| cache.is_synced(&secrets(&key.namespace));
        let is_ending = |item: &WorkItem| {
            let WorkItem::Tenant(key) = item else {
                return false;
            };
            let entry = cache.entry(&Ref::of::<Tenant>(&Cluster::Local, key));
            entry.is_some_and(|entry| entry.deleted_at().is_some())
        };
        if item.key().is_some_and(|key| !is_listed(key)) && !is_ending(item) {
            return Plan::default();
        }
        if let WorkItem::SecretWatch(namespace) = item {
            return self.plan_watch(namespace, cache);
        }
        let settings = &self.settings;
        let local = Local::new(cache, &settings.namespace);
        let (liqo, allowed) = (&settings.namespace, &settings.tenant_namespaces);
        let is_readable = |key: &Key| is_bound(cache, liqo, allowed, &key.namespace);
        let issuer = tenant::Issuer {
            user: &self.user,
            api_server: &settings.api_server,
            seen: &mut self.seen,
            are_secrets_unknown: item
                .key()
                .is_some_and(|key| !is_listed(key) && is_readable(key)),
        };
        match item {
            WorkItem::ClusterKey => key::plan(&local, settings.key_type, env),
            WorkItem::SecretWatch(_) => Plan::default(),
            WorkItem::Nonce(key) => nonce::plan_nonce(&local, key, settings.nonce_ttl, env),
            WorkItem::SignedNonce(key) => nonce::plan_signed_nonce(&local, key, issuer.seen, env),
            WorkItem::Tenant(key) => tenant::plan(&local, issuer, key, env),
            WorkItem::Identity(key) => identity::plan(&local, key, env),
            WorkItem::ResourceSlice(key) => {
                let grants = &settings.grants;
                let mut others = Plan::default();
                self.budgets
                    .refresh(&local, &grants.defaults, &key.namespace, &mut others);
                let mut plan = match local.slices.get(key) {
                    Some(own) if !slice::is_replica(&own.metadata) => {
                        local_slice::plan(&local, key, own)
                    }
                    Some(_) => slice::plan(&local, issuer, (grants, &self.budgets), key, env),
                    None => {
                        let mut plan = Plan::default();
                        plan.writes.extend(leftovers::of_slice(&local, key));
                        plan
                    }
                };
                plan.requeue.extend(others.requeue);
                plan
            }
            WorkItem::Renew(key) => renew::plan_replica(&local, key),
        }
    }

    /// The objects of a peer are in its tenant namespace.
    fn queue(item: &WorkItem) -> Queue {
        match (item, item.key()) {
            (WorkItem::SecretWatch(namespace), _) => Queue(namespace.clone()),
            (_, Some(key)) => Queue(key.namespace.clone()),
            (_, None) => Queue::default(),
        }
    }

    fn item_kind(item: &WorkItem) -> &'static str {
        item.kind()
    }
}
