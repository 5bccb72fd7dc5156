//! The rights of a consumer in this cluster: a RoleBinding in its tenant namespace, and a ClusterRoleBinding.
//!
//! The manager binds two ClusterRoles of the chart by the verb `bind`, and does not hold their rights. The chart's
//! ValidatingAdmissionPolicy limits namespaces and subjects.

use super::controller_reference;
use super::objects::{BY_SUBJECT, Local, label, users};
use control_api::{Tenant, labels};
use control_runtime::{Action, Cluster, Key, Ref, Write};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// ClusterRole of a consumer's control plane in its tenant namespace.
pub(super) const CONTROL_PLANE_ROLE: &str = "liqo-remote-controlplane";

/// ClusterRole of a consumer's virtual kubelets in its namespaces. The RoleBindings are named as the tenant namespace.
pub(crate) const REMOTE_ROLE: &str = "liqo-virtual-kubelet-remote";

/// ClusterRole of the virtual kubelets of a consumer in the whole cluster.
const CLUSTER_WIDE_ROLE: &str = "liqo-virtual-kubelet-remote-clusterwide";

/// Prefix of the names of bindings, before the name of the role.
pub(super) const BINDING_PREFIX: &str = "liqo-binding-";

/// Value of [`labels::APP_MANAGED_BY`] on the bindings.
const MANAGED_BY: &str = "liqo";

/// Plans the bindings of a Tenant. Users create the RoleBinding of a Tenant without key exchange (`is_tolerated`).
pub(super) fn plan(
    local: &Local<'_>,
    (tenant_key, tenant): (&Key, &Tenant),
    peer: &str,
    is_tolerated: bool,
) -> Vec<Write> {
    let mut writes = Vec::new();
    if !is_tolerated {
        let key = role_binding_key(&tenant_key.namespace);
        let desired = Desired {
            subject: ("User", peer),
            role: CONTROL_PLANE_ROLE,
        };
        let present = local.role_bindings.get(&key);
        let present = present.map(|it| (&it.metadata, &it.role_ref, it.subjects.as_deref()));
        let object = Ref::of::<RoleBinding>(&Cluster::Local, &key);
        writes.extend(desired.change(object, present, Some(controller_reference(tenant))));
    }
    let key = cluster_role_binding_key(peer);
    let desired = Desired {
        subject: ("Group", peer),
        role: CLUSTER_WIDE_ROLE,
    };
    let present = local.cluster_role_bindings.get(&key);
    let present = present.map(|it| (&it.metadata, &it.role_ref, it.subjects.as_deref()));
    let object = Ref::of::<ClusterRoleBinding>(&Cluster::Local, &key);
    writes.extend(desired.change(object, present, None));

    writes
}

/// Returns the deletions of the bindings of a consumer.
pub(super) fn leftovers(local: &Local<'_>, tenant_key: &Key, peer: &str) -> Vec<Write> {
    let key = role_binding_key(&tenant_key.namespace);
    let present = local.role_bindings.get(&key);
    let object = Ref::of::<RoleBinding>(&Cluster::Local, &key);
    let of_namespace = present.map(|present| delete(object, &present.metadata));
    let key = cluster_role_binding_key(peer);
    let present = local.cluster_role_bindings.get(&key);
    let object = Ref::of::<ClusterRoleBinding>(&Cluster::Local, &key);
    let of_cluster = present.map(|present| delete(object, &present.metadata));

    of_namespace.into_iter().chain(of_cluster).collect()
}

/// Checks that no binding of another owner gives rights to the user or the group of a consumer's certificates, because
/// the consumer has chosen its cluster ID.
///
/// # Errors
///
/// Returns the reason of the refusal and its message.
pub(super) fn check_cluster_id(
    local: &Local<'_>,
    namespace: &str,
    peer: &str,
) -> Result<(), (&'static str, String)> {
    let is_labelled = |metadata: &ObjectMeta| {
        label(metadata, labels::APP_MANAGED_BY) == Some(MANAGED_BY)
            && label(metadata, labels::REMOTE_CLUSTER_ID) == Some(peer)
    };
    // Each namespace of the consumer has a RoleBinding of this name. Others there bind further kinds of objects: that of the
    // manager, and those of administrators.
    let is_of_consumer = |namespace_of: &str| {
        let binding = local.role_bindings.get(&Key::new(namespace_of, namespace));
        binding.is_some_and(|it| is_labelled(&it.metadata) && binds(&it.role_ref, REMOTE_ROLE))
    };
    // A RoleBinding that a user has created for a Tenant without key exchange gives no other rights.
    let ours = [role_binding_key(namespace), cluster_role_binding_key(peer)];
    let is_expected = |metadata: &ObjectMeta, role: &RoleRef| {
        let name = metadata.name.as_deref().unwrap_or_default();
        let namespace_of = metadata.namespace.as_deref().unwrap_or_default();
        let is_named = |key: &Key| *key.name == *name && *key.namespace == *namespace_of;
        // One of our names that binds another role is replaced.
        is_labelled(metadata) && ours.iter().any(is_named)
            || namespace_of == namespace && binds(role, CONTROL_PLANE_ROLE)
            || is_of_consumer(namespace_of)
    };
    let Some(binding) = binding_of(local, peer, is_expected) else {
        return Ok(());
    };
    let message = format!(
        "spec.clusterID: {binding} gives rights to the user or group `{peer}`, which the certificates of this consumer \
         would have: the consumer needs another cluster ID"
    );

    Err(("ClusterIDInUse", message))
}

fn binds(role: &RoleRef, name: &str) -> bool {
    role.kind == "ClusterRole" && role.name == name
}

/// Checks that no binding gives rights to the user of a ResourceSlice's certificate, because the consumer has chosen its
/// name.
///
/// # Errors
///
/// Returns the reason of the refusal and its message.
pub(super) fn check_slice_user(
    local: &Local<'_>,
    user: &str,
) -> Result<(), (&'static str, String)> {
    let Some(binding) = binding_of(local, user, |_, _| false) else {
        return Ok(());
    };
    let message = format!(
        "metadata.name: {binding} gives rights to the user or group `{user}`, which the certificate of this \
         ResourceSlice would have: use another name"
    );

    Err(("UserInUse", message))
}

/// Returns a binding that gives rights to a user or group and is not expected, with its kind.
fn binding_of(
    local: &Local<'_>,
    user: &str,
    is_expected: impl Fn(&ObjectMeta, &RoleRef) -> bool,
) -> Option<String> {
    let mut of_namespaces = local.role_bindings.indexed(BY_SUBJECT, user);
    if let Some((key, _)) = of_namespaces.find(|(_, it)| !is_expected(&it.metadata, &it.role_ref)) {
        return Some(format!("RoleBinding {key}"));
    }
    let mut of_clusters = local.cluster_role_bindings.indexed(BY_SUBJECT, user);
    let (key, _) = of_clusters.find(|(_, it)| !is_expected(&it.metadata, &it.role_ref))?;

    Some(format!("ClusterRoleBinding {key}"))
}

/// Returns the users and groups of a RoleBinding.
pub(super) fn users_of_role_binding(binding: &RoleBinding) -> Vec<String> {
    users(binding.subjects.as_deref())
}

/// Returns the users and groups of a ClusterRoleBinding.
pub(super) fn users_of_cluster_role_binding(binding: &ClusterRoleBinding) -> Vec<String> {
    users(binding.subjects.as_deref())
}

/// The subject and the role that a binding must have.
struct Desired<'a> {
    /// Kind and name.
    subject: (&'static str, &'a str),
    role: &'static str,
}

impl Desired<'_> {
    /// Returns the change of a binding. Its role is immutable, so a wrong one is deleted, and created again when its
    /// deletion is observed.
    fn change(
        &self,
        object: Ref,
        present: Option<(&ObjectMeta, &RoleRef, Option<&[Subject]>)>,
        owner: Option<Value>,
    ) -> Option<Write> {
        let Some((metadata, role, subjects)) = present else {
            let create = Action::Create(self.object(&object.key, owner));
            return Some(Write::new(object, create));
        };
        let (kind, name) = self.subject;
        let is_right = role.kind == "ClusterRole"
            && role.name == self.role
            && matches!(subjects, Some([subject]) if subject.kind == kind && subject.name == name);
        let is_left = is_right || metadata.deletion_timestamp.is_some();

        (!is_left).then(|| delete(object, metadata))
    }

    fn object(&self, key: &Key, owner: Option<Value>) -> Value {
        let (kind, name) = self.subject;
        let mut metadata = json!({
            "name": key.name,
            "labels": {
                labels::APP_MANAGED_BY: MANAGED_BY,
                labels::MANAGED: "true",
                labels::REMOTE_CLUSTER_ID: name,
            },
            "ownerReferences": Vec::from_iter(owner),
        });
        if !key.namespace.is_empty() {
            metadata["namespace"] = json!(key.namespace);
        }

        json!({
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self.role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}],
        })
    }
}

fn role_binding_key(namespace: &str) -> Key {
    Key::new(namespace, format!("{BINDING_PREFIX}{CONTROL_PLANE_ROLE}"))
}

fn cluster_role_binding_key(peer: &str) -> Key {
    Key::cluster(format!("{BINDING_PREFIX}{CLUSTER_WIDE_ROLE}-{peer}"))
}

fn delete(object: Ref, metadata: &ObjectMeta) -> Write {
    let mut write = Write::new(object, Action::Delete);
    write.uid.clone_from(&metadata.uid);

    write
}
