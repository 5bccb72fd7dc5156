//! All objects of a cluster that a peering could leave behind.

use crate::authentication::site::Site;
use crate::fixture::{Deadline, SOON, until};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::discovery::{ApiCapabilities, Discovery, verbs};
use kube::{Api, ResourceExt as _};
use std::collections::BTreeSet;

/// The IP of the API server, which the controller manager creates at its start, with or without peers.
const OF_THE_CLUSTER: &str = "IP liqo/api-server";

/// The objects of a cluster, as `Kind namespace/name`.
#[derive(Debug)]
pub(crate) struct Traces(BTreeSet<String>);

impl Traces {
    /// Reads the objects of a cluster without peers. Tenant namespaces are not part of them: a peering deletes them.
    pub(crate) async fn before(site: &Site) -> Result<Self> {
        site.secret("liqo", "authentication-keys", "privateKey")
            .await?;
        let mut objects = read(site).await?;
        objects.retain(|it| !it.contains("liqo-tenant-"));

        Ok(Self(objects))
    }

    /// Waits until a cluster has these objects and no others.
    pub(crate) async fn until_restored(&self, site: &Site) -> Result<()> {
        let what = format!("the end of all traces in {}", site.name);
        until(Deadline::after(SOON), &what, async || {
            let now = read(site).await?;
            let left: Vec<_> = now.difference(&self.0).collect();
            let missing: Vec<_> = self.0.difference(&now).collect();
            ensure!(left.is_empty(), "left: {left:?}");
            ensure!(missing.is_empty(), "missing: {missing:?}");
            Ok(())
        })
        .await
    }
}

async fn read(site: &Site) -> Result<BTreeSet<String>> {
    let mut kinds = vec![
        ApiResource::erase::<CertificateSigningRequest>(&()),
        ApiResource::erase::<ClusterRoleBinding>(&()),
        ApiResource::erase::<Namespace>(&()),
        ApiResource::erase::<RoleBinding>(&()),
        ApiResource::erase::<Secret>(&()),
        ApiResource::erase::<ServiceAccount>(&()),
    ];
    let discovery = Discovery::new(site.client.clone()).run().await?;
    let is_listed = |(_, capabilities): &(ApiResource, ApiCapabilities)| {
        capabilities.supports_operation(verbs::LIST)
    };
    let groups = discovery
        .groups()
        .filter(|it| it.name().ends_with("liqo.io"));
    let of_liqo = groups.flat_map(|group| group.recommended_resources());
    kinds.extend(of_liqo.filter(is_listed).map(|(kind, _)| kind));
    ensure!(kinds.len() > 20, "the kinds of Liqo are missing: {kinds:?}");
    let mut objects = BTreeSet::new();
    for kind in kinds {
        let api: Api<DynamicObject> = Api::all_with(site.client.clone(), &kind);
        let list = api.list_metadata(&ListParams::default()).await;
        let list = list.with_context(|| format!("failed to list {}", kind.plural))?;
        let name = |it: &kube::core::PartialObjectMeta<DynamicObject>| {
            let namespace = it.namespace().unwrap_or_default();
            format!("{} {namespace}/{}", kind.kind, it.name_any())
        };
        objects.extend(list.items.iter().map(name));
    }
    objects.remove(OF_THE_CLUSTER);

    Ok(objects)
}
