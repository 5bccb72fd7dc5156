//! The rights of a peering user: the chart's roles, bound in the namespace of Liqo and in the tenant namespace.

use crate::cluster::Cluster;
use anyhow::{Result, bail};
use control_api::{annotations, labels};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::{Api, Resource, ResourceExt as _};
use serde_json::{Value, json};

/// Names of the Role in Liqo's namespace and of the ClusterRole for tenant namespaces.
pub(super) struct Roles {
    liqo: String,
    tenant: String,
}

/// Finds the roles of the chart.
///
/// # Errors
///
/// Returns an error with the remedy if there is not exactly one of each.
pub(super) async fn roles(cluster: &Cluster, liqo: &str) -> Result<Roles> {
    let selector = format!(
        "{}={}",
        labels::APP_COMPONENT,
        labels::COMPONENT_PEERING_USER
    );
    let roles = Api::<Role>::namespaced(cluster.client.clone(), liqo);
    let cluster_roles = Api::<ClusterRole>::all(cluster.client.clone());
    let (roles, cluster_roles) = tokio::try_join!(
        cluster.list(&roles, "Roles", &selector),
        cluster.list(&cluster_roles, "ClusterRoles", &selector),
    )?;
    Ok(Roles {
        liqo: only(&roles, &selector, cluster)?,
        tenant: only(&cluster_roles, &selector, cluster)?,
    })
}

fn only<K: Resource<DynamicType = ()>>(
    found: &[K],
    selector: &str,
    cluster: &Cluster,
) -> Result<String> {
    match found {
        [only] => Ok(only.name_any()),
        _ => bail!(
            "{} has {} {} with the label {selector}, one is needed: install with the chart's value authentication.enabled",
            cluster.place(),
            found.len(),
            K::plural(&()),
        ),
    }
}

/// Binds the roles to a user. `is_reverse_allowed` permits this cluster to become a consumer of the user's cluster.
///
/// # Errors
///
/// Returns an error if the API server refuses a binding.
pub(super) async fn bind(
    cluster: &Cluster,
    name: &str,
    user: &str,
    (liqo, tenant): (&str, &str),
    roles: Roles,
    is_reverse_allowed: bool,
) -> Result<()> {
    let of_liqo = binding((name, user), reader(name), liqo, ("Role", &roles.liqo));
    let role = ("ClusterRole", roles.tenant.as_str());
    let mut of_tenant = binding((name, user), writer(name), tenant, role);
    if is_reverse_allowed {
        of_tenant["metadata"]["annotations"] = json!({annotations::ALLOW_REVERSE_PEERING: "true"});
    }
    for binding in [of_liqo, of_tenant] {
        let namespace = binding["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default();
        let api = Api::<RoleBinding>::namespaced(cluster.client.clone(), namespace);
        cluster.apply(&api, binding).await?;
    }
    Ok(())
}

/// Deletes the bindings of a user.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(super) async fn remove(
    cluster: &Cluster,
    name: &str,
    (liqo, tenant): (&str, Option<&str>),
) -> Result<()> {
    for (namespace, binding) in [(Some(liqo), reader(name)), (tenant, writer(name))] {
        if let Some(namespace) = namespace {
            let api = Api::<RoleBinding>::namespaced(cluster.client.clone(), namespace);
            cluster.delete(&api, "RoleBinding", &binding).await?;
        }
    }
    Ok(())
}

fn reader(name: &str) -> String {
    format!("{name}-liqo-ns-reader")
}

fn writer(name: &str) -> String {
    format!("{name}-tenant-ns-writer")
}

fn binding(
    (name, user): (&str, &str),
    binding: String,
    namespace: &str,
    (kind, role): (&str, &str),
) -> Value {
    const GROUP: &str = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "RoleBinding",
        "metadata": {
            "name": binding,
            "namespace": namespace,
            "labels": {labels::PEERING_USER_NAME: name},
        },
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_names_one_user() {
        let name = "liqo-peer-user-rome";
        let role = ("ClusterRole", "liqo-peering-user-tenant-ns");

        let object = binding((name, "liqo-peer-user-rome-ab"), writer(name), "a", role);

        assert_eq!(
            object["metadata"]["name"],
            "liqo-peer-user-rome-tenant-ns-writer"
        );
        let subjects = json!([{
            "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "liqo-peer-user-rome-ab",
        }]);
        assert_eq!(object["subjects"], subjects);
        assert_eq!(object["roleRef"]["name"], "liqo-peering-user-tenant-ns");
    }
}
