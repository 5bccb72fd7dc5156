use crate::pod::forge::{self, ApiServerSupport, HomeApiServer};
use control_api::offloading::virtual_node::OffloadingPatch;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

mod golden;
mod property;

/// The virtual node `milan` of the cluster `rome`, as the golden objects have it.
pub(super) fn context(patch: &OffloadingPatch) -> forge::Context<'_> {
    forge::Context {
        origin: "rome",
        destination: "milan",
        creator: None,
        node_name: "milan",
        namespace: "demo-rome",
        patch,
        api_server_support: ApiServerSupport::TokenApi,
        api_server: HomeApiServer::Alias {
            port: 443,
            addresses: &[],
        },
        repatriation: None,
        applies_changes: false,
    }
}

/// Returns a pod with the fields that every pod has, and those of `spec` and `annotations`.
pub(super) fn pod(spec: &Value, annotations: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {
            "annotations": annotations,
            "generation": 1,
            "labels": {"app": "web", "pod-template-hash": "5d4f"},
            "name": "web",
            "namespace": "demo",
        },
        "spec": {
            "containers": [{"name": "web", "image": "nginx"}],
            "nodeName": "milan",
            "serviceAccountName": "shop",
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}
