//! Tests of the take-over of objects that an earlier release of the controller manager has written.
//!
//! That release wrote objects by POST and statuses by merge patches, so its fields belong to entries of
//! the operation `Update`. An Apply removes no field of such an entry.

use crate::fixture::{Deadline, Fixture, Suite, serial, until};
use crate::manager::Manager;
use anyhow::{Context as _, Result, ensure};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) fn add(suite: &mut Suite) {
    serial!(suite, objects_of_an_earlier_release_are_taken_over);
}

/// Time limit of each step. The limit of the whole test is 120 s.
const LIMIT: Duration = Duration::from_secs(20);

/// The field manager of both releases.
const FIELD_MANAGER: &str = "liqo-controller-manager";

const LIQO: &str = "upgrade";
const TENANT: &str = "liqo-tenant-upgrade";

async fn objects_of_an_earlier_release_are_taken_over(fixture: &'static Fixture) -> Result<()> {
    let client = fixture.namespace(LIQO).await?;
    let objects = Objects(client);
    create_as_earlier_release(&objects).await?;
    let _manager = Manager::start(fixture, "upgraded-manager", LIQO)?;

    for (kind, namespace, name, subresource) in [
        ("Network", LIQO, "external-cidr", "status"),
        ("IP", LIQO, "printer", "status"),
        ("Service", LIQO, "printer", ""),
        ("ForeignCluster", "", "upgrade", "status"),
    ] {
        until(Deadline::after(LIMIT), "the take-over", async || {
            let object = objects.of(kind, namespace).get(name).await?;
            let operations = operations(&object, subresource);
            ensure!(operations == ["Apply"], "{kind}: {operations:?}");
            Ok(())
        })
        .await?;
    }
    // The Apply follows the take-over of the fields.
    until(Deadline::after(LIMIT), "the Apply", async || {
        let service = objects.of("Service", LIQO).get("printer").await?;
        let label = service.labels().get("app").map(String::as_str);
        ensure!(label == Some("printer"), "{label:?}");
        let annotations = service.annotations();
        ensure!(
            annotations.is_empty(),
            "the earlier release has set an annotation: {annotations:?}"
        );
        Ok(())
    })
    .await?;

    // The status follows a moment later, so that several changes cause one write.
    until(Deadline::after(LIMIT), "the status", async || {
        let summary = objects.of("ForeignCluster", "").get("upgrade").await?;
        let status = &summary.data["status"];
        ensure!(
            status["role"] == "Unknown"
                && status["apiServerUrl"].is_null()
                && status["modules"]["authentication"] == json!({"enabled": false})
                && status["modules"]["networking"]["enabled"] == true
                && status["tenantNamespace"] == json!({"local": TENANT}),
            "{status}"
        );
        Ok(())
    })
    .await?;

    // The manager has no right to patch GatewayServers, so it owns these conditions twice.
    ensure!(
        conditions(&objects)
            .await?
            .contains(&"TemplateIgnored".to_owned())
    );
    let no_template = json!({"spec": {"serverTemplateRef": null}});
    objects
        .merge("GatewayServer", TENANT, "upgrade", &no_template)
        .await?;
    until(
        Deadline::after(LIMIT),
        "the removal of a condition",
        async || {
            let conditions = conditions(&objects).await?;
            ensure!(conditions == ["Ready"], "{conditions:?}");
            Ok(())
        },
    )
    .await
}

/// Creates the objects of a user, and the objects that release ea9b234 created for them. A user has since
/// changed a label of the template of `printer`.
async fn create_as_earlier_release(objects: &Objects) -> Result<()> {
    let peer = json!({"liqo.io/remote-cluster-id": "upgrade", "liqo.io/tenant-namespace": "true"});
    objects
        .create(
            "v1",
            "Namespace",
            json!({"metadata": {"name": TENANT, "labels": peer}}),
        )
        .await?;
    objects
        .create(
            "v1",
            "ConfigMap",
            json!({
                "metadata": {"name": "liqo-clusterid-configmap", "namespace": LIQO,
                    "labels": {"app.kubernetes.io/name": "clusterid-configmap"}},
                "data": {"CLUSTER_ID": "rome"},
            }),
        )
        .await?;
    objects
        .create(
            "ipam.liqo.io/v1alpha1",
            "Network",
            json!({
                "metadata": {"name": "external-cidr", "namespace": LIQO,
                    "labels": {"ipam.liqo.io/network-type": "external-cidr"}},
                "spec": {"cidr": "10.70.0.0/16"},
            }),
        )
        .await?;
    // The CIDR is allocated again, since its prefix length differs from that of the spec.
    let cidr = json!({"status": {"cidr": "10.69.0.0/17"}});
    objects
        .merge_status("Network", LIQO, "external-cidr", &cidr)
        .await?;
    let ip = objects
        .create(
            "ipam.liqo.io/v1alpha1",
            "IP",
            json!({
                "metadata": {"name": "printer", "namespace": LIQO},
                "spec": {"ip": "192.0.2.9", "serviceTemplate": {
                    "metadata": {"labels": {"app": "printer"}},
                    "spec": {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]},
                }},
            }),
        )
        .await?;
    let address = json!({"status": {"cidr": "10.69.0.0/17", "ip": "10.69.0.1"}});
    objects
        .merge_status("IP", LIQO, "printer", &address)
        .await?;
    objects
        .create(
            "v1",
            "Service",
            json!({
                "metadata": {"name": "printer", "namespace": LIQO,
                    "labels": {"app": "scanner", "liqo.io/managed": "true"},
                    "annotations": {"example.com/owner": "office"},
                    "ownerReferences": [{"apiVersion": "ipam.liqo.io/v1alpha1", "kind": "IP",
                        "name": "printer", "uid": ip.uid()}],
                },
                "spec": {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]},
            }),
        )
        .await?;
    objects
        .create("networking.liqo.io/v1beta1", "GatewayServer", json!({
            "metadata": {"name": "upgrade", "namespace": TENANT,
                "labels": {"liqo.io/remote-cluster-id": "upgrade"}},
            "spec": {"endpoint": {"serviceType": "ClusterIP", "port": 51840}, "mtu": 1340,
                "serverTemplateRef": {"kind": "WgGatewayServerTemplate", "name": "wireguard-server",
                    "namespace": LIQO, "apiVersion": "networking.liqo.io/v1beta1"}},
        }))
        .await?;
    create_foreign_cluster(objects).await?;
    let condition = |type_: &str, status: &str| {
        json!({"type": type_, "status": status, "reason": type_, "message": "of the earlier release",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1})
    };
    let conditions = [
        condition("Ready", "True"),
        condition("TemplateIgnored", "True"),
    ];
    let status = json!({"status": {"conditions": conditions}});
    objects
        .merge_status("GatewayServer", TENANT, "upgrade", &status)
        .await
}

/// Creates the ForeignCluster, with the status of modules that are disabled since.
async fn create_foreign_cluster(objects: &Objects) -> Result<()> {
    let labels = json!({"liqo.io/remote-cluster-id": "upgrade"});
    let object = json!({
        "metadata": {"name": "upgrade", "labels": labels},
        "spec": {"clusterID": "upgrade"},
    });
    objects
        .create("core.liqo.io/v1beta1", "ForeignCluster", object)
        .await?;
    let condition = json!({"type": "AuthTenantStatus", "status": "Ready", "reason": "TenantReady",
        "message": "of the earlier release", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let disabled = json!({"enabled": false});
    let status = json!({"status": {
        "role": "Consumer",
        "apiServerUrl": "https://192.0.2.1:6443",
        "tenantNamespace": {"local": TENANT, "remote": "liqo-tenant-rome"},
        "modules": {
            "authentication": {"enabled": true, "conditions": [condition]},
            "networking": disabled,
            "offloading": disabled,
        },
    }});
    objects
        .merge_status("ForeignCluster", "", "upgrade", &status)
        .await
}

async fn conditions(objects: &Objects) -> Result<Vec<String>> {
    let gateway = objects.of("GatewayServer", TENANT).get("upgrade").await?;
    let conditions = gateway.data["status"]["conditions"].as_array();
    let types = conditions.into_iter().flatten();
    let types = types.filter_map(|it| Some(it["type"].as_str()?.to_owned()));
    Ok(types.collect())
}

/// Returns the operations of the manager's entries of a subresource in `managedFields`.
fn operations(object: &DynamicObject, subresource: &str) -> Vec<String> {
    let entries = object.managed_fields().iter().filter(|it| {
        it.manager.as_deref() == Some(FIELD_MANAGER)
            && it.subresource.as_deref().unwrap_or_default() == subresource
    });
    entries.filter_map(|it| it.operation.clone()).collect()
}

/// Writes objects with the field manager and operations of release ea9b234.
struct Objects(Client);

impl Objects {
    fn of(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let api_version = match kind {
            "Network" | "IP" => "ipam.liqo.io/v1alpha1",
            "GatewayServer" => "networking.liqo.io/v1beta1",
            "ForeignCluster" => "core.liqo.io/v1beta1",
            _ => "v1",
        };
        let resource = resource(api_version, kind);
        if namespace.is_empty() {
            return Api::all_with(self.0.clone(), &resource);
        }
        Api::namespaced_with(self.0.clone(), namespace, &resource)
    }

    async fn create(
        &self,
        api_version: &str,
        kind: &str,
        mut object: Value,
    ) -> Result<DynamicObject> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        let resource = resource(api_version, kind);
        let api = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.0.clone(), namespace, &resource),
            None => Api::all_with(self.0.clone(), &resource),
        };
        let object = serde_json::from_value(object)?;
        let created = api.create(&params, &object).await;
        created.with_context(|| format!("failed to create a {kind}"))
    }

    async fn merge(&self, kind: &str, namespace: &str, name: &str, patch: &Value) -> Result<()> {
        let patch = Patch::Merge(patch);
        let api = self.of(kind, namespace);
        api.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn merge_status(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<()> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let api = self.of(kind, namespace);
        api.patch_status(name, &params, &Patch::Merge(patch))
            .await?;
        Ok(())
    }
}

fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
