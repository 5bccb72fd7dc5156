//! Tests of a whole peering without networking: two clusters, with the requests and waits of upstream's `liqoctl`.

mod interrupted;
mod renewal;

use crate::authentication::site::{self, Site, tenant_namespace};
use crate::authentication::{tenant, user};
use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use anyhow::{Context as _, Result, ensure};
use control_api::{Identity, NamespaceMap, Quota, Renew, ResourceSlice, Tenant, VirtualNode};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_peering_grants_a_slice_and_ends_without_a_trace,
        a_drained_consumer_comes_back_without_a_write_of_its_own,
    );
    interrupted::add(suite);
    renewal::add(suite);
}

/// The consumer `rome` and the provider `milan`.
pub(crate) struct Peering {
    pub(crate) rome: Site,
    pub(crate) milan: Site,
}

impl Peering {
    pub(crate) async fn start() -> Result<Self> {
        let rome = Site::start("rome", "milan", &[]).await?;
        let labels = "--cluster-labels=region=B";
        let milan = Site::start("milan", "rome", &[labels]).await?;

        Ok(Self { rome, milan })
    }

    /// Authenticates `rome`, and creates a ResourceSlice.
    pub(crate) async fn peer(&self) -> Result<()> {
        let nonce = self.milan.nonce().await?;
        let key = self.rome.cluster_key().await?;
        let signature = self.rome.signature(&nonce).await?;
        self.milan.apply(&tenant(&key, &signature)?).await?;
        let status = self.milan.status().await?;
        self.rome.credentials(&status["authParams"]).await?;
        self.rome.apply(&slice("milan")).await
    }

    /// Ends the peering in the order of `liqoctl unpeer`.
    pub(crate) async fn unpeer(&self) -> Result<()> {
        let slices: Api<ResourceSlice> = api(&self.rome);
        slices.delete("milan", &DeleteParams::default()).await?;
        gone(&slices).await?;
        gone(&api::<VirtualNode>(&self.rome)).await?;
        let identities: Api<Identity> = api(&self.rome);
        identities
            .delete("controlplane-milan", &DeleteParams::default())
            .await?;
        gone(&identities).await?;

        self.milan.delete_tenant().await
    }

    /// Waits for the verdict about the resources.
    pub(crate) async fn until_resources(&self, status: &str, reason: &str) -> Result<Value> {
        let slices: Api<ResourceSlice> = api(&self.rome);
        let what = format!("Resources {status}, {reason}");
        until(Deadline::after(SOON), &what, async || {
            let slice = json!(slices.get("milan").await?);
            let conditions = slice["status"]["conditions"].as_array().cloned();
            let conditions = conditions.context("no conditions")?;
            let is_wanted = |it: &Value| {
                it["type"] == "Resources" && it["status"] == status && it["reason"] == reason
            };
            ensure!(conditions.iter().any(is_wanted), "{conditions:?}");
            Ok(slice)
        })
        .await
    }
}

/// Returns a ResourceSlice with 20 processors, for which a VirtualNode is created.
pub(crate) fn slice(name: &str) -> Value {
    json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": name,
            "namespace": tenant_namespace("milan"),
            "labels": {
                "liqo.io/remote-cluster-id": "milan",
                "liqo.io/remoteID": "milan",
                "liqo.io/replication": "true",
            },
            "annotations": {"liqo.io/create-virtual-node": "true"},
        },
        "spec": {"class": "default", "providerClusterID": "milan", "resources": {"cpu": "20"}},
    })
}

pub(crate) fn api<K>(site: &Site) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    Api::namespaced(site.client.clone(), &site.tenant_namespace())
}

/// Waits until a tenant namespace has no objects of a type.
pub(crate) async fn gone<K>(objects: &Api<K>) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let what = format!("the deletion of each {}", K::kind(&()));
    until(Deadline::after(SOON), &what, async || {
        let left = objects.list(&ListParams::default()).await?.items;
        let names: Vec<_> = left.iter().map(|it| it.name_any()).collect();
        ensure!(names.is_empty(), "{names:?}");
        Ok(())
    })
    .await
}

pub(crate) async fn is_clean(site: &Site) -> Result<()> {
    gone(&api::<Tenant>(site)).await?;
    gone(&api::<Identity>(site)).await?;
    gone(&api::<ResourceSlice>(site)).await?;
    gone(&api::<Renew>(site)).await?;
    gone(&api::<NamespaceMap>(site)).await?;
    gone(&api::<VirtualNode>(site)).await?;
    gone(&api::<Quota>(site)).await?;
    gone(&api::<Secret>(site)).await?;
    let requests: Api<CertificateSigningRequest> = Api::all(site.client.clone());

    gone(&requests).await
}

async fn a_peering_grants_a_slice_and_ends_without_a_trace(_: &'static Fixture) -> Result<()> {
    let peering = Peering::start().await?;
    // A second life of the same peering needs nothing else.
    for _ in 0..2 {
        peering.peer().await?;
        let slice = peering
            .until_resources("Accepted", "ResourceSliceResourcesAccepted")
            .await?;
        ensure!(slice["status"]["resources"]["cpu"] == "20", "{slice}");
        let nodes: Api<VirtualNode> = api(&peering.rome);
        let node = until(Deadline::after(SOON), "the VirtualNode", async || {
            Ok(json!(nodes.get("milan").await?))
        })
        .await?;
        ensure!(node["spec"]["labels"]["region"] == "B", "{node}");
        let secret = node["spec"]["kubeconfigSecretRef"]["name"]
            .as_str()
            .context("no Secret")?;
        let namespace = peering.rome.tenant_namespace();
        let text = peering
            .rome
            .secret(&namespace, secret, "kubeconfig")
            .await?;
        let consumer: Client = site::client(&String::from_utf8(text)?).await?;
        let (name, groups) = user(&consumer).await?;
        ensure!(
            name == "milan-a8a4c692b93b" && groups.contains(&"rome".to_owned()),
            "{name} {groups:?}"
        );
        let quotas: Api<Quota> = api(&peering.milan);
        until(Deadline::after(SOON), "the Quota", async || {
            Ok(quotas.get(&name).await?)
        })
        .await?;

        peering.unpeer().await?;
        is_clean(&peering.rome).await?;
        is_clean(&peering.milan).await?;
    }

    // Kubernetes empties a tenant namespace, which policies of consumers must not prevent.
    peering.peer().await?;
    peering
        .until_resources("Accepted", "ResourceSliceResourcesAccepted")
        .await?;
    let namespaces: Api<Namespace> = Api::all(peering.milan.client.clone());
    let parameters = DeleteParams::default();
    namespaces
        .delete(&peering.milan.tenant_namespace(), &parameters)
        .await?;
    until(
        Deadline::after(SOON),
        "the deletion of the namespace",
        async || {
            let left = namespaces
                .get_opt(&peering.milan.tenant_namespace())
                .await?;
            ensure!(left.is_none(), "{:?}", left.and_then(|it| it.status));
            Ok(())
        },
    )
    .await
}

async fn a_drained_consumer_comes_back_without_a_write_of_its_own(
    _: &'static Fixture,
) -> Result<()> {
    let peering = Peering::start().await?;
    peering.peer().await?;
    peering
        .until_resources("Accepted", "ResourceSliceResourcesAccepted")
        .await?;

    let tenants: Api<Tenant> = api(&peering.milan);
    let condition = |condition: &str| Patch::Merge(json!({"spec": {"tenantCondition": condition}}));
    let parameters = PatchParams::default();
    tenants
        .patch("rome", &parameters, &condition("Drained"))
        .await?;
    peering
        .until_resources("Denied", "ReplicationForbidden")
        .await?;
    gone(&api::<ResourceSlice>(&peering.milan)).await?;
    gone(&api::<Quota>(&peering.milan)).await?;

    tenants
        .patch("rome", &parameters, &condition("Active"))
        .await?;
    peering
        .until_resources("Accepted", "ResourceSliceResourcesAccepted")
        .await?;
    let quotas: Api<Quota> = api(&peering.milan);
    until(Deadline::after(SOON), "the Quota", async || {
        Ok(quotas.get("milan-a8a4c692b93b").await?)
    })
    .await?;

    Ok(())
}
