//! The end of a tenant namespace: it is deleted unless it contains objects of other owners.

use crate::cluster::Cluster;
use crate::failure;
use crate::progress::{self, begin};
use crate::wait::{Deadline, Found};
use anyhow::Result;
use control_api::labels;
use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt as _};

/// Group of the kinds of a peering whose objects an unfinished peering, or the one in the reverse direction, still has.
const PEERING_GROUPS: [&str; 3] = [
    "authentication.liqo.io",
    "networking.liqo.io",
    "offloading.liqo.io",
];

/// The kinds that users create in namespaces: group, version, kind and plural.
const KINDS: [(&str, &str, &str, &str); 17] = [
    (
        "authentication.liqo.io",
        "v1beta1",
        "Identity",
        "identities",
    ),
    (
        "authentication.liqo.io",
        "v1beta1",
        "ResourceSlice",
        "resourceslices",
    ),
    ("authentication.liqo.io", "v1beta1", "Tenant", "tenants"),
    (
        "networking.liqo.io",
        "v1beta1",
        "Configuration",
        "configurations",
    ),
    (
        "networking.liqo.io",
        "v1beta1",
        "GatewayServer",
        "gatewayservers",
    ),
    (
        "offloading.liqo.io",
        "v1beta1",
        "VirtualNode",
        "virtualnodes",
    ),
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("", "v1", "Pod", "pods"),
    ("", "v1", "Secret", "secrets"),
    ("", "v1", "Service", "services"),
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "StatefulSet", "statefulsets"),
    ("batch", "v1", "Job", "jobs"),
    ("ipam.liqo.io", "v1alpha1", "IP", "ips"),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "RoleBinding",
        "rolebindings",
    ),
];

/// Objects that Kubernetes creates in every namespace.
const OF_KUBERNETES: [&str; 3] = ["default", "kube-root-ca.crt", "openshift-service-ca.crt"];

/// Deletes a tenant namespace whose peering has ended. Waits until it is gone if there is a deadline.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn delete(
    cluster: &Cluster,
    name: &str,
    deadline: Option<Deadline>,
) -> Result<()> {
    let deleting = begin(cluster.side, "Deleting tenant namespace");
    let keep = |reason: &str| {
        let text = format!("Tenant namespace {name} is kept: {reason}");
        progress::info(progress::scoped(cluster.side, text));
    };
    match others(cluster, name).await? {
        Content::Liqo => {}
        Content::Other(object) => {
            drop(deleting);
            keep(&format!("it contains {object}"));
            return Ok(());
        }
        Content::Forbidden => {
            drop(deleting);
            keep("the user may not list its objects");
            return Ok(());
        }
    }
    let api = Api::<Namespace>::all(cluster.client.clone());
    cluster.delete(&api, "namespace", name).await?;
    if let Some(deadline) = deadline {
        deadline
            .until("deleting the tenant namespace", async || {
                let read = cluster.get(&api, "namespace", name).await?;
                Ok(read.map_or(Found::Ready(()), |_| {
                    Found::Missing(format!(
                        "namespace {name} still exists in {}",
                        cluster.place()
                    ))
                }))
            })
            .await?;
    }
    deleting.done("Tenant namespace correctly deleted");
    Ok(())
}

/// Content of a tenant namespace.
enum Content {
    /// Objects of the peering only.
    Liqo,
    /// An object of another owner: kind and name.
    Other(String),
    /// The user may not list the objects.
    Forbidden,
}

async fn others(cluster: &Cluster, namespace: &str) -> Result<Content> {
    let lists = KINDS.map(async |(group, version, kind, plural)| {
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let client = cluster.client.clone();
        let api = Api::<DynamicObject>::namespaced_with(client, namespace, &resource);
        match api.list_metadata(&ListParams::default()).await {
            Ok(list) => {
                let other = list.items.iter().find(|it| is_other((group, kind), it));
                Ok(match other {
                    Some(object) => Content::Other(format!("{kind} {}", object.name_any())),
                    None => Content::Liqo,
                })
            }
            Err(error) if failure::is_not_found(&error) => Ok(Content::Liqo),
            Err(error) if failure::is_forbidden(&error) => Ok(Content::Forbidden),
            Err(error) => Err(cluster.failed(&format!("list {plural}"))(error)),
        }
    });
    let contents = try_join_all(lists).await?;
    let foreign = contents.into_iter().find(|it| !matches!(it, Content::Liqo));
    Ok(foreign.unwrap_or(Content::Liqo))
}

fn is_other((group, kind): (&str, &str), object: &PartialObjectMeta<DynamicObject>) -> bool {
    match PEERING_GROUPS.contains(&group) {
        // An owner is judged itself.
        true => {
            let metadata = &object.metadata;
            metadata.deletion_timestamp.is_none() && metadata.owner_references.is_none()
        }
        false => !is_of_liqo(kind, &object.metadata),
    }
}

/// Returns whether an object is of the peering, of Kubernetes, of an owner that is judged itself, or is being deleted.
fn is_of_liqo(kind: &str, metadata: &ObjectMeta) -> bool {
    let label = |key: &str| metadata.labels.as_ref().and_then(|it| it.get(key));
    if metadata.deletion_timestamp.is_some() || metadata.owner_references.is_some() {
        return true;
    }
    if label(labels::PEERING_USER_NAME).is_some() {
        return false;
    }
    let is_labelled = label(labels::REMOTE_CLUSTER_ID).is_some()
        || label(labels::MANAGED).is_some()
        || label(labels::APP_MANAGED_BY).is_some_and(|it| it == "liqo");
    // The Identity owns the kubeconfig Secret of a peering. One without owner is of a user.
    let is_of_user = kind == "Secret" && label(labels::IDENTITY_TYPE).is_some();
    let name = metadata.name.as_deref().unwrap_or_default();
    (is_labelled && !is_of_user) || OF_KUBERNETES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    #[test]
    fn only_objects_of_other_owners_keep_a_namespace() {
        let is_of_liqo = |kind: &str, metadata: Value| {
            is_of_liqo(kind, &from_value::<ObjectMeta>(metadata).unwrap())
        };
        let peer = json!({"liqo.io/remote-cluster-id": "milan"});

        assert!(is_of_liqo(
            "Secret",
            json!({"name": "liqo-nonce", "labels": peer})
        ));
        assert!(is_of_liqo("ConfigMap", json!({"name": "kube-root-ca.crt"})));
        assert!(is_of_liqo("ServiceAccount", json!({"name": "default"})));
        let managed = json!({"app.kubernetes.io/managed-by": "liqo"});
        assert!(is_of_liqo(
            "RoleBinding",
            json!({"name": "a", "labels": managed})
        ));
        let owners = json!([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"}]);
        assert!(is_of_liqo(
            "Pod",
            json!({"name": "a", "ownerReferences": owners})
        ));

        assert!(!is_of_liqo("Pod", json!({"name": "a"})));
        let user = json!({"liqo.io/peering-user-name": "liqo-peer-user-rome"});
        assert!(!is_of_liqo(
            "RoleBinding",
            json!({"name": "a", "labels": user})
        ));
        let kubeconfig =
            json!({"liqo.io/remote-cluster-id": "milan", "liqo.io/identity-type": "ControlPlane"});
        assert!(!is_of_liqo(
            "Secret",
            json!({"name": "mine", "labels": kubeconfig})
        ));
    }
}
