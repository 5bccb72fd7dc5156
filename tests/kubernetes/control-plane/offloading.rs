//! Tests of Quotas and VirtualNodes: a manager with the rights of the chart, and the CRDs' schemas.

use crate::authentication::site::{Site, tenant_namespace};
use crate::fixture::{Deadline, Fixture, LIQO, SOON, Suite, serial, until};
use anyhow::{Context as _, Result, ensure};
use control_api::{Quota, ResourceSlice, VirtualNode};
use k8s_openapi::ByteString;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use rcgen::{CertificateParams, KeyPair};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

pub(crate) fn add(suite: &mut Suite) {
    serial!(suite, an_accepted_slice_has_a_quota_and_a_virtual_node);
}

/// The user of the slice `slice` of the consumer `rome`: SHA-256 of `rome` begins with these digits.
const USER: &str = "slice-a8a4c692b93b";

/// The peer `rome` is the consumer of one slice, and the provider of another one.
async fn an_accepted_slice_has_a_quota_and_a_virtual_node(_: &'static Fixture) -> Result<()> {
    let milan = Site::start("milan", "rome", &[]).await?;
    quota(&milan).await?;

    virtual_node(&milan).await
}

async fn quota(milan: &Site) -> Result<()> {
    let labels = json!({
        "liqo.io/originID": "rome",
        "liqo.io/remote-cluster-id": "rome",
        "liqo.io/remoteID": "milan",
        "liqo.io/replicated": "true",
        "liqo.io/replication": "false",
    });
    milan
        .apply(&slice("slice", &labels, ("rome", "milan")))
        .await?;
    let slices: Api<ResourceSlice> = milan.api();
    let quotas: Api<Quota> = milan.api();
    accept(&slices, "slice", "Accepted").await?;
    let expected = json!({
        "user": USER,
        "limitsEnforcement": "None",
        "resources": {"cpu": "2", "nvidia.com/gpu": "1"},
    });
    until_spec(&quotas, USER, &expected).await?;

    let annotate = |value: Value| {
        Patch::Merge(json!({"metadata": {"annotations": {"liqo.io/cordon": value}}}))
    };
    let parameters = PatchParams::default();
    slices
        .patch("slice", &parameters, &annotate(json!("true")))
        .await?;
    let mut cordoned = expected.clone();
    cordoned["cordoned"] = json!(true);
    until_spec(&quotas, USER, &cordoned).await?;
    slices
        .patch("slice", &parameters, &annotate(Value::Null))
        .await?;
    until_spec(&quotas, USER, &expected).await?;

    accept(&slices, "slice", "Denied").await?;
    until_gone(&quotas, USER).await?;
    accept(&slices, "slice", "Accepted").await?;
    until_spec(&quotas, USER, &expected).await?;
    slices.delete("slice", &DeleteParams::default()).await?;

    until_gone(&quotas, USER).await
}

async fn virtual_node(milan: &Site) -> Result<()> {
    let labels = json!({
        "liqo.io/remote-cluster-id": "rome",
        "liqo.io/remoteID": "rome",
        "liqo.io/replication": "true",
    });
    milan
        .apply(&slice("slice", &labels, ("milan", "rome")))
        .await?;
    let parameters =
        json!({"apiServer": "https://192.0.2.1:6443", "signedCRT": certificate(milan).await?});
    milan
        .apply(&json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "Identity",
            "metadata": {
                "name": "resourceslice-slice",
                "namespace": tenant_namespace("rome"),
                "labels": {"liqo.io/remote-cluster-id": "rome", "liqo.io/resourceslice-name": "slice"},
            },
            "spec": {"clusterID": "rome", "type": "ResourceSlice", "authParams": parameters},
        }))
        .await?;
    let slices: Api<ResourceSlice> = milan.api();
    let nodes: Api<VirtualNode> = milan.api();
    accept(&slices, "slice", "Accepted").await?;
    let expected = json!({
        "clusterID": "rome",
        "createNode": true,
        "disableNetworkCheck": false,
        "kubeconfigSecretRef": {"name": "kubeconfig-resourceslice-slice"},
        "labels": {"liqo.io/remote-cluster-id": "rome", "region": "A"},
        "resourceQuota": {"hard": {"cpu": "2", "nvidia.com/gpu": "1"}},
        "storageClasses": [{"storageClassName": "fast", "default": true}],
    });
    until_spec(&nodes, "slice", &expected).await?;
    until(Deadline::after(SOON), "the status", async || {
        let status = json!(nodes.get("slice").await?.status);
        let conditions = status["conditions"].as_array().context("no conditions")?;
        let is_none = |type_: &str| {
            let mut conditions = conditions.iter();
            conditions.any(|it| it["type"] == type_ && it["status"] == "None")
        };
        ensure!(is_none("VirtualKubelet") && is_none("Node"), "{status}");
        Ok(())
    })
    .await?;

    let finalizers = json!(["virtualnode-controller.liqo.io/finalizer"]);
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    nodes
        .patch("slice", &PatchParams::default(), &patch)
        .await?;
    slices.delete("slice", &DeleteParams::default()).await?;

    until_gone(&nodes, "slice").await
}

/// Returns a certificate of the cluster's key.
async fn certificate(site: &Site) -> Result<ByteString> {
    let key = site
        .secret(LIQO, "authentication-keys", "privateKey")
        .await?;
    let pair = KeyPair::from_pem(&String::from_utf8(key)?)?;
    let certificate = CertificateParams::default().self_signed(&pair)?;

    Ok(ByteString(certificate.pem().into_bytes()))
}

/// Returns a slice of a class that another controller would decide about.
fn slice(name: &str, labels: &Value, (consumer, provider): (&str, &str)) -> Value {
    json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": name,
            "namespace": tenant_namespace("rome"),
            "labels": labels,
            "annotations": {"liqo.io/create-virtual-node": "true"},
        },
        "spec": {"class": "laboratory", "consumerClusterID": consumer, "providerClusterID": provider},
    })
}

/// Writes the provider's decision about the resources of a slice.
async fn accept(slices: &Api<ResourceSlice>, name: &str, verdict: &str) -> Result<()> {
    let status = json!({
        "conditions": [
            {"type": "Authentication", "status": "Accepted"},
            {"type": "Resources", "status": verdict},
        ],
        "resources": {"cpu": 2, "nvidia.com/gpu": "1", "memory": "-1"},
        "nodeLabels": {"region": "A", "kubernetes.io/hostname": "stolen"},
        "storageClasses": [{"storageClassName": "fast", "default": true}],
    });
    let patch = Patch::Merge(json!({"status": status}));
    slices
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Waits until an object has a spec.
async fn until_spec<K>(api: &Api<K>, name: &str, expected: &Value) -> Result<()>
where
    K: Clone + Debug + DeserializeOwned + serde::Serialize,
{
    until(Deadline::after(SOON), name, async || {
        let object = serde_json::to_value(api.get(name).await?)?;
        ensure!(object["spec"] == *expected, "{}", object["spec"]);
        Ok(())
    })
    .await
}

async fn until_gone<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    until(Deadline::after(SOON), "the deletion", async || {
        ensure!(api.get_opt(name).await?.is_none(), "{name} exists");
        Ok(())
    })
    .await
}

impl Site {
    /// Returns the objects of the peer.
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &tenant_namespace("rome"))
    }
}
