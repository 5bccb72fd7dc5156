//! The identity of a virtual kubelet and its rights in this cluster: a ServiceAccount, a ClusterRoleBinding, and the
//! RoleBindings of its tenant namespace, of the Leases of Nodes, and of the authorities of client certificates.
//!
//! The manager binds ClusterRoles of the chart by the verb `bind`, and does not hold their rights. The chart's
//! ValidatingAdmissionPolicy limits names, subjects and namespaces. The RoleBindings have one name each and all virtual
//! kubelets of the namespace as subjects, so that the manager's rights to change them are limited to these names.

use crate::authentication::label;
use crate::offloading::item::WorkItem;
use crate::offloading::objects::{Local, Refusal};
use crate::offloading::write::delete;
use control_api::labels;
use control_runtime::{Action, Cluster, Key, Plan, Ref, Write};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef, Subject};
use serde_json::{Value, json};

/// ClusterRole with the rights in the whole cluster.
const CLUSTER_ROLE: &str = "liqo-virtual-kubelet-local";

/// ClusterRole with the rights in the tenant namespace, and its RoleBinding.
pub(in crate::offloading) const TENANT_ROLE: &str = "liqo-virtual-kubelet-tenant";

/// ClusterRole with the rights to the Leases of Nodes, and its RoleBinding.
pub(in crate::offloading) const LEASE_ROLE: &str = "liqo-virtual-kubelet-node-lease";

/// Namespace of the Leases of Nodes.
pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// ClusterRole with the right to the authorities of client certificates, and its RoleBinding.
pub(in crate::offloading) const AUTHENTICATION_ROLE: &str = "liqo-virtual-kubelet-authentication";

/// Namespace of the ConfigMap with these authorities.
pub(super) const AUTHENTICATION_NAMESPACE: &str = "kube-system";

/// Prefix of the names of ClusterRoleBindings. With the name of a VirtualNode (63 characters), it is below the limit.
const BINDING_PREFIX: &str = "liqo-node-";

const GROUP: &str = "rbac.authorization.k8s.io";

/// Returns the key of the ClusterRoleBinding of a VirtualNode.
pub(super) fn cluster_binding(node: &Key) -> Key {
    Key::cluster(format!("{BINDING_PREFIX}{}", node.name))
}

/// Returns the VirtualNodes that a ClusterRoleBinding of the prefix binds.
pub(in crate::offloading) fn bound_by_cluster(binding: &ClusterRoleBinding) -> Vec<Key> {
    let name = binding.metadata.name.as_deref().unwrap_or_default();
    if !name.starts_with(BINDING_PREFIX) {
        return Vec::new();
    }
    bound(binding.subjects.as_deref())
}

/// Returns the ServiceAccounts that a binding has as subjects, by the keys of their VirtualNodes.
pub(in crate::offloading) fn bound(subjects: Option<&[Subject]>) -> Vec<Key> {
    let accounts = subjects.into_iter().flatten();
    let accounts = accounts.filter(|subject| subject.kind == "ServiceAccount");
    let keys = accounts.filter_map(|subject| {
        Some(Key::new(
            subject.namespace.as_deref()?,
            subject.name.as_str(),
        ))
    });

    keys.collect()
}

/// Returns the keys of the RoleBindings of a VirtualNode.
pub(super) fn role_bindings(node: &Key) -> [Key; 3] {
    [
        Key::new(&*node.namespace, TENANT_ROLE),
        Key::new(LEASE_NAMESPACE, LEASE_ROLE),
        Key::new(AUTHENTICATION_NAMESPACE, AUTHENTICATION_ROLE),
    ]
}

/// Plans the ServiceAccount of a VirtualNode, and the ClusterRoleBinding.
///
/// # Errors
///
/// Returns a refusal if a ServiceAccount of this name is of another owner, which must not get the rights.
pub(super) fn plan(
    plan: &mut Plan<WorkItem>,
    local: &Local<'_>,
    (node, peer): (&Key, &str),
) -> Result<(), Refusal> {
    match local.accounts.get(node) {
        None => {
            let object = Ref::of::<ServiceAccount>(&Cluster::Local, node);
            let labels = json!({labels::MANAGED: "true"});
            let account = json!({"metadata": {"labels": labels}});
            plan.writes
                .push(Write::new(object, Action::Create(account)));
        }
        Some(present) if !is_own(present) => {
            let message = format!(
                "ServiceAccount {node} exists and is not of Liqo: delete it, or give the VirtualNode another name"
            );
            return Err(("ServiceAccountExists", message));
        }
        Some(_) => {}
    }
    let key = cluster_binding(node);
    let subject = subject(node);
    let Some(present) = local.cluster_role_bindings.get(&key) else {
        let object = Ref::of::<ClusterRoleBinding>(&Cluster::Local, &key);
        let binding = json!({
            "metadata": {"labels": {
                labels::APP_MANAGED_BY: "liqo",
                labels::MANAGED: "true",
                labels::REMOTE_CLUSTER_ID: peer,
            }},
            "roleRef": role_ref(CLUSTER_ROLE),
            "subjects": [subject],
        });
        plan.writes
            .push(Write::new(object, Action::Create(binding)));
        return Ok(());
    };
    // The role is immutable. The binding is created again when its deletion is observed.
    if !binds(&present.role_ref, CLUSTER_ROLE) || !is_same(present.subjects.as_deref(), &[subject])
    {
        delete(plan, &key, present);
    }

    Ok(())
}

/// Plans the RoleBinding of the virtual kubelets in a namespace. `accounts` are those that have the rights.
pub(super) fn plan_role_binding(
    plan: &mut Plan<WorkItem>,
    local: &Local<'_>,
    key: &Key,
    accounts: &[Key],
) {
    let present = local.role_bindings.get(key);
    let subjects: Vec<_> = accounts.iter().map(subject).collect();
    let object = Ref::of::<RoleBinding>(&Cluster::Local, key);
    match present {
        None if subjects.is_empty() || local.is_terminating(&key.namespace) => {}
        None => {
            let binding = json!({
                "metadata": {"labels": {
                    labels::APP_MANAGED_BY: "liqo",
                    labels::MANAGED: "true",
                }},
                "roleRef": role_ref(&key.name),
                "subjects": subjects,
            });
            plan.writes
                .push(Write::new(object, Action::Create(binding)));
        }
        Some(present) if subjects.is_empty() || !binds(&present.role_ref, &key.name) => {
            delete(plan, key, present);
        }
        Some(present) if is_same(present.subjects.as_deref(), &subjects) => {}
        Some(present) => {
            let mut write = Write::new(object, Action::Merge(json!({"subjects": subjects})));
            write.uid = present.metadata.uid.clone();
            plan.writes.push(write);
        }
    }
}

/// Plans the deletion of the ClusterRoleBinding and the ServiceAccount of a VirtualNode; returns whether they are gone,
/// and its RoleBindings without it if `is_stopped`. Otherwise the virtual kubelet is in the RoleBindings as long as the
/// VirtualNode exists. Without access to its namespace, which is being deleted, what is in it goes with it.
pub(super) fn remove(
    plan: &mut Plan<WorkItem>,
    local: &Local<'_>,
    node: &Key,
    (has_access, is_stopped): (bool, bool),
) -> bool {
    let has_binding = remove_cluster_binding(plan, local, node);
    let account = local.accounts.get(node);
    let account = account.filter(|account| has_access && is_own(account));
    if let Some(account) = account {
        delete(plan, node, account);
    }
    let has_role = role_bindings(node)
        .iter()
        .any(|key| is_bound_by(local, key, node));

    !has_binding && account.is_none() && !(has_role && has_access && is_stopped)
}

/// Returns whether the ServiceAccount of a VirtualNode is a subject of a RoleBinding.
pub(super) fn is_bound_by(local: &Local<'_>, binding: &Key, node: &Key) -> bool {
    let binding = local.role_bindings.get(binding);
    binding.is_some_and(|it| bound(it.subjects.as_deref()).contains(node))
}

/// Plans the deletion of the ClusterRoleBinding of a VirtualNode; returns whether there is one.
pub(super) fn remove_cluster_binding(
    plan: &mut Plan<WorkItem>,
    local: &Local<'_>,
    node: &Key,
) -> bool {
    let key = cluster_binding(node);
    let binding = local.cluster_role_bindings.get(&key);
    let binding = binding.filter(|it| bound_by_cluster(it).contains(node));
    if let Some(binding) = binding {
        delete(plan, &key, binding);
    }

    binding.is_some()
}

pub(super) fn is_own(account: &ServiceAccount) -> bool {
    label(&account.metadata, labels::MANAGED) == Some("true")
}

fn subject(account: &Key) -> Value {
    json!({
        "kind": "ServiceAccount",
        "name": account.name,
        "namespace": account.namespace,
    })
}

fn role_ref(name: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": name})
}

fn binds(role: &RoleRef, name: &str) -> bool {
    role.kind == "ClusterRole" && role.name == name
}

fn is_same(present: Option<&[Subject]>, desired: &[Value]) -> bool {
    let present = present.unwrap_or_default();
    let plain = |subject: &Subject| {
        let group = subject.api_group.as_deref().unwrap_or_default();
        let is_plain = group.is_empty() && subject.kind == "ServiceAccount";
        is_plain.then(|| {
            json!({
                "kind": subject.kind,
                "name": subject.name,
                "namespace": subject.namespace,
            })
        })
    };

    present.len() == desired.len()
        && present
            .iter()
            .zip(desired)
            .all(|(present, desired)| plain(present).as_ref() == Some(desired))
}
