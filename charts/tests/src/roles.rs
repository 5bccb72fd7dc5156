//! Compares the chart's roles of a process with the rights that its registrations need.

use control_runtime::{Registration, Scope, rules};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Output of the chart with all values set.
const RENDERED: &str = include_str!("../golden/everything.yaml");

/// A role of a process. The names of its roles begin with the name of its ServiceAccount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The ClusterRole that is bound in the whole cluster.
    Cluster,
    /// The Role in Liqo's namespace.
    Namespace,
    /// Another namespace, in which the chart has no role: only rights in the whole cluster apply.
    OtherNamespace,
    /// The ClusterRole that is bound in tenant namespaces.
    Tenant,
    /// The ClusterRole that is bound in the namespaces of consumers.
    RemoteNamespace,
}

/// Rights in a role of a process.
#[derive(Clone, Copy, Debug)]
pub struct Rights {
    /// Where they are granted.
    pub role: Role,
    /// API group.
    pub group: &'static str,
    /// Resource, or resource and subresource.
    pub resource: &'static str,
    /// Name of the object; empty for all objects.
    pub name: &'static str,
    /// Verbs.
    pub verbs: &'static [&'static str],
}

/// API group, resource, object name and verb. An empty name stands for all objects.
pub(crate) type Right = (String, String, String, String);

/// Checks that the roles of a ServiceAccount grant the rights that `registrations` with Liqo in
/// `namespace` need, the `further` ones of requests that no registration is about, and no other.
///
/// # Panics
///
/// Panics with the rights that are missing and those that are superfluous.
pub fn assert_exact<'a>(
    account: &str,
    namespace: &str,
    registrations: impl IntoIterator<Item = &'a Registration>,
    further: &[Rights],
) {
    let mut needed = BTreeSet::new();
    for (scope, rules) in rules(registrations) {
        let role = match scope {
            Scope::All => Role::Cluster,
            Scope::Planned => Role::Tenant,
            Scope::Bound(role) => {
                assert_eq!(role, format!("{account}-remote-namespace"));
                Role::RemoteNamespace
            }
            Scope::Namespace(name) if name == namespace => Role::Namespace,
            Scope::Namespace(_) => Role::OtherNamespace,
        };
        let rights = rules.iter().flat_map(|rule| rights(&json!(rule)));
        needed.extend(rights.map(|right| (role, right)));
    }
    for rights in further {
        let right = |verb: &&str| {
            let texts = [rights.group, rights.resource, rights.name, verb];
            (rights.role, texts.map(str::to_owned).into())
        };
        needed.extend(rights.verbs.iter().map(right));
    }
    let granted = granted(account);

    // A right to all objects includes the right to one of them, and one in the whole cluster that in a namespace.
    let is_included = |(role, (group, resource, _, verb)): &(Role, Right)| {
        let all = (group.clone(), resource.clone(), String::new(), verb.clone());
        let mut scopes = [*role, Role::Cluster].into_iter();
        scopes.any(|scope| granted.contains(&(scope, all.clone())))
    };
    let missing = needed.difference(&granted).filter(|it| !is_included(it));
    let missing: Vec<_> = missing.collect();
    let superfluous: Vec<_> = granted.difference(&needed).collect();
    assert!(
        missing.is_empty() && superfluous.is_empty(),
        "{account}: needed and not granted {missing:#?}, granted and not needed {superfluous:#?}"
    );
}

/// Returns the rights in the roles of a ServiceAccount.
fn granted(account: &str) -> BTreeSet<(Role, Right)> {
    let roles = [
        (Role::Cluster, "ClusterRole", account.to_owned()),
        (
            Role::Cluster,
            "ClusterRole",
            format!("{account}-multi-cluster"),
        ),
        (Role::Namespace, "Role", account.to_owned()),
        (Role::Tenant, "ClusterRole", format!("{account}-tenant")),
        (
            Role::RemoteNamespace,
            "ClusterRole",
            format!("{account}-remote-namespace"),
        ),
    ];
    let mut granted = BTreeSet::new();
    for object in objects() {
        let named = roles.iter().find(|(_, kind, name)| {
            object["kind"] == *kind && object["metadata"]["name"] == name.as_str()
        });
        if let Some((role, ..)) = named {
            granted.extend(of_role(&object).into_iter().map(|right| (*role, right)));
        }
    }
    granted
}

/// Returns the objects that the chart renders.
pub(crate) fn objects() -> Vec<Value> {
    let documents = RENDERED.split("\n---\n");
    documents
        .filter_map(|text| serde_saphyr::from_str(text).ok())
        .filter(Value::is_object)
        .collect()
}

/// Returns the rights in a role.
pub(crate) fn of_role(role: &Value) -> BTreeSet<Right> {
    let rules = role["rules"].as_array().into_iter().flatten();

    rules.flat_map(rights).collect()
}

/// Returns one right for each combination of group, resource, name and verb in a rule.
fn rights(rule: &Value) -> BTreeSet<Right> {
    let list = |field: &str| {
        let list = rule[field].as_array().into_iter().flatten();
        let texts = list.filter_map(|it| it.as_str().map(str::to_owned));
        texts.collect::<Vec<_>>()
    };

    combined(
        &list("apiGroups"),
        &list("resources"),
        &list("resourceNames"),
        &list("verbs"),
    )
}

/// Returns one right for each combination. Without names, the rights are for all objects.
pub(crate) fn combined(
    groups: &[String],
    resources: &[String],
    names: &[String],
    verbs: &[String],
) -> BTreeSet<Right> {
    let every = [String::new()];
    let names = if names.is_empty() { &every } else { names };
    let mut rights = BTreeSet::new();
    for group in groups {
        for resource in resources {
            for name in names {
                for verb in verbs {
                    let right = (group.clone(), resource.clone(), name.clone(), verb.clone());
                    rights.insert(right);
                }
            }
        }
    }
    rights
}
