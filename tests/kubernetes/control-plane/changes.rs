//! Tests of changes of offloaded pods: the manager writes the subresources of a pod, which no kubelet runs.

use crate::authentication::site::Site;
use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use crate::namespaces::{kubelet, offload, until_phase};
use crate::peering::Peering;
use crate::webhooks::metrics::Metrics;
use anyhow::{Context as _, Result, ensure};
use control_api::ShadowPod;
use http::header::CONTENT_TYPE;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        ephemeral_containers_and_resizes_of_a_shadow_pod_reach_its_pod,
    );
}

/// Address of the webhooks of `milan`.
const WEBHOOKS: Ipv4Addr = Ipv4Addr::new(10, 96, 9, 3);

/// Creations of ShadowPods whose reviews are measured.
const REVIEWS: u32 = 200;

/// The namespace of the consumer's pods.
const NAMESPACE: &str = "shop-rome";

/// Provider `milan`, whose consumer `rome` has offloaded a namespace.
struct Offloaded {
    shadow_pods: Api<ShadowPod>,
    /// The pods of the provider, for an administrator.
    pods: Api<Pod>,
    peering: Peering,
}

impl Offloaded {
    async fn start() -> Result<Self> {
        let (rome, milan) = tokio::try_join!(
            Site::start("rome", "milan", &[]),
            Site::start_with_webhooks("milan", "rome", WEBHOOKS),
        )?;
        let peering = Peering { rome, milan };
        peering.peer().await?;
        peering
            .until_resources("Accepted", "ResourceSliceResourcesAccepted")
            .await?;
        offload(&peering.rome, "shop", &json!({})).await?;
        until_phase(&peering.rome, "shop", "Ready").await?;
        let consumer = kubelet(&peering.rome).await?;

        Ok(Self {
            shadow_pods: Api::namespaced(consumer, NAMESPACE),
            pods: Api::namespaced(peering.milan.client.clone(), NAMESPACE),
            peering,
        })
    }

    /// Creates a ShadowPod, and reports its pod as running on a node.
    async fn run(&self) -> Result<()> {
        let (parameters, object) = (PostParams::default(), shadow_pod("web")?);
        until(Deadline::after(SOON), "the webhooks", async || {
            if self.shadow_pods.get_opt("web").await?.is_none() {
                self.shadow_pods.create(&parameters, &object).await?;
            }
            Ok(())
        })
        .await?;
        until(Deadline::after(SOON), "the pod", async || {
            Ok(self.pods.get("web").await?)
        })
        .await?;
        let milan = &self.peering.milan;
        milan
            .apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}))
            .await?;
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"},
            "target": {"kind": "Node", "name": "node-1"},
        });
        post(&milan.client, "pods/web/binding", &binding).await?;
        let running = |name: &str, cpu: &str| {
            json!({
                "name": name, "image": name, "imageID": name, "ready": true, "restartCount": 0,
                "state": {"running": {}}, "resources": {"requests": {"cpu": cpu}},
            })
        };
        let status = Patch::Merge(json!({"status": {
            "phase": "Running",
            "containerStatuses": [running("web", "100m")],
            "initContainerStatuses": [running("proxy", "50m")],
        }}));
        let parameters = PatchParams::default();
        self.pods.patch_status("web", &parameters, &status).await?;

        Ok(())
    }

    /// Changes the ShadowPod as the virtual kubelet does. The manager may write the status at the same time.
    async fn change(&self, edit: impl Fn(&mut Value)) -> Result<()> {
        until(Deadline::after(SOON), "the update", async || {
            let mut object = json!(self.shadow_pods.get("web").await?);
            edit(&mut object["spec"]["pod"]);
            let (parameters, object) = (PostParams::default(), serde_json::from_value(object)?);
            self.shadow_pods
                .replace("web", &parameters, &object)
                .await?;
            Ok(())
        })
        .await
    }

    /// Waits until the pod has these amounts of processors, and these ephemeral containers.
    async fn until_changed(&self, cpus: [&str; 2], ephemeral: &[&str]) -> Result<Pod> {
        let what = format!("{cpus:?} and {ephemeral:?}");
        until(Deadline::after(SOON), &what, async || {
            let pod = self.pods.get("web").await?;
            let spec = json!(pod.spec);
            let found = ["containers", "initContainers"]
                .map(|list| &spec[list][0]["resources"]["requests"]["cpu"]);
            ensure!(found == cpus, "{found:?}, {:?}", pod.metadata.annotations);
            let names = spec["ephemeralContainers"].as_array().cloned();
            let names = names.unwrap_or_default();
            let names: BTreeSet<_> = names.iter().filter_map(|it| it["name"].as_str()).collect();
            ensure!(
                names == BTreeSet::from_iter(ephemeral.iter().copied()),
                "{names:?}, {:?}",
                pod.metadata.annotations
            );
            Ok(pod)
        })
        .await
    }
}

async fn ephemeral_containers_and_resizes_of_a_shadow_pod_reach_its_pod(
    _: &'static Fixture,
) -> Result<()> {
    let offloaded = Offloaded::start().await?;
    offloaded.run().await?;
    let debug = |name: &str| json!({"name": name, "image": "debug", "targetContainerName": "web"});
    let resize = |spec: &mut Value, list: &str, cpu: &str| {
        spec[list][0]["resources"]["requests"]["cpu"] = json!(cpu);
    };

    offloaded
        .change(|spec| {
            spec["ephemeralContainers"] = json!([debug("first")]);
            resize(spec, "containers", "250m");
            resize(spec, "initContainers", "75m");
        })
        .await?;
    let pod = offloaded.until_changed(["250m", "75m"], &["first"]).await?;
    let container = &json!(pod.spec)["ephemeralContainers"][0];
    ensure!(container["targetContainerName"] == "web", "{container}");
    let managers = pod.metadata.managed_fields.unwrap_or_default();
    for subresource in ["resize", "ephemeralcontainers"] {
        let applies = managers.iter().any(|it| {
            it.subresource.as_deref() == Some(subresource)
                && it.operation.as_deref() == Some("Apply")
        });
        ensure!(applies, "no apply of {subresource}: {managers:?}");
    }

    // The provider adds a container, too, which stays when the consumer adds its next one.
    let provider = json!({"spec": {"ephemeralContainers": [debug("provider")]}});
    let parameters = PatchParams::default();
    let added = Patch::Strategic(&provider);
    offloaded
        .pods
        .patch_subresource("ephemeralcontainers", "web", &parameters, &added)
        .await?;
    offloaded
        .change(|spec| {
            spec["ephemeralContainers"] = json!([debug("first"), debug("second")]);
            resize(spec, "containers", "150m");
        })
        .await?;
    let containers = ["first", "provider", "second"];
    let pod = offloaded
        .until_changed(["150m", "75m"], &containers)
        .await?;
    let refusal = pod.metadata.annotations.unwrap_or_default();
    ensure!(!refusal.contains_key(REFUSED), "{refusal:?}");

    // The ResourceSlice has 20 processors.
    offloaded
        .change(|spec| resize(spec, "containers", "21"))
        .await?;
    until(Deadline::after(SOON), "the refusal", async || {
        let annotations = offloaded.pods.get("web").await?.metadata.annotations;
        let refusal = annotations.and_then(|mut it| it.remove(REFUSED));
        let refusal = refusal.context("no refusal")?;
        ensure!(refusal.contains("exceeded quota: cpu"), "{refusal}");
        Ok(())
    })
    .await?;
    offloaded
        .until_changed(["150m", "75m"], &containers)
        .await?;

    measure_reviews(&offloaded).await
}

/// The annotation of a pod about a change that is not applied.
const REFUSED: &str = "liqo.io/change-refused";

/// Prints the time of a review as the API server measures it. The goal is a median of at most 5 ms.
async fn measure_reviews(offloaded: &Offloaded) -> Result<()> {
    let webhook = "shadowpod.mutate.liqo.io";
    let client = &offloaded.peering.milan.client;
    let before = Metrics::read(client).await?;
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for _ in 0..REVIEWS {
        let object = shadow_pod("dry")?;
        offloaded.shadow_pods.create(&parameters, &object).await?;
    }

    let after = Metrics::read(client).await?;
    let calls = after.calls(webhook) - before.calls(webhook);
    ensure!(calls >= f64::from(REVIEWS), "{calls} reviews");
    let quick = after.within(webhook, "0.005") - before.within(webhook, "0.005");
    let mean = (after.duration(webhook) - before.duration(webhook)) / calls * 1000.0;
    eprintln!("{webhook}: {quick} of {calls} reviews took at most 5 ms, the mean is {mean:.2} ms");
    Ok(())
}

fn shadow_pod(name: &str) -> Result<ShadowPod> {
    let container = |name: &str, cpu: &str| json!({"name": name, "image": name, "resources": {"requests": {"cpu": cpu}}});
    let mut proxy = container("proxy", "50m");
    proxy["restartPolicy"] = json!("Always");
    let object = json!({
        "metadata": {"name": name, "labels": {"offloading.liqo.io/origin": "rome"}},
        "spec": {"pod": {
            "automountServiceAccountToken": false,
            "containers": [container("web", "100m")],
            "initContainers": [proxy],
        }},
    });
    serde_json::from_value(object).context("the ShadowPod is invalid")
}

async fn post(client: &Client, path: &str, body: &Value) -> Result<()> {
    let request = http::Request::post(format!("/api/v1/namespaces/{NAMESPACE}/{path}"));
    let request = request.header(CONTENT_TYPE, "application/json");
    let response: Value = client
        .request(request.body(body.to_string().into_bytes())?)
        .await?;
    ensure!(response["status"] == "Success", "{response}");
    Ok(())
}
