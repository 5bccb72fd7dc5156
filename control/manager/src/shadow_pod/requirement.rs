//! What a Quota requires of the containers of a pod.

use control_api::quantity::amount;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Resources that each container must request if limits are enforced.
const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// Returns the first requirement of a mode that a pod does not meet: requests of processors and memory, and with `is_hard`
/// limits that equal them.
pub(super) fn missing(spec: &PodSpec, is_hard: bool) -> Option<String> {
    let init = spec.init_containers.iter().flatten();
    for container in spec.containers.iter().chain(init) {
        let resources = container.resources.as_ref();
        let of = |list: fn(
            &k8s_openapi::api::core::v1::ResourceRequirements,
        ) -> &Option<BTreeMap<String, Quantity>>| {
            resources
                .and_then(|it| list(it).clone())
                .unwrap_or_default()
        };
        let (requests, limits) = (of(|it| &it.requests), of(|it| &it.limits));
        for resource in COMPUTE {
            let request = requests.get(resource).and_then(|it| amount(&it.0));
            let limit = limits.get(resource).and_then(|it| amount(&it.0));
            // As Kubernetes does, a limit alone is the request, too.
            let effective = request.or(limit);
            if effective.is_none() {
                return Some(format!(
                    "container `{}` requests no {resource}, which the Quota requires: set resources.requests.{resource}",
                    container.name
                ));
            }
            if is_hard && limit != effective {
                return Some(format!(
                    "limit and request of {resource} of container `{}` differ, and the Quota requires equal ones: set \
                     resources.limits.{resource} to the request",
                    container.name
                ));
            }
        }
    }

    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    #[test]
    fn modes_require_requests_and_equal_limits() {
        let spec = |resources: Value| -> PodSpec {
            from_value(json!({"containers": [{"name": "c", "resources": resources}]})).unwrap()
        };
        let amounts = json!({"cpu": "1", "memory": "1Gi"});
        let none = spec(json!({}));
        let soft = spec(json!({"requests": amounts}));
        let hard = spec(json!({"requests": {"cpu": "1000m", "memory": "1Gi"}, "limits": amounts}));

        assert!(missing(&none, false).is_some_and(|it| it.contains("requests no cpu")));
        assert_eq!(missing(&soft, false), None);
        assert!(missing(&soft, true).is_some_and(|it| it.contains("limits.cpu")));
        assert_eq!(missing(&hard, true), None);
    }
}
