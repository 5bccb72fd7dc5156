//! The work items that a change concerns.

use super::certificate::SECRET_PREFIX;
use super::csr::secret_of;
use super::identity::PEERING_USER_ROLE;
use super::item::WorkItem;
use super::objects::{
    AUTHENTICATION_KEYS, BY_NAME, BY_PEER, BY_USER, Local, label, user_of_slice, users,
};
use super::parameters::address_of;
use super::slice::is_replica;
use crate::network::TENANT_ROLE;
use control_api::authentication::tenant_policy;
use control_api::{Identity, NamespaceMap, Renew, ResourceSlice, Tenant, TenantPolicy, labels};
use control_runtime::{Change, Key};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, Subject};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::any::Any;
use std::collections::BTreeSet;

/// Returns the work items that a change concerns.
pub(super) fn items_of(local: &Local<'_>, change: &Change<'_>) -> BTreeSet<WorkItem> {
    let key = &change.object.key;
    if change.is::<Tenant>() {
        let peers = both(change, |it: &Tenant| {
            it.spec.cluster_id.iter().cloned().collect()
        });
        let mut items = tenants_of(local, &peers);
        items.extend(slices_of(local, &peers));
        items.extend(items_within(local, &key.namespace));
        let of_name = local.tenants.indexed(BY_NAME, &key.name);
        items.extend(of_name.map(|(key, _)| WorkItem::Tenant(key.clone())));
        items.insert(WorkItem::Tenant(key.clone()));
        items
    } else if change.is::<Identity>() {
        let mut items = signed_nonces(local, &key.namespace);
        items.extend(owning_slice(key));
        items.insert(WorkItem::Identity(key.clone()));
        items
    } else if change.is::<ResourceSlice>() {
        let users = both(change, user_of_slice);
        let mut items = tenants_of(local, &users);
        items.extend(slices_of(local, &users));
        items.extend(tenants_within(local, &key.namespace));
        items.insert(WorkItem::ResourceSlice(key.clone()));
        items
    } else if change.is::<Renew>() {
        let mut items = tenants_within(local, &key.namespace);
        items.extend([
            WorkItem::Identity(key.clone()),
            WorkItem::Renew(key.clone()),
        ]);
        items
    } else if change.is::<NamespaceMap>() {
        tenants_within(local, &key.namespace)
    } else if change.is::<Secret>() {
        items_of_secret(local, change)
    } else if change.is::<Namespace>() {
        let mut items = items_within(local, &key.name);
        items.insert(WorkItem::SecretWatch(key.name.clone()));
        items
    } else if change.is::<CertificateSigningRequest>() {
        let secrets = both(change, |it: &CertificateSigningRequest| {
            secret_of(it).into_iter().map(str::to_owned).collect()
        });
        let secrets = secrets.iter().filter_map(|secret| secret.split_once('/'));
        secrets
            .flat_map(|(namespace, name)| items_of_certificate(local, namespace, name))
            .collect()
    } else {
        items_of_cluster(local, change)
    }
}

/// Returns the work items that a change of an object without peer concerns.
fn items_of_cluster(local: &Local<'_>, change: &Change<'_>) -> BTreeSet<WorkItem> {
    if change.is::<TenantPolicy>() {
        return items_of_policy(local, &change.object.key.name);
    }
    if change.is::<RoleBinding>() {
        let peers = both(change, |it: &RoleBinding| {
            users_and_peer(&it.metadata, it.subjects.as_deref())
        });
        let mut items = tenants_of(local, &peers);
        items.extend(slices_of(local, &peers));
        if change.object.key.name == TENANT_ROLE {
            items.insert(WorkItem::SecretWatch(change.object.key.namespace.clone()));
        }
        let roles = both(change, |it: &RoleBinding| vec![it.role_ref.name.clone()]);
        if roles.contains(PEERING_USER_ROLE) {
            let identities = local.identities.within(&change.object.key.namespace);
            items.extend(identities.map(|(key, _)| WorkItem::Identity(key.clone())));
        }
        items
    } else if change.is::<ClusterRoleBinding>() {
        let peers = both(change, |it: &ClusterRoleBinding| {
            users_and_peer(&it.metadata, it.subjects.as_deref())
        });
        let mut items = tenants_of(local, &peers);
        items.extend(slices_of(local, &peers));
        items
    } else if change.is::<Node>() {
        let address = |node: Option<&Node>| node.and_then(address_of).map(str::to_owned);
        let is_same = address(change.before()) == address(change.after());
        if is_same { BTreeSet::new() } else { all(local) }
    } else if change.is::<ConfigMap>() {
        // The cluster ID, or the certificate authority.
        let namespaces = local.namespaces.iter().map(|(key, _)| &key.name);
        namespaces
            .flat_map(|name| items_within(local, name))
            .collect()
    } else if change.is::<StorageClass>() {
        all(local)
    } else {
        BTreeSet::new()
    }
}

/// Returns the ResourceSlices that a TenantPolicy is about.
fn items_of_policy(local: &Local<'_>, name: &str) -> BTreeSet<WorkItem> {
    let slices: Vec<_> = if name == tenant_policy::DEFAULT {
        local.slices.iter().collect()
    } else {
        let tenants = local.tenants.indexed(BY_PEER, name);
        tenants
            .flat_map(|(key, _)| local.slices.within(&key.namespace))
            .collect()
    };
    let replicas = slices
        .into_iter()
        .filter(|(_, slice)| is_replica(&slice.metadata));

    replicas
        .map(|(key, _)| WorkItem::ResourceSlice(key.clone()))
        .collect()
}

fn items_of_secret(local: &Local<'_>, change: &Change<'_>) -> BTreeSet<WorkItem> {
    let key = &change.object.key;
    if key.namespace == local.namespace {
        let mut items = BTreeSet::from([WorkItem::ClusterKey]);
        if key.name == AUTHENTICATION_KEYS {
            let namespaces = local.namespaces.iter().map(|(key, _)| &key.name);
            items.extend(namespaces.flat_map(|name| items_within(local, name)));
        }
        return items;
    }
    let mut items = items_of_certificate(local, &key.namespace, &key.name);
    if let Some(identity) = key.name.strip_prefix("kubeconfig-") {
        items.insert(WorkItem::Identity(Key::new(
            key.namespace.clone(),
            identity,
        )));
    }
    items.extend(
        change
            .after::<Secret>()
            .and_then(|secret| nonce(key, secret)),
    );

    items
}

/// Returns the work items of a Secret with a certificate.
fn items_of_certificate(local: &Local<'_>, namespace: &str, secret: &str) -> BTreeSet<WorkItem> {
    let mut items = tenants_within(local, namespace);
    let rest = secret.strip_prefix(SECRET_PREFIX);
    if let Some(slice) = rest.and_then(|rest| rest.strip_prefix('-')) {
        items.insert(WorkItem::ResourceSlice(Key::new(namespace, slice)));
    }

    items
}

/// Returns the ResourceSlice whose credentials an Identity keeps.
fn owning_slice(identity: &Key) -> Option<WorkItem> {
    let slice = identity.name.strip_prefix("resourceslice-")?;
    Some(WorkItem::ResourceSlice(Key::new(
        identity.namespace.clone(),
        slice,
    )))
}

/// Returns values of an object before and after a change.
fn both<T: Any + Send + Sync>(
    change: &Change<'_>,
    values: fn(&T) -> Vec<String>,
) -> BTreeSet<String> {
    let states = [change.before::<T>(), change.after::<T>()];
    states.into_iter().flatten().flat_map(values).collect()
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

/// Returns the ResourceSlices of consumers whose certificates name these users.
fn slices_of(local: &Local<'_>, users: &BTreeSet<String>) -> BTreeSet<WorkItem> {
    let slices = users
        .iter()
        .flat_map(|user| local.slices.indexed(BY_USER, user));
    slices
        .map(|(key, _)| WorkItem::ResourceSlice(key.clone()))
        .collect()
}

fn tenants_within(local: &Local<'_>, namespace: &str) -> BTreeSet<WorkItem> {
    let tenants = local.tenants.within(namespace);
    tenants
        .map(|(key, _)| WorkItem::Tenant(key.clone()))
        .collect()
}

/// Returns the Tenants and ResourceSlices of all consumers.
fn all(local: &Local<'_>) -> BTreeSet<WorkItem> {
    let tenants = local.tenants.iter();
    let mut items: BTreeSet<_> = tenants
        .map(|(key, _)| WorkItem::Tenant(key.clone()))
        .collect();
    let slices = local
        .slices
        .iter()
        .filter(|(_, slice)| is_replica(&slice.metadata));
    items.extend(slices.map(|(key, _)| WorkItem::ResourceSlice(key.clone())));

    items
}

/// Returns the work items of a namespace. A tenant namespace has few objects.
pub(super) fn items_within(local: &Local<'_>, namespace: &str) -> BTreeSet<WorkItem> {
    let mut items = tenants_within(local, namespace);
    let identities = local.identities.within(namespace);
    items.extend(identities.map(|(key, _)| WorkItem::Identity(key.clone())));
    let slices = local.slices.within(namespace);
    items.extend(slices.map(|(key, _)| WorkItem::ResourceSlice(key.clone())));
    let renews = local.renews.within(namespace);
    items.extend(renews.map(|(key, _)| WorkItem::Renew(key.clone())));
    let secrets = local.secrets.within(namespace);
    items.extend(secrets.filter_map(|(key, secret)| nonce(key, secret)));

    items
}

fn signed_nonces(local: &Local<'_>, namespace: &str) -> BTreeSet<WorkItem> {
    let secrets = local.secrets.within(namespace);
    let items = secrets.filter_map(|(key, secret)| nonce(key, secret));
    items
        .filter(|item| matches!(item, WorkItem::SignedNonce(_)))
        .collect()
}

/// Returns the work item of a Secret with a nonce.
fn nonce(key: &Key, secret: &Secret) -> Option<WorkItem> {
    let has = |name| label(&secret.metadata, name) == Some("true");
    if has(labels::NONCE) {
        Some(WorkItem::Nonce(key.clone()))
    } else if has(labels::SIGNED_NONCE) {
        Some(WorkItem::SignedNonce(key.clone()))
    } else {
        None
    }
}
