//! The time until an object of the consumer exists at the provider, against the creation of the same object there.

use crate::clusters::{NATIVE, OFFLOADED, Pair, ROME};
use crate::watch::Watch;
use anyhow::Result;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Instant;

/// The first objects, which fill caches, are not kept.
const WARM_UP: u32 = 5;

/// Durations of each object in seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OfKind {
    kind: &'static str,
    /// From the request at the consumer until the provider's watch shows the object.
    reflected_s: Vec<f64>,
    /// From the request at the provider until its watch shows the object.
    direct_s: Vec<f64>,
}

/// The kinds with their groups, and the fields of an object besides its name.
fn kinds() -> [(&'static str, &'static str, Value); 4] {
    let port = json!({"port": 80, "protocol": "TCP"});
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    [
        ("ConfigMap", "", json!({"data": {"key": "value"}})),
        ("Secret", "", json!({"stringData": {"key": "value"}})),
        ("Service", "", json!({"spec": {"ports": [port]}})),
        (
            "Ingress",
            "networking.k8s.io",
            json!({"spec": {"defaultBackend": backend}}),
        ),
    ]
}

pub(super) async fn run(pair: &Pair, objects: u32) -> Result<Vec<OfKind>> {
    let mut samples = Vec::new();
    for (kind, group, fields) in kinds() {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let sample = of_kind(pair, objects, (kind, &resource, &fields)).await?;
        samples.push(sample);
    }

    Ok(samples)
}

async fn of_kind(
    pair: &Pair,
    objects: u32,
    (kind, resource, fields): (&'static str, &ApiResource, &Value),
) -> Result<OfKind> {
    let api = |client: &Client, namespace: &str| -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, resource)
    };
    let remote = format!("{OFFLOADED}-{ROME}");
    let here = api(&pair.rome.client, OFFLOADED);
    let there = api(&pair.milan.client, &remote);
    let native = api(&pair.milan.client, NATIVE);
    let (mut reflected, mut direct) = (Watch::start(&there).await?, Watch::start(&native).await?);
    let (mut reflected_s, mut direct_s) = (Vec::new(), Vec::new());
    for index in 0..objects + WARM_UP {
        let name = format!("latency-{index}");
        let mut object: DynamicObject =
            serde_json::from_value(json!({"metadata": {"name": name}}))?;
        object.data = fields.clone();
        let mut of = Vec::new();
        for (api, watch) in [(&here, &mut reflected), (&native, &mut direct)] {
            let start = Instant::now();
            let (_, seen) = tokio::try_join!(
                async { Ok(api.create(&PostParams::default(), &object).await?) },
                watch.created(&name),
            )?;
            of.push(seen.duration_since(start).as_secs_f64());
        }
        if index >= WARM_UP {
            reflected_s.push(of[0]);
            direct_s.push(of[1]);
        }
    }
    super::remove((&here, &there), "latency-").await?;
    super::remove((&native, &native), "latency-").await?;
    eprintln!("    {kind}: {reflected_s:.4?} against {direct_s:.4?}");

    Ok(OfKind {
        kind,
        reflected_s,
        direct_s,
    })
}
