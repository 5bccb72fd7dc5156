//! The requests of a pod, as Kubernetes' scheduler computes it (`component-helpers/resource/helpers.go`).

use crate::quantity::{Amount, amount};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Amounts by resource.
pub type Amounts = BTreeMap<String, Amount>;

/// Resource of the number of pods.
const PODS: &str = "pods";

/// A quantity of a pod that is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is `{value}`, which is no amount: use a quantity such as 500m or 2Gi")]
pub struct InvalidQuantity {
    field: String,
    value: String,
}

/// Returns what a pod requests in all, with the key `pods`.
///
/// # Errors
///
/// Returns [`InvalidQuantity`] if a request is no quantity, or negative.
pub fn of_pod(spec: &PodSpec) -> Result<Amounts, InvalidQuantity> {
    let mut running = Amounts::new();
    for container in &spec.containers {
        add(&mut running, &of_container(container)?);
    }
    let mut sidecars = Amounts::new();
    let mut starting = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let own = of_container(container)?;
        if container.restart_policy.as_deref() == Some("Always") {
            // It runs from now on, beside the others.
            add(&mut sidecars, &own);
            raise(&mut starting, &sidecars);
        } else {
            let mut with_sidecars = sidecars.clone();
            add(&mut with_sidecars, &own);
            raise(&mut starting, &with_sidecars);
        }
    }
    add(&mut running, &sidecars);
    raise(&mut running, &starting);
    let of_pod = spec.resources.as_ref().and_then(|it| it.requests.as_ref());
    if let Some(of_pod) = of_pod {
        // Requests of the whole pod replace those of its containers.
        running.extend(amounts("spec.pod.resources.requests", of_pod)?);
    }
    if let Some(overhead) = &spec.overhead {
        add(&mut running, &amounts("spec.pod.overhead", overhead)?);
    }
    running.insert(PODS.to_owned(), Amount::ONE);

    Ok(running)
}

fn of_container(container: &Container) -> Result<Amounts, InvalidQuantity> {
    let Some(resources) = &container.resources else {
        return Ok(Amounts::new());
    };
    let field = |list: &str| format!("resources.{list} of container `{}`", container.name);
    // Kubernetes takes the limit of a resource that has no request.
    let mut amounts = match &resources.limits {
        Some(limits) => self::amounts(&field("limits"), limits)?,
        None => Amounts::new(),
    };
    if let Some(requests) = &resources.requests {
        amounts.extend(self::amounts(&field("requests"), requests)?);
    }

    Ok(amounts)
}

fn amounts(
    field: &str,
    quantities: &BTreeMap<String, Quantity>,
) -> Result<Amounts, InvalidQuantity> {
    let parsed = quantities.iter().map(|(resource, quantity)| {
        let invalid = || InvalidQuantity {
            field: format!("{resource} in {field}"),
            value: quantity.0.chars().take(64).collect(),
        };
        Ok((resource.clone(), amount(&quantity.0).ok_or_else(invalid)?))
    });

    parsed.collect()
}

/// Adds amounts to others.
pub fn add(to: &mut Amounts, amounts: &Amounts) {
    for (resource, amount) in amounts {
        let sum = to.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

/// Raises amounts to others that are higher.
fn raise(to: &mut Amounts, amounts: &Amounts) {
    for (resource, amount) in amounts {
        let highest = to.entry(resource.clone()).or_default();
        *highest = (*highest).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn container(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> Value {
        let mut container = container(cpu);
        container["restartPolicy"] = json!("Always");
        container
    }

    fn cpu(spec: Value) -> String {
        let spec: PodSpec = from_value(spec).unwrap();
        of_pod(&spec).unwrap()["cpu"].to_string()
    }

    #[test]
    fn containers_are_added_and_init_containers_are_not() {
        let containers = json!([container("1"), container("500m")]);
        assert_eq!(cpu(json!({"containers": containers})), "1.5");
        let init = json!([container("1"), container("4")]);
        assert_eq!(
            cpu(json!({"containers": containers, "initContainers": init})),
            "4"
        );
    }

    #[test]
    fn sidecars_run_beside_all_that_start_later() {
        let init = json!([container("2"), sidecar("1"), container("2")]);
        assert_eq!(
            cpu(json!({"containers": [container("1")], "initContainers": init})),
            "3"
        );
        assert_eq!(
            cpu(json!({"containers": [container("3")], "initContainers": init})),
            "4"
        );
    }

    #[test]
    fn overhead_and_limits_without_requests_count() {
        let limited = json!({"name": "c", "resources": {"limits": {"cpu": "2"}}});
        let spec = json!({"containers": [limited], "overhead": {"cpu": "250m"}});
        assert_eq!(cpu(spec), "2.25");
    }

    #[test]
    fn each_pod_counts_as_one() {
        let spec: PodSpec = from_value(json!({"containers": []})).unwrap();
        assert_eq!(
            of_pod(&spec).unwrap(),
            [("pods".to_owned(), Amount::ONE)].into()
        );
    }

    #[test]
    fn absurd_quantities_are_errors_that_name_them() {
        for quantity in ["-1", "lots", "1e99", "", "9223372036854775808"] {
            let spec: PodSpec = from_value(json!({"containers": [container(quantity)]})).unwrap();
            let error = of_pod(&spec).unwrap_err().to_string();
            assert!(
                error.contains("cpu in resources.requests of container `c`"),
                "{error}"
            );
        }
    }
}
