//! The manager's rights in tenant namespaces: a RoleBinding in each of them, and in no other namespace.
//!
//! The bound ClusterRole contains the rights to Secrets. In other namespaces, the manager has no right to
//! Secrets except one of Liqo's namespace. The manager may bind this ClusterRole only, and the chart's
//! ValidatingAdmissionPolicy `liqo-controller-manager-bindings` limits namespaces and subjects.

use super::metadata::repaired;
use super::{Plan, Planner};
use crate::network::kind::{Key, Kind, SERVICE_ACCOUNT, TENANT_ROLE};
use crate::network::local::is_terminating;
use crate::network::write::{Action, Write};
use control_api::labels;
use serde_json::{Value, json};

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
    if is_tenant && local.binds_manager(present) {
        return repaired(&present.metadata, &desired["metadata"]).map(Action::Merge);
    }

    // The role of a RoleBinding is immutable, so the RoleBinding is created again after its deletion.
    Some(Action::Delete(present.metadata.uid.clone()))
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
