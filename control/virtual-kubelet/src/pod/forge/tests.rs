use super::{Context, shadow_pod};
use crate::pod::tests::{context, pod};
use control_api::offloading::virtual_node::OffloadingPatch;
use serde_json::{Value, json};

mod affinity;
mod api_server;
mod change;
mod metadata;
mod spec;
mod token;
mod volumes;

/// Returns `spec.pod` for a pod with these fields and annotations.
fn forged_with(context: &Context<'_>, spec: &Value, annotations: &Value) -> Value {
    let shadow_pod = shadow_pod(&pod(spec, annotations), context);
    serde_json::to_value(shadow_pod.spec.pod.unwrap()).unwrap()
}

/// Returns `spec.pod` for a pod of a virtual node without a patch.
fn forged(spec: &Value, annotations: &Value) -> Value {
    forged_with(&context(&OffloadingPatch::default()), spec, annotations)
}

fn patch(patch: Value) -> OffloadingPatch {
    serde_json::from_value(patch).unwrap()
}

/// Returns the name of each variable of a container with its value, in order.
fn variables(container: &Value) -> Vec<(&str, &str)> {
    let env = container["env"].as_array().into_iter().flatten();
    env.map(|it| {
        let value = it["value"].as_str().unwrap_or("-");
        (it["name"].as_str().unwrap(), value)
    })
    .collect()
}

#[test]
fn the_shadow_pod_has_the_pods_name_in_the_mapped_namespace() {
    let shadow_pod = shadow_pod(
        &pod(&json!({}), &json!({})),
        &context(&OffloadingPatch::default()),
    );

    assert_eq!(shadow_pod.metadata.name.as_deref(), Some("web"));
    assert_eq!(shadow_pod.metadata.namespace.as_deref(), Some("demo-rome"));
    assert_eq!(shadow_pod.metadata.annotations, None);
}
