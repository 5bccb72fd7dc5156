//! RoleBindings in offloaded namespaces and in namespaces of consumers.
//!
//! The manager binds ClusterRoles of the chart by the verb `bind`. The chart's ValidatingAdmissionPolicies limit names,
//! subjects and namespaces.

use super::item::WorkItem;
use super::objects::Local;
use crate::authentication::{REMOTE_ROLE, label};
use crate::network::SERVICE_ACCOUNT;
use control_api::{annotations, labels};
use control_runtime::{Action, Cluster, Key, Plan, Ref, Write};
use k8s_openapi::api::rbac::v1::{RoleBinding, Subject};
use serde_json::{Value, json};

/// ClusterRole of virtual kubelets in the offloaded namespaces of this cluster, and name of its RoleBindings.
pub(super) const LOCAL_ROLE: &str = "liqo-virtual-kubelet-local-namespace";

/// ClusterRole of virtual kubelets for further kinds of objects, likewise.
pub(super) const LOCAL_EXTRA_ROLE: &str = "liqo-virtual-kubelet-local-extra";

/// ClusterRole of consumers for further kinds of objects in their namespaces, and name of its RoleBindings.
pub(super) const REMOTE_EXTRA_ROLE: &str = "liqo-virtual-kubelet-remote-extra";

/// ClusterRole of the manager in the namespaces of consumers, and name of its RoleBindings.
pub(crate) const MANAGER_ROLE: &str = "liqo-controller-manager-remote-namespace";

/// ClusterRoles of virtual kubelets in the offloaded namespaces of this cluster.
const KUBELET_ROLES: [&str; 2] = [LOCAL_EXTRA_ROLE, LOCAL_ROLE];

/// A RoleBinding that must exist.
pub(super) struct Binding {
    key: Key,
    role: &'static str,
    subjects: Vec<Subject>,
    labels: Value,
    annotations: Value,
}

impl Binding {
    /// Returns the rights of virtual kubelets in an offloaded namespace. `kubelets` are the names of their ServiceAccounts.
    pub(super) fn of_kubelets(namespace: &str, kubelets: &[Key]) -> [Self; 2] {
        let subject = |account: &Key| Subject {
            kind: "ServiceAccount".to_owned(),
            name: account.name.clone(),
            namespace: Some(account.namespace.clone()),
            api_group: None,
        };
        KUBELET_ROLES.map(|role| Self {
            key: Key::new(namespace, role),
            role,
            subjects: kubelets.iter().map(subject).collect(),
            labels: json!({labels::APP_MANAGED_BY: "liqo", labels::MANAGED: "true"}),
            annotations: json!({}),
        })
    }

    /// Returns the rights of the manager in the namespace of a consumer.
    pub(super) fn of_manager(namespace: &str, liqo: &str) -> Self {
        Self {
            key: Key::new(namespace, MANAGER_ROLE),
            role: MANAGER_ROLE,
            subjects: vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name: SERVICE_ACCOUNT.to_owned(),
                namespace: Some(liqo.to_owned()),
                api_group: None,
            }],
            labels: json!({labels::APP_MANAGED_BY: "liqo", labels::MANAGED: "true"}),
            annotations: json!({}),
        }
    }

    /// Returns the rights of a consumer in its namespace, which its NamespaceMap `map` requests.
    ///
    /// The one for further kinds is the first. It is so in effect once the other one is: a virtual kubelet watches these kinds when
    /// it may watch others.
    pub(super) fn of_consumer(namespace: &str, map: &Key, peer: &str) -> [Self; 2] {
        let roles = [
            (REMOTE_EXTRA_ROLE, REMOTE_EXTRA_ROLE),
            (&map.namespace, REMOTE_ROLE),
        ];
        roles.map(|(name, role)| Self {
            key: Key::new(namespace, name),
            role,
            subjects: vec![Subject {
                kind: "Group".to_owned(),
                name: peer.to_owned(),
                namespace: None,
                api_group: Some("rbac.authorization.k8s.io".to_owned()),
            }],
            labels: json!({
                labels::APP_MANAGED_BY: "liqo",
                labels::MANAGED: "true",
                labels::REMOTE_CLUSTER_ID: peer,
            }),
            annotations: json!({annotations::NAMESPACE_MAP: map.to_string()}),
        })
    }

    /// Adds the change of the RoleBinding to a plan, and returns whether it is right already.
    ///
    /// Its role is immutable, so one with another role is deleted, and created when its deletion is observed.
    pub(super) fn plan(&self, local: &Local<'_>, plan: &mut Plan<WorkItem>) -> bool {
        let object = Ref::of::<RoleBinding>(&Cluster::Local, &self.key);
        let Some(present) = local.role_bindings.get(&self.key) else {
            let create = Action::Create(self.object());
            plan.writes.push(Write::new(object, create));
            return false;
        };
        if present.metadata.deletion_timestamp.is_some() {
            return false;
        }
        let uid = present.metadata.uid.clone();
        let role = &present.role_ref;
        if role.kind != "ClusterRole" || role.name != self.role {
            plan.delete(object, uid.unwrap_or_default());
            return false;
        }
        if is_same(present.subjects.as_deref(), &self.subjects) {
            return true;
        }
        let mut write = Write::new(object, Action::Merge(json!({"subjects": self.subjects})));
        write.uid = uid;
        plan.writes.push(write);

        false
    }

    fn object(&self) -> Value {
        json!({
            "metadata": {
                "name": self.key.name,
                "namespace": self.key.namespace,
                "labels": self.labels,
                "annotations": self.annotations,
            },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": self.role,
            },
            "subjects": self.subjects,
        })
    }
}

/// Adds the deletion of the virtual kubelets' RoleBindings in a namespace to a plan.
pub(super) fn delete_of_kubelets(local: &Local<'_>, namespace: &str, plan: &mut Plan<WorkItem>) {
    for role in KUBELET_ROLES {
        let key = Key::new(namespace, role);
        let present = local.role_bindings.get(&key).filter(|present| {
            present.metadata.deletion_timestamp.is_none()
                && label(&present.metadata, labels::MANAGED) == Some("true")
        });
        if let Some(present) = present {
            let object = Ref::of::<RoleBinding>(&Cluster::Local, &key);
            plan.delete(object, present.metadata.uid.clone().unwrap_or_default());
        }
    }
}

/// Compares the subjects of a RoleBinding. The API server fills in their API groups.
fn is_same(present: Option<&[Subject]>, desired: &[Subject]) -> bool {
    let present = present.unwrap_or_default();
    let names = |it: &Subject| (it.kind.clone(), it.namespace.clone(), it.name.clone());

    present.iter().map(names).eq(desired.iter().map(names))
}
