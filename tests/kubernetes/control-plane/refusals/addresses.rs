//! Addresses of offloaded pods while networking with the provider is off.

use super::scene::Scene;
use crate::authentication::site::{Site, tenant_namespace};
use crate::fixture::{Deadline, Fixture, SOON, until};
use crate::upstream::offloading::process::VirtualKubelet;
use crate::upstream::rest::Rest;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// An address that nothing in `rome` uses.
const FREE: &str = "192.168.77.5";

/// Addresses in the pod CIDR, the service CIDR and the external CIDR of `rome`.
const USED: [(&str, &str, &str); 3] = [
    ("of-pods", "10.244.3.4", "10.244.0.0/16"),
    ("of-services", "10.96.0.77", "10.96.0.0/16"),
    ("of-ips", "10.70.0.9", "10.70.0.0/16"),
];

/// An address of `milan` could also be that of a pod in the network of the peer `turin`, with which networking is on.
pub(super) async fn without_networking_no_pod_has_an_address_that_is_in_use_here(
    _: &'static Fixture,
) -> Result<()> {
    let peering = Scene::clusters().await?;
    let rome = Rest::new(peering.rome.client.clone(), "kubectl");
    let mapped = connect_turin(&peering.rome, &rome).await?;
    let networks = names(&rome).await?;
    peering.peer().await?;
    let kubelet = VirtualKubelet::start(&peering.rome).await?;
    let mut scene = Scene::offload(peering, kubelet).await?;

    let none = json!([]);
    scene.create("free", "1", &none).await?;
    let pod = scene.run_at("free", Some(FREE)).await?;
    ensure!(pod["status"]["podIP"] == FREE, "{pod}");
    ensure!(scene.warnings("free").await?.is_empty());
    let prefix = mapped.split_once('/').context("no CIDR")?.0;
    let of_turin = ("of-turin", prefix, mapped.as_str());
    for (name, address, cidr) in USED.into_iter().chain([of_turin]) {
        scene.create(name, "1", &none).await?;
        let pod = scene.run_at(name, Some(address)).await?;
        let status = &pod["status"];
        ensure!(
            status["podIP"].is_null() && status["podIPs"].is_null(),
            "{status}"
        );
        until_one_event(&scene, name, (address, cidr)).await?;
    }
    ensure!(names(&scene.rome).await? == networks, "other Networks");

    // The chart's value `networking.reflectIPs=false`.
    let argument = "--disable-ip-reflection=true";
    scene.kubelet.restart_with(&[argument]).await?;
    scene.create("hidden", "1", &none).await?;
    let pod = scene.run_at("hidden", Some("192.168.77.6")).await?;
    ensure!(pod["status"]["podIP"].is_null(), "{pod}");
    ensure!(scene.warnings("hidden").await?.is_empty());
    let key = ("Pod", "shop", "free");
    scene
        .rome
        .until(key, |it| it["status"]["podIP"].is_null())
        .await?;

    Ok(())
}

/// Creates the Configuration of the peer `turin`. Returns the CIDR that its pods have in `rome`.
async fn connect_turin(site: &Site, rome: &Rest) -> Result<String> {
    let namespace = tenant_namespace("turin");
    let labels = json!({"liqo.io/remote-cluster-id": "turin", "liqo.io/tenant-namespace": "true"});
    site.apply(&json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": namespace, "labels": labels},
    }))
    .await?;
    site.apply(&json!({
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "Configuration",
        "metadata": {
            "name": "turin",
            "namespace": namespace,
            "labels": {"liqo.io/remote-cluster-id": "turin"},
        },
        "spec": {"remote": {"cidr": {"pod": ["10.244.0.0/16"], "external": ["10.70.0.0/16"]}}},
    }))
    .await?;
    let key = ("Configuration", namespace.as_str(), "turin");
    let is_mapped = |it: &Value| it["status"]["remote"]["cidr"]["pod"][0].is_string();
    let configuration = rome.until(key, is_mapped).await?;
    let mapped = configuration["status"]["remote"]["cidr"]["pod"][0].as_str();

    Ok(mapped.context("no CIDR")?.to_owned())
}

/// Returns the names of all Networks.
async fn names(rome: &Rest) -> Result<Vec<Value>> {
    let networks = rome.list("Network", "", "").await?;

    Ok(networks
        .iter()
        .map(|it| it["metadata"]["name"].clone())
        .collect())
}

async fn until_one_event(scene: &Scene, pod: &str, (address, cidr): (&str, &str)) -> Result<()> {
    until(Deadline::after(SOON), "the Event", async || {
        let events = scene.warnings(pod).await?;
        ensure!(events.len() == 1, "{events:?}");
        let message = events[0]["message"].as_str().unwrap_or_default();
        let expected = format!("the address {address} at the provider, which is in {cidr} ");
        ensure!(
            events[0]["reason"] == "PodIPNotReflected" && message.contains(&expected),
            "{events:?}"
        );
        Ok(())
    })
    .await
}
