//! Connects the planners of authentication to the runtime.

use super::certificate::FirstSeen;
use super::item::WorkItem;
use super::objects::Local;
use super::observe::{items_of, items_within};
use super::parameters::ApiServerSettings;
use super::registrations::{registrations, secrets};
use super::verdict::Grants;
use super::{identity, key, local_slice, nonce, renew, slice, tenant};
use crate::network::bound_namespaces;
use control_api::Tenant;
use control_credentials::KeyType;
use control_runtime::{
    Cache, Change, Cluster, Controller, Env, Key, Plan, Queue, Ref, Registration, WatchChange,
    WatchId,
};
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
    first_seen: FirstSeen,
}

impl AuthenticationController {
    /// Creates the controller of a process that is `user` for the API server.
    pub(crate) fn new(settings: Settings, user: String) -> Self {
        Self {
            settings,
            user,
            watched: BTreeSet::new(),
            first_seen: FirstSeen::new(),
        }
    }

    /// Adds and removes the watches of Secrets, so that they follow the rights of the manager.
    fn plan_watches(&mut self, cache: &Cache) -> Plan<WorkItem> {
        let settings = &self.settings;
        let bound = bound_namespaces(cache, &settings.namespace, &settings.tenant_namespaces);
        let mut plan = Plan::default();
        for namespace in self.watched.difference(&bound) {
            plan.watches.push(WatchChange::Remove(secrets(namespace)));
        }
        for namespace in bound.difference(&self.watched) {
            plan.watches.push(WatchChange::Add(secrets(namespace)));
        }
        self.watched = bound;

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
        let local = Local::new(cache, &self.settings.namespace);
        Vec::from_iter(items_of(&local, change))
    }

    fn started(&mut self, _cache: &Cache) -> Vec<WorkItem> {
        vec![WorkItem::ClusterKey, WorkItem::SecretWatches]
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
        // Before the Secrets are listed, it is not known which of them exist. The end of a Tenant does not wait for them:
        // the rights to read them may be gone before.
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
        if *item == WorkItem::SecretWatches {
            return self.plan_watches(cache);
        }
        let settings = &self.settings;
        let local = Local::new(cache, &settings.namespace);
        let issuer = tenant::Issuer {
            user: &self.user,
            api_server: &settings.api_server,
            first_seen: &mut self.first_seen,
        };
        match item {
            WorkItem::ClusterKey => key::plan(&local, settings.key_type, env),
            WorkItem::SecretWatches => Plan::default(),
            WorkItem::Nonce(key) => nonce::plan_nonce(&local, key, settings.nonce_ttl, env),
            WorkItem::SignedNonce(key) => {
                nonce::plan_signed_nonce(&local, key, settings.nonce_ttl, env)
            }
            WorkItem::Tenant(key) => tenant::plan(&local, issuer, key, env),
            WorkItem::Identity(key) => identity::plan(&local, key),
            WorkItem::ResourceSlice(key) => match local.slices.get(key) {
                Some(own) if !slice::is_replica(own) => local_slice::plan(&local, key, own),
                Some(_) => slice::plan(&local, issuer, &settings.grants, key, env),
                None => Plan::default(),
            },
            WorkItem::Renew(key) => renew::plan_replica(&local, key),
        }
    }

    /// The objects of a peer are in its tenant namespace.
    fn queue(item: &WorkItem) -> Queue {
        item.key()
            .map(|key| Queue(key.namespace.clone()))
            .unwrap_or_default()
    }

    fn item_kind(item: &WorkItem) -> &'static str {
        item.kind()
    }
}
