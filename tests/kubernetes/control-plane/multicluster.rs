//! Tests of Services that a consumer and a provider export to each other. There are no gateways, so endpoints of peers are not ready.

mod conformance;

use crate::authentication::site::{Site, tenant_namespace};
use crate::fixture::{Deadline, Fixture, LIQO, SOON, Suite, chart, serial, until};
use crate::peering::Peering;
use anyhow::{Context as _, Result, ensure};
use conformance::the_cases_of_the_conformance_suite_pass;
use control_api::{ExportedService, ServiceExport, ServiceImport};
use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        services_are_exported_in_both_directions_until_their_exports_end,
        the_cases_of_the_conformance_suite_pass,
    );
}

const ARGUMENTS: [&str; 1] = ["--multi-cluster"];

/// Host part of the pods in both clusters.
const POD: &str = "0.7";

/// A cluster with the prefix of its pod CIDR.
type Sites<'a> = [(&'a Site, &'static str); 2];

async fn services_are_exported_in_both_directions_until_their_exports_end(
    _: &'static Fixture,
) -> Result<()> {
    let peering = peered().await?;
    let Peering { rome, milan } = &peering;
    let sites: Sites<'_> = [(rome, "10.201"), (milan, "10.202")];

    // The consumer reads what the provider exports.
    export(milan, 80).await?;
    is_imported(&sites, &["milan"]).await?;
    // The consumer's own exports are replicated.
    export(rome, 8080).await?;
    is_imported(&sites, &["milan", "rome"]).await?;
    for (site, _) in &sites {
        let condition = |condition: &Value| condition["reason"] == "PortConflict";
        until_condition(site, "Conflict", condition).await?;
    }

    export(rome, 80).await?;
    for (site, _) in &sites {
        let condition = |condition: &Value| condition["reason"] == "NoConflicts";
        until_condition(site, "Conflict", condition).await?;
        until_condition(site, "Ready", |it| it["reason"] == "Exported").await?;
    }
    rome.crash_manager().await?;
    milan.crash_manager().await?;
    unexport(milan).await?;
    is_imported(&sites, &["rome"]).await?;
    unexport(rome).await?;
    is_imported(&sites, &[]).await?;

    export(milan, 80).await?;
    is_imported(&sites, &["milan"]).await?;
    // As when the value of the chart is set to false.
    let roles: Api<ClusterRole> = Api::all(milan.client.clone());
    let owner = "liqo-controller-manager-multi-cluster";
    roles.delete(owner, &DeleteParams::default()).await?;
    is_imported(&sites, &[]).await?;
    peering.unpeer().await?;
    crate::peering::is_clean(rome).await
}

/// Starts and peers both clusters.
async fn peered() -> Result<Peering> {
    let (rome, milan) = tokio::try_join!(
        Site::start("rome", "milan", &ARGUMENTS),
        Site::start("milan", "rome", &ARGUMENTS),
    )?;
    let sites = [(&rome, "10.201"), (&milan, "10.202")];
    try_join_all(sites.iter().map(|(site, cidr)| prepare(site, cidr))).await?;
    let peering = Peering { rome, milan };
    peering.peer().await?;

    Ok(peering)
}

/// Creates the CRDs, the addresses of both clusters, and the namespace `shop`, which imports Services.
async fn prepare(site: &Site, cidr: &str) -> Result<()> {
    let control_plane = site.control_plane();
    let kinds = ["CustomResourceDefinition"];
    control_plane.install(&chart()?, LIQO, &kinds).await?;
    let other = if cidr == "10.201" { "10.202" } else { "10.201" };
    let peer = &site.peer;
    let metadata = json!({"name": "shop", "labels": {"multicluster.liqo.io/import": "true"}});
    site.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
        .await?;
    for (type_, cidr) in [
        ("pod-cidr", format!("{cidr}.0.0/16")),
        ("external-cidr", "10.70.0.0/16".to_owned()),
        ("service-cidr", "10.96.0.0/16".to_owned()),
    ] {
        let labels = json!({
            "ipam.liqo.io/network-type": type_, "ipam.liqo.io/network-not-remapped": "true",
        });
        site.apply(&json!({
            "apiVersion": "ipam.liqo.io/v1alpha1",
            "kind": "Network",
            "metadata": {"name": type_, "namespace": LIQO, "labels": labels},
            "spec": {"cidr": cidr},
        }))
        .await?;
    }
    site.apply(&json!({
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "Configuration",
        "metadata": {
            "name": peer, "namespace": tenant_namespace(peer), "labels": {"liqo.io/remote-cluster-id": peer},
        },
        "spec": {"remote": {"cidr": {"pod": [format!("{other}.0.0/16")], "external": ["10.70.0.0/16"]}}},
    }))
    .await
}

/// Creates or changes the Service `web`, and exports it.
async fn export(site: &Site, port: u16) -> Result<()> {
    let cidr = if site.name == "rome" {
        "10.201"
    } else {
        "10.202"
    };
    let metadata = |name: &str| json!({"name": name, "namespace": "shop"});
    site.apply(&json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata("web"),
        "spec": {"ports": [{"name": "http", "protocol": "TCP", "port": port}]},
    }))
    .await?;
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata("web"),
        "addressType": "IPv4",
        "endpoints": [{"addresses": [format!("{cidr}.{POD}")], "conditions": {"ready": true}}],
        "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
    });
    slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": "web"});
    site.apply(&slice).await?;

    site.apply(&json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceExport", "metadata": metadata("web"),
    }))
    .await
}

async fn unexport(site: &Site) -> Result<()> {
    let exports: Api<ServiceExport> = Api::namespaced(site.client.clone(), "shop");
    exports.delete("web", &DeleteParams::default()).await?;

    Ok(())
}

/// Waits until both clusters have imported `web` from exactly these clusters.
async fn is_imported(sites: &Sites<'_>, clusters: &[&str]) -> Result<()> {
    for (site, _) in sites {
        let what = format!("the import from {clusters:?} in {}", site.name);
        until(Deadline::after(SOON), &what, async || {
            is_imported_in(site, sites, clusters).await
        })
        .await?;
    }

    Ok(())
}

async fn is_imported_in(site: &Site, sites: &Sites<'_>, clusters: &[&str]) -> Result<()> {
    let imports: Api<ServiceImport> = Api::namespaced(site.client.clone(), "shop");
    let slices: Api<EndpointSlice> = Api::namespaced(site.client.clone(), "shop");
    let services: Api<Service> = Api::namespaced(site.client.clone(), "shop");
    let own = ListParams::default().labels("liqo.io/managed-by=serviceimport");
    let import = json!(imports.get_opt("web").await?);
    let slices = slices.list(&own).await?.items;
    let services = services.list(&own).await?.items;
    let addresses = slices.iter().flat_map(|slice| {
        let cluster = &slice.labels()["multicluster.kubernetes.io/source-cluster"];
        let endpoints = slice.endpoints.iter().flatten();
        endpoints.map(move |it| format!("{cluster} {}", it.addresses.join(",")))
    });
    let addresses: BTreeSet<_> = addresses.collect();
    let expected = sites
        .iter()
        .filter(|(it, _)| clusters.contains(&it.name.as_str()));
    let expected = expected.map(|(it, cidr)| format!("{} {cidr}.{POD}", it.name));
    ensure!(addresses == expected.collect(), "{addresses:?}");
    if clusters.is_empty() {
        ensure!(import.is_null() && services.is_empty(), "{import}");
        let exported: Api<ExportedService> = Api::all(site.client.clone());
        let exported = exported.list(&ListParams::default()).await?.items;
        ensure!(exported.is_empty(), "{exported:?}");
        return Ok(());
    }
    let names = import["status"]["clusters"]
        .as_array()
        .context("no status")?;
    let names: Vec<_> = names.iter().map(|it| it["cluster"].as_str()).collect();
    let wanted: Vec<_> = clusters.iter().map(|it| Some(*it)).collect();
    ensure!(names == wanted, "{import}");
    let [service] = services.as_slice() else {
        anyhow::bail!("not one Service: {services:?}");
    };
    let ip = json!([service.spec.as_ref().and_then(|it| it.cluster_ip.as_ref())]);
    ensure!(import["spec"]["ips"] == ip, "{import}");

    Ok(())
}

async fn until_condition(
    site: &Site,
    type_: &str,
    is_wanted: impl Fn(&Value) -> bool,
) -> Result<()> {
    let exports: Api<ServiceExport> = Api::namespaced(site.client.clone(), "shop");
    let what = format!("the condition {type_} in {}", site.name);
    until(Deadline::after(SOON), &what, async || {
        let export = json!(exports.get("web").await?);
        let conditions = export["status"]["conditions"].as_array();
        let conditions = conditions.into_iter().flatten();
        let mut of_type = conditions.filter(|it| it["type"] == type_);
        ensure!(of_type.any(&is_wanted), "{export}");
        Ok(())
    })
    .await
}
