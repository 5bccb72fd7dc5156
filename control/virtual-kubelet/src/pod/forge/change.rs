//! Changes of a pod that Kubernetes permits after its creation, besides metadata.

use super::context::Context;
use super::spec;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Ephemeral containers and resizes that a ShadowPod lacks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Change {
    /// Names of the ephemeral containers that were added to the pod.
    pub(crate) ephemeral_containers: Vec<String>,
    /// Names of the containers with other requests or limits.
    pub(crate) resized: Vec<String>,
    /// `spec.pod` with the change; none if the provider does not apply it.
    pub(crate) spec: Option<PodSpec>,
}

/// Returns the change that turns `spec.pod` of an existing ShadowPod into the pod's; none if nothing differs.
///
/// All other fields stay as they were created, since the provider's pod cannot change them.
pub(crate) fn change(pod: &Pod, remote: &PodSpec, context: &Context<'_>) -> Option<Change> {
    let local = pod.spec.as_ref()?;
    let mut spec = remote.clone();
    let mut resized = resize(&mut spec.containers, &local.containers);
    resized.extend(resize(
        spec.init_containers.as_deref_mut().unwrap_or_default(),
        local.init_containers.as_deref().unwrap_or_default(),
    ));
    let ephemeral_containers = add_ephemeral_containers(&mut spec, pod, context);
    if resized.is_empty() && ephemeral_containers.is_empty() {
        return None;
    }

    Some(Change {
        ephemeral_containers,
        resized,
        spec: context.applies_changes.then_some(spec),
    })
}

/// Sets the requests and limits of the containers of the same name, and returns the names of those that differed.
fn resize(remote: &mut [Container], local: &[Container]) -> Vec<String> {
    let mut resized = Vec::new();
    for container in remote {
        let same = local.iter().find(|it| it.name == container.name);
        let Some(desired) = same.map(|it| it.resources.clone().unwrap_or_default()) else {
            continue;
        };
        let current = container.resources.clone().unwrap_or_default();
        if amounts(&desired) != amounts(&current) {
            container.resources = Some(ResourceRequirements {
                claims: current.claims,
                ..desired
            });
            resized.push(container.name.clone());
        }
    }
    resized
}

/// Returns requests and limits; none of them is the same as an empty list.
fn amounts(resources: &ResourceRequirements) -> [BTreeMap<String, Quantity>; 2] {
    [&resources.requests, &resources.limits].map(|it| it.clone().unwrap_or_default())
}

/// Adds the ephemeral containers that are missing, and returns their names.
fn add_ephemeral_containers(remote: &mut PodSpec, pod: &Pod, context: &Context<'_>) -> Vec<String> {
    let mut added = Vec::new();
    for container in spec::ephemeral_containers(pod, context) {
        let containers = remote.ephemeral_containers.get_or_insert_default();
        if !containers.iter().any(|it| it.name == container.name) {
            added.push(container.name.clone());
            containers.push(container);
        }
    }
    added
}
