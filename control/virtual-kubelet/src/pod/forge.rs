//! Pod -> ShadowPod.
//!
//! ```text
//! metadata      labels and annotations, which follow the pod
//! spec          the fields of the pod's spec that the provider may know
//! affinity      presets of anti-affinity
//! volumes       projected volumes: tokens and the root CA of this cluster
//! token         items of the Secret with the pod's tokens
//! api_server    how containers reach the API server of this cluster
//! change        ephemeral containers and resizes, after the ShadowPod was created
//! ```
//!
//! The spec is computed once, when the ShadowPod is created. Later, [`metadata()`] and [`change()`] apply to the existing ShadowPod.

use control_api::ShadowPod;
use control_api::offloading::ShadowPodSpec;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ObjectMeta;

pub(crate) use api_server::{ApiServerSupport, HomeApiServer, service_account};
pub(crate) use change::{Change, change};
pub(crate) use context::{Context, Repatriation};
pub(crate) use metadata::{Metadata, metadata};
pub(crate) use volumes::reflected_config_map_name;

pub(crate) mod token;

mod affinity;
mod api_server;
mod change;
mod context;
mod metadata;
mod spec;
mod volumes;

#[cfg(test)]
mod tests;

/// Returns the ShadowPod to create at the provider for a pod of this cluster.
pub(crate) fn shadow_pod(pod: &Pod, context: &Context<'_>) -> ShadowPod {
    let Metadata {
        labels,
        annotations,
    } = metadata(pod, context);
    let metadata = ObjectMeta {
        name: pod.metadata.name.clone(),
        namespace: Some(context.namespace.to_owned()),
        labels: Some(labels),
        annotations: (!annotations.is_empty()).then_some(annotations),
        ..ObjectMeta::default()
    };

    ShadowPod {
        metadata,
        spec: ShadowPodSpec {
            pod: Some(spec::spec(pod, context)),
        },
        status: None,
    }
}
