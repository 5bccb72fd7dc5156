//! Removes the objects that Helm keeps: CRDs, objects with the chart's label, namespaces.

mod namespaces;

pub(super) use namespaces::mark;

use crate::cluster::Cluster;
use crate::failure;
use crate::progress::{self, begin};
use crate::wait::{Deadline, Found};
use anyhow::Result;
use control_api::labels;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt::Debug;
use std::time::Duration;

/// The API groups of Liqo's CRDs.
const GROUPS: [&str; 5] = [
    "authentication.liqo.io",
    "core.liqo.io",
    "ipam.liqo.io",
    "networking.liqo.io",
    "offloading.liqo.io",
];

/// The API group of the Multi-Cluster Services API.
const MULTI_CLUSTER_GROUP: &str = "multicluster.x-k8s.io";

/// Label selector of the chart's objects.
pub(super) const SELECTOR: &str = "app.kubernetes.io/part-of=liqo";

/// Label selector of the objects that the controller manager has created.
const MANAGED: &str = "app.kubernetes.io/managed-by=liqo,liqo.io/managed=true";

/// Label selector of virtual nodes.
const VIRTUAL_NODES: &str = "liqo.io/type=virtual-node";

/// Time for the deletion of the CRDs before the finalizers of their objects are removed. The controllers
/// that would remove these finalizers do not run any more.
const FINALIZERS_KEPT: Duration = Duration::from_secs(5);

/// Time-out of the deletion of the CRDs, and of the deletion of the namespaces. Pods of a namespace may take their grace periods, and
/// a busy cluster deletes thousands of objects.
const DELETION_TIMEOUT: Duration = Duration::from_secs(240);

/// Removes the admission webhooks, the metrics API and the policies. Webhooks are first: while no controller manager serves them,
/// requests fail. While nothing serves the metrics API, Kubernetes deletes no namespace. The bindings of policies precede the
/// policies, because they put them into force.
///
/// # Errors
///
/// Returns an error if the API server refuses a deletion.
pub(crate) async fn remove_policies(cluster: &Cluster) -> Result<()> {
    remove_labelled::<MutatingWebhookConfiguration>(cluster, SELECTOR).await?;
    remove_labelled::<ValidatingWebhookConfiguration>(cluster, SELECTOR).await?;
    remove_labelled::<APIService>(cluster, SELECTOR).await?;
    remove_labelled::<ValidatingAdmissionPolicyBinding>(cluster, SELECTOR).await?;
    remove_labelled::<ValidatingAdmissionPolicy>(cluster, SELECTOR).await
}

/// Removes the RoleBindings that the controller manager has created in tenant namespaces.
///
/// # Errors
///
/// Returns an error if the API server refuses a deletion.
pub(crate) async fn remove_tenant_bindings(cluster: &Cluster) -> Result<()> {
    remove_bindings(cluster, &format!("{SELECTOR},{}=true", labels::MANAGED)).await
}

async fn remove_bindings(cluster: &Cluster, selector: &str) -> Result<()> {
    let all = Api::<RoleBinding>::all(cluster.client.clone());
    for binding in cluster.list(&all, "RoleBindings", selector).await? {
        let namespace = binding.namespace().unwrap_or_default();
        let api = Api::<RoleBinding>::namespaced(cluster.client.clone(), &namespace);
        cluster
            .delete(&api, "RoleBinding", &binding.name_any())
            .await?;
    }
    Ok(())
}

/// Removes CRDs, roles and namespaces.
///
/// # Errors
///
/// Returns an error that names the objects that still exist at the deadline.
pub(crate) async fn run(cluster: &Cluster, namespace: &str, deadline: Deadline) -> Result<()> {
    let purging = begin("", "Purging Liqo CRDs");
    remove_crds(cluster, deadline.within(DELETION_TIMEOUT)).await?;
    purging.done("Liqo CRDs purged");

    let deleting = begin("", "Deleting Liqo namespaces");
    remove_rights_and_nodes(cluster).await?;
    namespaces::remove(cluster, namespace, deadline.within(DELETION_TIMEOUT)).await?;
    deleting.done("Liqo namespaces deleted");
    Ok(())
}

async fn remove_rights_and_nodes(cluster: &Cluster) -> Result<()> {
    // Bindings that are left would give former peers their rights again after the next installation.
    remove_labelled::<ClusterRoleBinding>(cluster, MANAGED).await?;
    remove_bindings(cluster, MANAGED).await?;
    remove_labelled::<ClusterRoleBinding>(cluster, SELECTOR).await?;
    remove_labelled::<ClusterRole>(cluster, SELECTOR).await?;
    remove_labelled::<RuntimeClass>(cluster, SELECTOR).await?;
    // Nothing runs the pods that are bound to them. Kubernetes removes these pods then.
    remove_labelled::<Node>(cluster, VIRTUAL_NODES).await
}

async fn remove_crds(cluster: &Cluster, deadline: Deadline) -> Result<()> {
    let api = Api::<CustomResourceDefinition>::all(cluster.client.clone());
    let ours = async || -> Result<Vec<CustomResourceDefinition>> {
        let all = cluster.list(&api, "CRDs", "").await?;
        Ok(all.into_iter().filter(is_of_liqo).collect())
    };
    for crd in ours().await? {
        cluster.delete(&api, "CRD", &crd.name_any()).await?;
    }
    let started = tokio::time::Instant::now();
    let mut is_forced = false;
    deadline
        .until_reporting("deleting the CRDs", async || {
            let left = ours().await?;
            if left.is_empty() {
                return Ok(Found::Ready(()));
            }
            if started.elapsed() > FINALIZERS_KEPT && !is_forced {
                for crd in &left {
                    release_objects(cluster, crd).await?;
                }
                is_forced = true;
            }
            let names: Vec<String> = left.iter().map(|crd| crd.name_any()).collect();
            Ok(Found::Missing(format!("{} still exist", names.join(", "))))
        })
        .await
}

/// Returns whether the chart has installed a CRD. Those of the Multi-Cluster Services API may be another installation's.
fn is_of_liqo(crd: &CustomResourceDefinition) -> bool {
    let part_of = crd.labels().get(labels::APP_PART_OF);
    let is_labelled = part_of.is_some_and(|it| it == "liqo");

    GROUPS.contains(&crd.spec.group.as_str())
        || (crd.spec.group == MULTI_CLUSTER_GROUP && is_labelled)
}

/// Removes the finalizers of the objects of a CRD, which the API server deletes after its objects.
async fn release_objects(cluster: &Cluster, crd: &CustomResourceDefinition) -> Result<()> {
    let Some(version) = crd.spec.versions.iter().find(|version| version.served) else {
        return Ok(());
    };
    let (group, names) = (&crd.spec.group, &crd.spec.names);
    let gvk = GroupVersionKind::gvk(group, &version.name, &names.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &names.plural);
    let all = Api::<DynamicObject>::all_with(cluster.client.clone(), &resource);
    for object in cluster.list(&all, &names.plural, "").await? {
        if object.finalizers().is_empty() {
            continue;
        }
        progress::warn(format_args!(
            "{} {} still exists, and its controller does not run any more: removing its finalizers {}",
            names.kind,
            object.name_any(),
            object.finalizers().join(", ")
        ));
        let api = match object.namespace() {
            Some(namespace) => Api::namespaced_with(cluster.client.clone(), &namespace, &resource),
            None => all.clone(),
        };
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let patched: kube::Result<DynamicObject> = api
            .patch(&object.name_any(), &PatchParams::default(), &patch)
            .await;
        match patched {
            Err(error) if !failure::is_not_found(&error) => {
                return Err(cluster.failed("remove finalizers")(error));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

async fn remove_labelled<K>(cluster: &Cluster, selector: &str) -> Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api = Api::<K>::all(cluster.client.clone());
    let what = K::plural(&());
    for object in cluster.list(&api, &what, selector).await? {
        cluster.delete(&api, &what, &object.name_any()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_apiserver::{ApiServer, Front, Reply};

    const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

    fn put(server: &ApiServer, path: &str, labels: &serde_json::Value) -> String {
        let (folder, name) = path.rsplit_once('/').unwrap();
        server.put(path, json!({"metadata": {"name": name, "labels": labels}}));
        format!("{folder}/{name}")
    }

    #[tokio::test]
    async fn rights_of_peers_and_virtual_nodes_are_removed_and_those_of_others_stay() {
        let server = ApiServer::start();
        let managed = json!({"app.kubernetes.io/managed-by": "liqo", "liqo.io/managed": "true"});
        let of_chart = json!({"app.kubernetes.io/part-of": "liqo"});
        let virtual_node = json!({"liqo.io/type": "virtual-node"});
        let none = json!({});
        let removed = [
            put(&server, &format!("{BINDING}/peer"), &managed),
            put(&server, &format!("{BINDING}/chart"), &of_chart),
            put(
                &server,
                "/apis/node.k8s.io/v1/runtimeclasses/liqo",
                &of_chart,
            ),
            put(&server, "/api/v1/nodes/milan", &virtual_node),
        ];
        let kept = [
            put(&server, &format!("{BINDING}/user"), &none),
            put(&server, "/apis/node.k8s.io/v1/runtimeclasses/gvisor", &none),
            put(&server, "/api/v1/nodes/worker", &none),
        ];
        let front = Front::start(&server, |_| Reply::Forward);

        let cluster = Cluster::behind(&front, "local");
        remove_rights_and_nodes(&cluster).await.unwrap();

        removed
            .iter()
            .for_each(|it| assert_eq!(server.get(it), None, "{it}"));
        kept.iter()
            .for_each(|it| assert!(server.get(it).is_some(), "{it}"));
    }

    #[tokio::test]
    async fn the_metrics_api_is_removed_with_the_policies() {
        let server = ApiServer::start();
        let folder = "/apis/apiregistration.k8s.io/v1/apiservices";
        let of_chart = json!({"app.kubernetes.io/part-of": "liqo"});
        let ours = put(
            &server,
            &format!("{folder}/v1beta1.metrics.liqo.io"),
            &of_chart,
        );
        let other = put(
            &server,
            &format!("{folder}/v1beta1.metrics.k8s.io"),
            &json!({}),
        );
        let front = Front::start(&server, |_| Reply::Forward);

        let cluster = Cluster::behind(&front, "local");
        remove_policies(&cluster).await.unwrap();

        assert_eq!(server.get(&ours), None);
        assert!(server.get(&other).is_some());
    }

    #[test]
    fn only_liqos_groups_are_purged() {
        let crd = |group: &str, labels: serde_json::Value| -> CustomResourceDefinition {
            serde_json::from_value(json!({"metadata": {"labels": labels}, "spec": {
                "group": group, "names": {"kind": "A", "plural": "a"}, "scope": "Namespaced", "versions": [],
            }}))
            .unwrap()
        };

        let none = json!({});
        assert!(is_of_liqo(&crd("networking.liqo.io", none.clone())));
        assert!(!is_of_liqo(&crd("liqo.io.example.com", none.clone())));
        assert!(!is_of_liqo(&crd("networking.k8s.io", none.clone())));
        assert!(!is_of_liqo(&crd(MULTI_CLUSTER_GROUP, none)));
        let part_of = json!({"app.kubernetes.io/part-of": "liqo"});
        assert!(is_of_liqo(&crd(MULTI_CLUSTER_GROUP, part_of)));
    }
}
