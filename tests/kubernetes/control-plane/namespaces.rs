//! Tests of offloaded namespaces: two clusters with managers that have the rights of the chart, without virtual kubelets.

use crate::authentication::site::{self, Site};
use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use crate::liqoctl::run;
use crate::peering::{Peering, api, is_clean};
use anyhow::{Context as _, Result, bail, ensure};
use control_api::{NamespaceMap, NamespaceOffloading, ResourceSlice, VirtualNode};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_namespace_is_offloaded_and_withdrawn,
        a_withdrawn_namespace_outlasts_the_objects_of_its_consumer,
        unpeer_ends_the_namespaces_of_the_consumer,
    );
}

/// Kinds that a virtual kubelet of upstream lists before it reflects anything, with their groups.
const LISTED: [(&str, &str, &str); 9] = [
    ("", "v1", "Pod"),
    ("", "v1", "ConfigMap"),
    ("", "v1", "Secret"),
    ("", "v1", "Service"),
    ("", "v1", "PersistentVolumeClaim"),
    ("", "v1", "Event"),
    ("networking.k8s.io", "v1", "Ingress"),
    ("offloading.liqo.io", "v1beta1", "ShadowPod"),
    ("offloading.liqo.io", "v1beta1", "ShadowEndpointSlice"),
];

/// Peers, and waits for the VirtualNode.
async fn peered() -> Result<Peering> {
    let peering = Peering::start().await?;
    peer(&peering).await?;

    Ok(peering)
}

async fn peer(peering: &Peering) -> Result<()> {
    peering.peer().await?;
    peering
        .until_resources("Accepted", "ResourceSliceResourcesAccepted")
        .await?;
    let nodes: Api<VirtualNode> = api(&peering.rome);
    until(Deadline::after(SOON), "the VirtualNode", async || {
        Ok(nodes.get("milan").await?)
    })
    .await?;

    Ok(())
}

pub(crate) async fn offload(rome: &Site, namespace: &str, spec: &Value) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    rome.apply(&object).await?;
    rome.apply(&json!({
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "NamespaceOffloading",
        "metadata": {"name": "offloading", "namespace": namespace},
        "spec": spec,
    }))
    .await
}

pub(crate) async fn until_phase(rome: &Site, namespace: &str, phase: &str) -> Result<Value> {
    let offloadings: Api<NamespaceOffloading> = Api::namespaced(rome.client.clone(), namespace);
    until(
        Deadline::after(SOON),
        &format!("phase {phase}"),
        async || {
            let object = json!(offloadings.get("offloading").await?);
            ensure!(
                object["status"]["offloadingPhase"] == phase,
                "{}",
                object["status"]
            );
            Ok(object)
        },
    )
    .await
}

/// Waits until a namespace is gone. Kubernetes takes seconds to empty it.
async fn until_gone(site: &Site, namespace: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(site.client.clone());
    until(
        Deadline::after(SOON),
        &format!("the deletion of {namespace}"),
        async || {
            let left = namespaces.get_opt(namespace).await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        },
    )
    .await
}

/// Returns a client with the credentials of the ResourceSlice, as the virtual kubelet has them.
pub(crate) async fn kubelet(rome: &Site) -> Result<Client> {
    let secret = rome
        .secret(
            &rome.tenant_namespace(),
            "kubeconfig-resourceslice-milan",
            "kubeconfig",
        )
        .await?;
    site::client(&String::from_utf8(secret)?).await
}

/// Lists the objects of a kind in a namespace; returns whether that is permitted.
async fn may_list(
    client: &Client,
    (group, version, kind): (&str, &str, &str),
    namespace: &str,
) -> Result<bool> {
    let kind = GroupVersionKind::gvk(group, version, kind);
    let resource = kube::discovery::ApiResource::from_gvk(&kind);
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    match objects.list(&ListParams::default()).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(false),
        Err(error) => Err(error).with_context(|| format!("{kind:?}")),
    }
}

async fn a_namespace_is_offloaded_and_withdrawn(_: &'static Fixture) -> Result<()> {
    let Peering { rome, milan } = &peered().await?;
    let maps: Api<NamespaceMap> = api(rome);
    ensure!(
        maps.list(&ListParams::default()).await?.items.is_empty(),
        "a map without entries"
    );
    offload(rome, "shop", &json!({})).await?;
    let object = until_phase(rome, "shop", "Ready").await?;
    ensure!(
        object["status"]["remoteNamespaceName"] == "shop-rome",
        "{object}"
    );
    ensure!(object["status"]["observedGeneration"] == 1, "{object}");

    let namespaces: Api<Namespace> = Api::all(milan.client.clone());
    let metadata = json!(namespaces.get("shop-rome").await?.metadata);
    ensure!(
        metadata["labels"]["liqo.io/remote-cluster-id"] == "rome",
        "{metadata}"
    );
    ensure!(
        metadata["labels"]["pod-security.kubernetes.io/enforce"] == "baseline",
        "{metadata}"
    );
    let local: Api<Namespace> = Api::all(rome.client.clone());
    let labels = json!(local.get("shop").await?.metadata.labels);
    ensure!(labels["liqo.io/scheduling-enabled"] == "true", "{labels}");
    let kubelet = kubelet(rome).await?;
    for kind in LISTED {
        ensure!(
            may_list(&kubelet, kind, "shop-rome").await?,
            "{kind:?} in its namespace"
        );
        ensure!(
            !may_list(&kubelet, kind, "default").await?,
            "{kind:?} in another namespace"
        );
    }

    // A second namespace whose name is taken, and one that the selector excludes.
    offload(
        rome,
        "books",
        &json!({"namespaceMappingStrategy": "SelectedName", "remoteNamespaceName": "shop-rome"}),
    )
    .await?;
    until_phase(rome, "books", "AllFailed").await?;
    let none = json!({"clusterSelector": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "region", "operator": "In", "values": ["A"]}]},
    ]}});
    offload(rome, "music", &none).await?;
    until_phase(rome, "music", "NoClusterSelected").await?;

    // The provider creates what someone deletes, and repairs the binding.
    let uid = namespaces.get("shop-rome").await?.metadata.uid;
    namespaces
        .delete("shop-rome", &DeleteParams::default())
        .await?;
    until(Deadline::after(SOON), "another namespace", async || {
        let present = namespaces.get("shop-rome").await?;
        ensure!(present.metadata.uid != uid, "{:?}", present.status);
        Ok(())
    })
    .await?;
    until_phase(rome, "shop", "Ready").await?;
    let bindings: Api<RoleBinding> = Api::namespaced(milan.client.clone(), "shop-rome");
    let patch = Patch::Merge(json!({"subjects": []}));
    let refused = bindings
        .patch("liqo-tenant-rome", &PatchParams::default(), &patch)
        .await;
    let Err(kube::Error::Api(status)) = refused else {
        bail!("other subjects were allowed: {refused:?}");
    };
    ensure!(
        status.message.contains("liqo-offloading-bindings"),
        "{status:?}"
    );
    bindings
        .delete("liqo-tenant-rome", &DeleteParams::default())
        .await?;
    until(Deadline::after(SOON), "the binding", async || {
        ensure!(may_list(&kubelet, LISTED[0], "shop-rome").await?);
        Ok(())
    })
    .await?;

    for namespace in ["shop", "books", "music"] {
        let offloadings: Api<NamespaceOffloading> = Api::namespaced(rome.client.clone(), namespace);
        offloadings
            .delete("offloading", &DeleteParams::default())
            .await?;
    }
    for namespace in ["shop", "books", "music"] {
        let offloadings: Api<NamespaceOffloading> = Api::namespaced(rome.client.clone(), namespace);
        until(
            Deadline::after(SOON),
            "the end of the offloading",
            async || {
                let left = offloadings.get_opt("offloading").await?;
                ensure!(left.is_none(), "{left:?}");
                Ok(())
            },
        )
        .await?;
    }
    ensure!(
        namespaces.get_opt("shop-rome").await?.is_none(),
        "it goes first"
    );
    let labels = json!(local.get("shop").await?.metadata.labels);
    ensure!(labels["liqo.io/scheduling-enabled"].is_null(), "{labels}");

    Ok(())
}

/// The consumer has no virtual kubelet here, so the test announces that objects are removed, and removes them.
async fn a_withdrawn_namespace_outlasts_the_objects_of_its_consumer(
    _: &'static Fixture,
) -> Result<()> {
    let Peering { rome, milan } = &peered().await?;
    offload(rome, "shop", &json!({})).await?;
    until_phase(rome, "shop", "Ready").await?;
    let maps: Api<NamespaceMap> = api(milan);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {
        "liqo.io/removes-reflected-objects": "true",
    }}}));
    maps.patch("milan", &PatchParams::default(), &patch).await?;
    let root_ca = "kube-root-ca.crt.rome";
    let config_maps: Api<ConfigMap> = Api::namespaced(milan.client.clone(), "shop-rome");
    let object = serde_json::from_value(json!({"metadata": {"name": root_ca}}))?;
    config_maps.create(&PostParams::default(), &object).await?;

    let offloadings: Api<NamespaceOffloading> = Api::namespaced(rome.client.clone(), "shop");
    offloadings
        .delete("offloading", &DeleteParams::default())
        .await?;
    until(Deadline::after(SOON), "the withdrawal", async || {
        let status = json!(maps.get("milan").await?.status);
        let phase = &status["currentMapping"]["shop"]["phase"];
        ensure!(phase == "Terminating", "{status}");
        Ok(())
    })
    .await?;
    let namespaces: Api<Namespace> = Api::all(milan.client.clone());
    let present = namespaces.get("shop-rome").await?;
    ensure!(present.metadata.deletion_timestamp.is_none(), "{present:?}");

    // Sooner than the limit, which is 10 s after the withdrawal.
    config_maps
        .delete(root_ca, &DeleteParams::default())
        .await?;
    until(
        Deadline::after(Duration::from_secs(5)),
        "the deletion of the namespace",
        async || {
            let present = namespaces.get_opt("shop-rome").await?;
            let metadata = present.map(|it| it.metadata);
            ensure!(
                metadata.is_none_or(|it| it.deletion_timestamp.is_some()),
                "it stays"
            );
            Ok(())
        },
    )
    .await?;

    until_gone(milan, "shop-rome").await
}

async fn unpeer_ends_the_namespaces_of_the_consumer(_: &'static Fixture) -> Result<()> {
    let peering = peered().await?;
    offload(
        &peering.rome,
        "shop",
        &json!({"namespaceMappingStrategy": "EnforceSameName"}),
    )
    .await?;
    until_phase(&peering.rome, "shop", "Ready").await?;
    // The RoleBindings of its namespaces are no reason to refuse it further certificates.
    let words = [
        "create",
        "resourceslice",
        "more",
        "--cpu=1",
        "--remote-cluster-id=milan",
    ];
    let out = run(&peering.rome, &words).await?;
    ensure!(out.contains("ResourceSlice resources: Accepted"), "{out}");
    let slices: Api<ResourceSlice> = api(&peering.rome);
    slices.delete("more", &DeleteParams::default()).await?;
    peering.unpeer().await?;

    is_clean(&peering.rome).await?;
    is_clean(&peering.milan).await?;
    until_gone(&peering.milan, "shop").await?;
    until_phase(&peering.rome, "shop", "NoClusterSelected").await?;

    // The namespace is still offloaded, so the next peering needs no further command.
    peer(&peering).await?;
    until_phase(&peering.rome, "shop", "Ready").await?;

    Ok(())
}
