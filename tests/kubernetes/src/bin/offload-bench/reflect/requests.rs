//! The requests to both API servers for each object that is created or changed, without the consumer's own request.

use crate::clusters::{OFFLOADED, Pair, ROME, Site};
use crate::requests::{Requests, SETTLED};
use anyhow::Result;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Instant;

/// Requests per object.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OfKind {
    kind: &'static str,
    created: f64,
    updated: f64,
}

pub(super) async fn run(pair: &Pair, objects: u32) -> Result<Vec<OfKind>> {
    let rate = Requests::at_rest(pair).await?;
    let endpoint = |host: u32| json!({"addresses": [format!("10.244.200.{host}")], "conditions": {"ready": true}});
    let slice = |host| json!({"addressType": "IPv4", "endpoints": [endpoint(host)], "ports": [{"port": 80}]});
    let kinds = [
        (
            ("ConfigMap", ""),
            [json!({"data": {"key": "a"}}), json!({"data": {"key": "b"}})],
        ),
        (("EndpointSlice", "discovery.k8s.io"), [slice(1), slice(2)]),
    ];
    let mut samples = Vec::new();
    for ((kind, group), states) in kinds {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api = |site: &Site, namespace: &str| -> Api<DynamicObject> {
            Api::namespaced_with(site.client.clone(), namespace, &resource)
        };
        let here = api(&pair.rome, OFFLOADED);
        let there = api(&pair.milan, &format!("{OFFLOADED}-{ROME}"));
        let [created, updated] = of_kind(pair, objects, ((&here, &there), &states), &rate).await?;
        let sample = OfKind {
            kind,
            created,
            updated,
        };
        eprintln!("    {sample:.2?}");
        samples.push(sample);
    }

    Ok(samples)
}

async fn of_kind(
    pair: &Pair,
    objects: u32,
    ((here, there), [first, second]): ((&Api<DynamicObject>, &Api<DynamicObject>), &[Value; 2]),
    rate: &Requests,
) -> Result<[f64; 2]> {
    let name = |index: u32| format!("requests-{index}");
    let created = counted(pair, objects, rate, async || {
        for index in 0..objects {
            let mut object: DynamicObject =
                serde_json::from_value(json!({"metadata": {"name": name(index)}}))?;
            object.data = first.clone();
            here.create(&PostParams::default(), &object).await?;
        }
        Ok(())
    })
    .await?;
    let updated = counted(pair, objects, rate, async || {
        for index in 0..objects {
            let patch = Patch::Merge(second);
            here.patch(&name(index), &PatchParams::default(), &patch)
                .await?;
        }
        Ok(())
    })
    .await?;
    super::remove((here, there), "requests-").await?;

    Ok([created, updated])
}

/// Counts the requests per object that `act` causes, which sends one of its own for each.
async fn counted(
    pair: &Pair,
    objects: u32,
    rate: &Requests,
    act: impl AsyncFnOnce() -> Result<()>,
) -> Result<f64> {
    let (start, before) = (Instant::now(), Requests::of(pair).await?);
    act().await?;
    tokio::time::sleep(SETTLED).await;
    let after = Requests::of(pair).await?;
    let requests = after.since(&before, rate, start.elapsed().as_secs_f64());
    let requests = requests.per(f64::from(objects));
    eprintln!("    {}", requests.shown());

    Ok(requests.sum() - 1.0)
}
