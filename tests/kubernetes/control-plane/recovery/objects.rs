//! The objects of the namespace `shop` that are reflected, and their changes.

use super::pods;
use crate::upstream::rest::Rest;
use anyhow::Result;
use futures_util::stream::{self, TryStreamExt as _};
use serde_json::{Value, json};

/// Kinds, and the number of their objects at the beginning.
pub(super) const POPULATION: [(&str, usize); 6] = [
    ("ConfigMap", 1_000),
    ("Secret", 100),
    ("Ingress", 100),
    ("Widget", 100),
    ("Service", SERVICES),
    ("EndpointSlice", 10_000),
];

/// Number of Services with many endpoints.
const SERVICES: usize = 300;

/// Number of endpoints of a Service.
const ENDPOINTS: usize = 20;

/// Label by which a part of the objects is compared, so that each check is short.
pub(super) const PART: &str = "part";

pub(super) const PARTS: usize = 10;

/// Requests at the same time.
const PARALLEL: usize = 16;

/// Returns the object of a kind with a number. `value` determines the fields that are reflected.
pub(super) fn object(kind: &str, number: usize, value: u64) -> Value {
    let version = match kind {
        "Ingress" => "networking.k8s.io/v1",
        "EndpointSlice" => "discovery.k8s.io/v1",
        "Widget" => "example.com/v1",
        _ => "v1",
    };
    let mut object = match kind {
        "ConfigMap" => json!({"data": {"key": value.to_string()}}),
        "Secret" => json!({"stringData": {"key": value.to_string()}}),
        "Ingress" => ingress(value),
        "Widget" => json!({"spec": {"color": value.to_string()}}),
        "Service" => json!({"spec": {"ports": [{"name": "http", "port": 1 + value % 60_000}]}}),
        _ => slice(number, value),
    };
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    let metadata = &mut object["metadata"];
    metadata["name"] = json!(name(number));
    metadata["namespace"] = json!("shop");
    metadata["labels"][PART] = json!((number % PARTS).to_string());
    // A provider permits only some annotations of Ingresses.
    if kind != "Ingress" {
        metadata["annotations"] = json!({"example.com/value": value.to_string()});
    }

    object
}

pub(super) fn name(number: usize) -> String {
    format!("it-{number}")
}

fn ingress(value: u64) -> Value {
    let backend = json!({"service": {"name": "it-0", "port": {"number": 80}}});
    json!({"spec": {"rules": [{
        "host": format!("{value}.example"),
        "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]},
    }]}})
}

fn slice(number: usize, value: u64) -> Value {
    let (service, count) = match number {
        ..SERVICES => (name(number), ENDPOINTS),
        _ => (format!("other-{}", number % 100), 1),
    };
    let endpoint = |index: usize| {
        let host = (number * ENDPOINTS + index) % 60_000;
        json!({
            "addresses": [format!("10.244.{}.{}", host / 250, host % 250 + 1)],
            "conditions": {"ready": !value.is_multiple_of(2)},
        })
    };
    let labels = json!({
        "kubernetes.io/service-name": service,
        "endpointslice.kubernetes.io/managed-by": "laboratory",
    });
    json!({
        "metadata": {"labels": labels},
        "addressType": "IPv4",
        "endpoints": Value::from_iter((0..count).map(endpoint)),
        "ports": [{"name": "http", "port": 1 + value % 60_000}],
    })
}

/// Creates all objects.
pub(super) async fn create(rest: &Rest) -> Result<()> {
    for (kind, count) in POPULATION {
        each(0..count, async |number| {
            rest.create(&object(kind, number, 1)).await?;
            Ok(())
        })
        .await?;
    }

    pods::create_half(rest).await
}

/// Changes, deletes and replaces a fifth of the objects each, and creates others, of every second number from `first` on.
pub(super) async fn change(rest: &Rest, first: usize) -> Result<()> {
    for (kind, count) in POPULATION {
        let numbers = (first..count + count / PARTS).step_by(2);
        each(numbers, async |number| {
            let mut object = object(kind, number, 2);
            let is_new = number >= count;
            if !is_new && [1, 2].contains(&(number % 5)) {
                rest.delete(kind, "shop", &name(number)).await?;
            }
            if is_new || number % 5 == 2 {
                rest.create(&object).await?;
            } else if number.is_multiple_of(5) {
                if kind == "Widget" {
                    // A custom resource is not replaced without its version.
                    let present = rest.get(kind, "shop", &name(number)).await?;
                    let version = &present["metadata"]["resourceVersion"];
                    object["metadata"]["resourceVersion"] = version.clone();
                }
                rest.update(&object).await?;
            }
            Ok(())
        })
        .await?;
    }

    pods::change(rest, first).await
}

async fn each(
    numbers: impl Iterator<Item = usize>,
    send: impl AsyncFn(usize) -> Result<()>,
) -> Result<()> {
    let numbers = stream::iter(numbers.map(Ok));
    let sent = numbers.try_for_each_concurrent(PARALLEL, |number| send(number));
    sent.await
}
