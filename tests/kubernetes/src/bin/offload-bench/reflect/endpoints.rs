//! The time from the readiness of a pod at the provider until its endpoint is ready in the consumer.

use crate::clusters::{OFFLOADED, Pair, ROME};
use crate::watch::{Event, Watch};
use anyhow::Result;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use std::time::Instant;

/// The number of pods, which start one after another.
const PODS: u32 = 20;

const APP: &str = "endpoint";

pub(super) async fn run(pair: &Pair) -> Result<Vec<f64>> {
    let client = || pair.rome.client.clone();
    let services: Api<Service> = Api::namespaced(client(), OFFLOADED);
    let service = json!({
        "metadata": {"name": APP},
        "spec": {"selector": {"app": APP}, "ports": [{"port": 80}]},
    });
    services
        .create(&PostParams::default(), &serde_json::from_value(service)?)
        .await?;
    let pods: Api<Pod> = Api::namespaced(client(), OFFLOADED);
    let slices: Api<EndpointSlice> = Api::namespaced(client(), OFFLOADED);
    let remote = format!("{OFFLOADED}-{ROME}");
    let remote: Api<Pod> = Api::namespaced(pair.milan.client.clone(), &remote);
    let (mut remote, mut slices) = (Watch::start(&remote).await?, Watch::start(&slices).await?);
    let mut samples = Vec::new();
    for index in 0..=PODS {
        let name = format!("{APP}-{index}");
        pods.create(&PostParams::default(), &pod(&name)?).await?;
        let (there, here) = tokio::try_join!(
            until(&mut remote, |pod| pod.name_any() == name && is_ready(pod)),
            until(&mut slices, |slice| has_ready(slice, &name)),
        )?;
        // The first pod, whose image may be unpacked, is not kept.
        if index > 0 {
            samples.push(here.saturating_duration_since(there).as_secs_f64());
        }
    }
    for index in 0..=PODS {
        let name = format!("{APP}-{index}");
        pods.delete(&name, &DeleteParams::default()).await?;
    }
    services.delete(APP, &DeleteParams::default()).await?;
    eprintln!("    endpoints: {samples:.3?}");

    Ok(samples)
}

/// Returns when an object was first seen in a state.
async fn until<K>(watch: &mut Watch<K>, is_in: impl Fn(&K) -> bool) -> Result<Instant>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    loop {
        if let (at, Event::Put(object)) = watch.next().await?
            && is_in(&object)
        {
            return Ok(at);
        }
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Returns whether the endpoint of a pod is ready.
fn has_ready(slice: &EndpointSlice, pod: &str) -> bool {
    let mut endpoints = slice.endpoints.iter().flatten();
    endpoints.any(|it| {
        let target = it.target_ref.as_ref().and_then(|it| it.name.as_deref());
        let ready = it.conditions.as_ref().and_then(|it| it.ready);
        target == Some(pod) && ready == Some(true)
    })
}

fn pod(name: &str) -> Result<Pod> {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": APP}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "sleep", "image": "localhost/tools:latest", "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", "trap exit TERM; sleep 1000000 & wait"],
            }],
        },
    });

    Ok(serde_json::from_value(pod)?)
}
