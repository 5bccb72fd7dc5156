//! The manager's rights in tenant namespaces: a RoleBinding in each of them, and in no other namespace.
//!
//! The bound ClusterRole contains the rights to Secrets. In other namespaces, the manager has no right to
//! Secrets except one of Liqo's namespace. The manager may bind this ClusterRole only, and the chart's
//! ValidatingAdmissionPolicy `liqo-controller-manager-bindings` limits namespaces and subjects.

use super::metadata::repaired;
use super::{Plan, Planner};
use crate::network::kind::{Key, Kind, TENANT_ROLE};
use crate::network::local::is_terminating;
use crate::network::write::{Action, Write};
use control_api::labels;
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde_json::{Value, json};

/// Name of the manager's ServiceAccount, as in the chart.
const SERVICE_ACCOUNT: &str = "liqo-controller-manager";

/// Creates the RoleBinding in a tenant namespace, and deletes it in another namespace.
pub(super) fn plan(planner: &Planner<'_>, namespace: &str) -> Plan {
    let key = Key::new(namespace, TENANT_ROLE);
    let action = action(planner, &key);
    let write = action.map(|action| Write::new(Kind::RoleBinding, &key, action));

    Plan {
        writes: write.into_iter().collect(),
        ..Plan::default()
    }
}

fn action(planner: &Planner<'_>, key: &Key) -> Option<Action> {
    let local = &planner.local;
    let is_tenant = local.is_tenant(&key.namespace);
    let desired = binding(local.namespace, key);
    let Some(present) = local.role_bindings.get(key) else {
        return is_tenant.then_some(Action::Create(desired));
    };
    if is_terminating(&present.metadata) {
        return None;
    }
    if is_tenant && is_right(local.namespace, present) {
        return repaired(&present.metadata, &desired["metadata"]).map(Action::Merge);
    }

    // The role of a RoleBinding is immutable, so the RoleBinding is created again after its deletion.
    Some(Action::Delete(present.metadata.uid.clone()))
}

/// Returns whether a RoleBinding binds the role to the ServiceAccount in namespace `liqo` only.
pub(crate) fn is_right(liqo: &str, binding: &RoleBinding) -> bool {
    let subjects = binding.subjects.as_deref().unwrap_or_default();
    let is_manager = matches!(subjects, [subject] if subject.kind == "ServiceAccount"
        && subject.name == SERVICE_ACCOUNT
        && subject.namespace.as_deref() == Some(liqo));

    is_manager && binding.role_ref.kind == "ClusterRole" && binding.role_ref.name == TENANT_ROLE
}

fn binding(liqo: &str, key: &Key) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {labels::MANAGED: "true", labels::APP_PART_OF: "liqo"},
        },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": TENANT_ROLE,
        },
        "subjects": [{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": liqo}],
    })
}
