//! The writes of upstream's offloading controllers and webhooks at the provider `milan`, for the consumer `rome`.

use super::golden::Golden;
use super::node::Node;
use crate::authentication::site::Site;
use crate::fixture::{Deadline, SOON, until};
use crate::upstream::provider::Provider;
use crate::upstream::rest::Rest;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

/// The namespace of `demo`.
pub(super) const NAMESPACE: &str = "demo-rome";

const RBAC: &str = "rbac.authorization.k8s.io";

/// The finalizer of a NamespaceMap.
const FINALIZER: &str = "namespacemap-controller.liqo.io/finalizer";

/// Upstream's controllers.
pub(super) struct Controllers<'a> {
    pub(super) rest: Rest,
    provider: Provider<'a>,
    node: Node<'a>,
}

impl<'a> Controllers<'a> {
    /// Replaces the rights and policies of the chart of this project by those of upstream's.
    pub(super) async fn install(milan: &'a Site) -> Result<Self> {
        let all = ListParams::default();
        let delete = DeleteParams::default();
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(milan.client.clone());
        bindings.delete_collection(&delete, &all).await?;
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(milan.client.clone());
        policies.delete_collection(&delete, &all).await?;
        let provider = Provider::new(milan);
        let rest = provider.rest.clone();
        for role in roles() {
            milan.apply(&role).await?;
        }
        let name = "liqo-virtual-kubelet-remote-clusterwide";
        rest.create(&json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("liqo-binding-{name}-rome")},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "rome"}],
        }))
        .await?;

        Ok(Self {
            rest,
            provider,
            node: Node::add(milan, "milan-cp", NAMESPACE).await?,
        })
    }

    /// Creates the namespace that the consumer requests.
    pub(super) async fn map(&self) -> Result<()> {
        let map = ("NamespaceMap", "liqo-tenant-rome", "milan");
        let requested = |it: &Value| it["spec"]["desiredMapping"] == json!({"demo": NAMESPACE});
        let mut map = self.rest.until(map, requested).await?;
        self.provider.is_replica(&map)?;
        map["metadata"]["finalizers"] = json!([FINALIZER]);
        let mut map = self.rest.update(&map).await?;
        let annotations = json!({
            "liqo.io/managed-by-namespace-map": "liqo-tenant-rome/milan",
            "liqo.io/original-name": "demo",
        });
        self.rest
            .create(&json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": NAMESPACE,
                    "labels": {"liqo.io/remote-cluster-id": "rome"},
                    "annotations": annotations,
                },
            }))
            .await?;
        self.rest
            .create(&json!({
                "apiVersion": format!("{RBAC}/v1"),
                "kind": "RoleBinding",
                "metadata": {"name": "liqo-tenant-rome", "namespace": NAMESPACE},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "liqo-virtual-kubelet-remote"},
                "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "rome"}],
            }))
            .await?;
        let entry = json!({"phase": "Accepted", "remoteNamespace": NAMESPACE});
        map["status"] = json!({"currentMapping": {"demo": entry}});
        self.rest.update_part("status", &map).await?;

        Ok(())
    }

    /// Removes the namespace that the consumer no longer requests.
    pub(super) async fn unmap(&self) -> Result<()> {
        let map = ("NamespaceMap", "liqo-tenant-rome", "milan");
        let is_empty = |it: &Value| {
            let desired = it["spec"]["desiredMapping"].as_object();
            desired.is_none_or(serde_json::Map::is_empty)
        };
        let mut map = self.rest.until(map, is_empty).await?;
        map["status"]["currentMapping"]["demo"]["phase"] = json!("Terminating");
        let mut map = self.rest.update_part("status", &map).await?;
        self.rest.delete("Namespace", "", NAMESPACE).await?;
        for pod in self.rest.list("Pod", NAMESPACE, "").await? {
            let name = pod["metadata"]["name"].as_str();
            self.node.remove(name.context("no name")?).await?;
        }
        let what = "the end of the namespace";
        until(Deadline::after(SOON), what, async || {
            let left = self.rest.get_opt("Namespace", "", NAMESPACE).await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await?;
        map["status"] = json!({});
        self.rest.update_part("status", &map).await?;

        Ok(())
    }

    /// Creates the pod of a ShadowPod, which gets its label from the webhook, and lets it start.
    pub(super) async fn run(&self, name: &str) -> Result<()> {
        let key = ("ShadowPod", NAMESPACE, name);
        let mut shadow = self.rest.until(key, |_| true).await?;
        shadow["metadata"]["labels"]["liqo.io/creator-user"] = json!(Golden::ROME.user());
        let shadow = self.rest.update(&shadow).await?;
        let mut labels = shadow["metadata"]["labels"].clone();
        labels["liqo.io/managed-by"] = json!("shadowpod");
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": labels,
                "annotations": shadow["metadata"]["annotations"],
                "ownerReferences": [{
                    "apiVersion": "offloading.liqo.io/v1beta1",
                    "blockOwnerDeletion": true,
                    "controller": true,
                    "kind": "ShadowPod",
                    "name": name,
                    "uid": shadow["metadata"]["uid"],
                }],
            },
            "spec": shadow["spec"]["pod"],
        });
        // The namespace gets its ServiceAccount a moment after it exists.
        until(Deadline::after(SOON), "the pod", async || {
            self.rest.create(&pod).await
        })
        .await?;
        self.node.bind(name, "milan-cp").await?;
        for status in Golden::ROME.remote_statuses()? {
            self.report(name, &status).await?;
        }

        Ok(())
    }

    /// Reports the status of a pod as its kubelet does. The controller then writes labels, annotations and phase, changed or not.
    pub(super) async fn report(&self, name: &str, status: &Value) -> Result<()> {
        let pod = self.node.report(name, status).await?;
        let metadata = &pod["metadata"];
        let applied = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": metadata["labels"],
                "annotations": metadata["annotations"],
            },
        });
        self.rest.apply(&applied, "shadow-pod").await?;
        let mut shadow = self.rest.get("ShadowPod", NAMESPACE, name).await?;
        shadow["status"] = json!({"phase": status["phase"]});
        self.rest.update_part("status", &shadow).await?;

        Ok(())
    }

    /// Deletes the pod of a ShadowPod that is gone, as Kubernetes' garbage collector, and ends it.
    pub(super) async fn collect(&self, name: &str) -> Result<()> {
        until(
            Deadline::after(SOON),
            "the end of a ShadowPod",
            async || {
                let left = self.rest.get_opt("ShadowPod", NAMESPACE, name).await?;
                ensure!(left.is_none(), "{left:?}");
                Ok(())
            },
        )
        .await?;

        self.rest.delete("Pod", NAMESPACE, name).await?;
        let [.., mut status] = Golden::ROME.remote_statuses()?;
        status["phase"] = json!("Succeeded");
        self.node.end(name, &status).await
    }

    /// The pod of a ShadowPod completes. Upstream's controller keeps the phase, and the pod is deleted before the consumer may see
    /// its end, for example with its node.
    pub(super) async fn finish(&self, name: &str) -> Result<()> {
        let mut shadow = self.rest.get("ShadowPod", NAMESPACE, name).await?;
        shadow["status"] = json!({"phase": "Succeeded"});
        self.rest.update_part("status", &shadow).await?;

        self.node.remove(name).await
    }
}

/// The ClusterRoles of consumers as upstream's chart has them (v1.2.0).
fn roles() -> [Value; 2] {
    let role = |name: &str, rules: Value| {
        json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": rules,
        })
    };
    let all = json!([
        "create", "delete", "get", "list", "patch", "update", "watch"
    ]);
    let read = json!(["get", "list", "watch"]);
    let reflected = [
        "configmaps",
        "events",
        "persistentvolumeclaims",
        "secrets",
        "services",
    ];

    [
        role(
            "liqo-virtual-kubelet-remote",
            json!([
                {"apiGroups": [""], "resources": reflected, "verbs": all},
                {"apiGroups": [""], "resources": ["pods/attach", "pods/exec"], "verbs": ["create"]},
                {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get", "list"]},
                {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["create", "get"]},
                {"apiGroups": ["", "metrics.k8s.io"], "resources": ["pods"], "verbs": read},
                {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": all},
                {
                    "apiGroups": ["offloading.liqo.io"],
                    "resources": ["shadowendpointslices", "shadowpods"],
                    "verbs": all,
                },
            ]),
        ),
        role(
            "liqo-virtual-kubelet-remote-clusterwide",
            json!([{"apiGroups": ["metrics.liqo.io"], "resources": ["scrape/metrics"], "verbs": read}]),
        ),
    ]
}
