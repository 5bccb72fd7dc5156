//! Connects the planners of authentication to the runtime.

use super::certificate::FirstSeen;
use super::item::WorkItem;
use super::objects::{AUTHENTICATION_KEYS, BY_PEER, Local, label, secret_of, users};
use super::parameters::{ApiServerSettings, address_of};
use super::registrations::{registrations, secrets};
use super::{identity, key, nonce, tenant};
use crate::network::{TENANT_ROLE, bound_namespaces};
use control_api::{Identity, Tenant, labels};
use control_credentials::KeyType;
use control_runtime::{
    Cache, Change, Controller, Env, Key, Plan, Queue, Registration, WatchChange, WatchId,
};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
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
}

/// Plans the key of this cluster, nonces, Tenants and Identities.
pub(crate) struct AuthenticationController {
    settings: Settings,
    /// Name of this process as a user of the API server.
    user: String,
    /// Namespaces whose Secrets are watched, and whether they are listed.
    watched: BTreeMap<String, bool>,
    first_seen: FirstSeen,
}

impl AuthenticationController {
    /// Creates the controller of a process that is `user` for the API server.
    pub(crate) fn new(settings: Settings, user: String) -> Self {
        Self {
            settings,
            user,
            watched: BTreeMap::new(),
            first_seen: FirstSeen::new(),
        }
    }

    /// Adds and removes the watches of Secrets, so that they follow the rights of the manager.
    fn plan_watches(&mut self, cache: &Cache) -> Plan<WorkItem> {
        let settings = &self.settings;
        let bound = bound_namespaces(cache, &settings.namespace, &settings.tenant_namespaces);
        let mut plan = Plan::default();
        self.watched.retain(|namespace, _| {
            let is_bound = bound.contains(namespace);
            if !is_bound {
                plan.watches.push(WatchChange::Remove(secrets(namespace)));
            }
            is_bound
        });
        for namespace in bound {
            self.watched
                .entry(namespace)
                .or_insert_with_key(|namespace| {
                    plan.watches.push(WatchChange::Add(secrets(namespace)));
                    false
                });
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
        let local = Local::new(cache, &self.settings.namespace);
        Vec::from_iter(items_of(&local, change))
    }

    fn started(&mut self, _cache: &Cache) -> Vec<WorkItem> {
        vec![WorkItem::ClusterKey, WorkItem::SecretWatches]
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<WorkItem> {
        let namespace = id.namespace.as_deref().unwrap_or_default();
        match self.watched.get_mut(namespace) {
            Some(is_listed) if *id == secrets(namespace) => *is_listed = true,
            Some(_) | None => return Vec::new(),
        }
        let local = Local::new(cache, &self.settings.namespace);
        Vec::from_iter(items_within(&local, namespace))
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        // Before the Secrets are listed, it is not known which of them exist.
        let is_listed = |key: &Key| self.watched.get(&key.namespace) == Some(&true);
        if item.key().is_some_and(|key| !is_listed(key)) {
            return Plan::default();
        }
        if *item == WorkItem::SecretWatches {
            return self.plan_watches(cache);
        }
        let settings = &self.settings;
        let local = Local::new(cache, &settings.namespace);
        match item {
            WorkItem::ClusterKey => key::plan(&local, settings.key_type, env),
            WorkItem::SecretWatches => Plan::default(),
            WorkItem::Nonce(key) => nonce::plan_nonce(&local, key, settings.nonce_ttl, env),
            WorkItem::SignedNonce(key) => nonce::plan_signed_nonce(&local, key, env),
            WorkItem::Tenant(key) => {
                let issuer = tenant::Issuer {
                    user: &self.user,
                    api_server: &settings.api_server,
                    first_seen: &mut self.first_seen,
                };
                tenant::plan(&local, issuer, key, env)
            }
            WorkItem::Identity(key) => identity::plan(&local, key),
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

/// Returns the work items that a change concerns.
fn items_of(local: &Local<'_>, change: &Change<'_>) -> BTreeSet<WorkItem> {
    let key = &change.object.key;
    let states = |of: fn(&Change<'_>) -> [Vec<String>; 2]| BTreeSet::from_iter(of(change).concat());
    if change.is::<Tenant>() {
        let peers = states(|change| both(change, peers_of_tenant));
        let mut items = tenants_of(local, &peers);
        items.extend(items_within(local, &key.namespace));
        items.insert(WorkItem::Tenant(key.clone()));
        items
    } else if change.is::<Identity>() {
        let mut items = items_within(local, &key.namespace);
        items.insert(WorkItem::Identity(key.clone()));
        items
    } else if change.is::<Secret>() && key.namespace == local.namespace {
        let mut items = BTreeSet::from([WorkItem::ClusterKey]);
        if key.name == AUTHENTICATION_KEYS {
            let namespaces = local.namespaces.iter().map(|(key, _)| &key.name);
            items.extend(namespaces.flat_map(|name| items_within(local, name)));
        }
        items
    } else if change.is::<Secret>() || change.is::<Namespace>() {
        let namespace = if change.is::<Secret>() {
            &key.namespace
        } else {
            &key.name
        };
        let mut items = items_within(local, namespace);
        if change.is::<Namespace>() {
            items.insert(WorkItem::SecretWatches);
        }
        items
    } else if change.is::<CertificateSigningRequest>() {
        let namespaces = states(|change| both(change, namespaces_of_request));
        namespaces
            .iter()
            .flat_map(|name| tenants_within(local, name))
            .collect()
    } else if change.is::<RoleBinding>() {
        let peers = states(|change| {
            both(change, |it: &RoleBinding| {
                users_and_peer(&it.metadata, it.subjects.as_deref())
            })
        });
        let mut items = tenants_of(local, &peers);
        if key.name == TENANT_ROLE {
            items.insert(WorkItem::SecretWatches);
        }
        items
    } else if change.is::<ClusterRoleBinding>() {
        let peers = states(|change| {
            both(change, |it: &ClusterRoleBinding| {
                users_and_peer(&it.metadata, it.subjects.as_deref())
            })
        });
        tenants_of(local, &peers)
    } else if change.is::<Node>() {
        let address = |node: Option<&Node>| node.and_then(address_of).map(str::to_owned);
        let is_same = address(change.before()) == address(change.after());
        if is_same {
            BTreeSet::new()
        } else {
            all_tenants(local)
        }
    } else if change.is::<ConfigMap>() {
        all_tenants(local)
    } else {
        BTreeSet::new()
    }
}

/// Returns values of an object before and after a change.
fn both<T: Any + Send + Sync>(
    change: &Change<'_>,
    values: fn(&T) -> Vec<String>,
) -> [Vec<String>; 2] {
    [change.before::<T>(), change.after::<T>()].map(|it| it.map(values).unwrap_or_default())
}

fn peers_of_tenant(tenant: &Tenant) -> Vec<String> {
    tenant.spec.cluster_id.iter().cloned().collect()
}

fn namespaces_of_request(request: &CertificateSigningRequest) -> Vec<String> {
    let secret = secret_of(request).and_then(|secret| secret.split_once('/'));
    secret
        .into_iter()
        .map(|(namespace, _)| namespace.to_owned())
        .collect()
}

fn users_and_peer(metadata: &ObjectMeta, subjects: Option<&[Subject]>) -> Vec<String> {
    let mut names = users(subjects);
    names.extend(label(metadata, labels::REMOTE_CLUSTER_ID).map(str::to_owned));
    names
}

fn tenants_of(local: &Local<'_>, peers: &BTreeSet<String>) -> BTreeSet<WorkItem> {
    let tenants = peers
        .iter()
        .flat_map(|peer| local.tenants.indexed(BY_PEER, peer));
    tenants
        .map(|(key, _)| WorkItem::Tenant(key.clone()))
        .collect()
}

fn tenants_within(local: &Local<'_>, namespace: &str) -> BTreeSet<WorkItem> {
    let tenants = local.tenants.within(namespace);
    tenants
        .map(|(key, _)| WorkItem::Tenant(key.clone()))
        .collect()
}

fn all_tenants(local: &Local<'_>) -> BTreeSet<WorkItem> {
    let tenants = local.tenants.iter();
    tenants
        .map(|(key, _)| WorkItem::Tenant(key.clone()))
        .collect()
}

/// Returns the work items of a namespace. A tenant namespace has few objects.
fn items_within(local: &Local<'_>, namespace: &str) -> BTreeSet<WorkItem> {
    let mut items = tenants_within(local, namespace);
    let identities = local.identities.within(namespace);
    items.extend(identities.map(|(key, _)| WorkItem::Identity(key.clone())));
    for (key, secret) in local.secrets.within(namespace) {
        if label(&secret.metadata, labels::NONCE) == Some("true") {
            items.insert(WorkItem::Nonce(key.clone()));
        }
        if label(&secret.metadata, labels::SIGNED_NONCE) == Some("true") {
            items.insert(WorkItem::SignedNonce(key.clone()));
        }
    }

    items
}
