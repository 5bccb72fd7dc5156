//! The effective request of a pod, as Kubernetes' scheduler computes it.

use super::text::shown;
use control_api::quantity::{Amount, amount, check};
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// The resource of which each pod requests 1.
pub(super) const PODS: &str = "pods";

/// Resources whose requests `Soft` and `Hard` enforcement need.
const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// Largest number of different resources of a pod, so that a hostile one is small in memory.
const RESOURCES_MAX: usize = 64;

/// Largest number of containers of a pod, so that one of many containers without content is small in memory.
const CONTAINERS_MAX: usize = 256;

/// Longest name of a resource: a DNS subdomain, a slash, and a name of 63 characters.
const RESOURCE_LEN_MAX: usize = 253 + 1 + 63;

/// Amounts by resource.
pub(super) type Amounts = BTreeMap<String, Amount>;

/// Quantities by resource, as in objects.
pub(super) type Quantities = BTreeMap<String, Quantity>;

/// The effective request of a pod, and what limits enforcement needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Demand {
    pub(super) amounts: Amounts,
    /// The first field without a request of CPU or memory.
    pub(super) without_request: Option<String>,
    /// The first field whose limit and request differ.
    pub(super) without_equal_limit: Option<String>,
    /// Whether the pod names its overhead. Otherwise admission adds that of its RuntimeClass.
    has_overhead: bool,
}

impl Demand {
    /// Returns the effective request of a pod: the sum of its containers and sidecars, or the largest that its init
    /// containers need meanwhile, and its overhead. A request that is missing is the limit.
    ///
    /// Source: Kubernetes documentation, Sidecar Containers, "Resource sharing within containers"; Pod Overhead; and
    /// Assign Pod-level CPU and memory resources.
    ///
    /// # Errors
    ///
    /// Returns the field and what is wrong with it.
    pub(super) fn of(spec: &PodSpec) -> Result<Self, String> {
        let init = spec.init_containers.as_deref().unwrap_or_default();
        let count = spec.containers.len() + init.len();
        if count > CONTAINERS_MAX {
            return Err(format!(
                "spec.pod has {count} containers: use {CONTAINERS_MAX} at most"
            ));
        }
        let mut demand = Self {
            has_overhead: spec.overhead.is_some(),
            ..Self::default()
        };
        let pod = Requirements::of(spec.resources.as_ref(), "spec.pod.resources")?;
        demand.compare_pod(&pod);
        let mut total = Amounts::new();
        for container in &spec.containers {
            let path = path("containers", container);
            let requirements = Requirements::of(container.resources.as_ref(), &path)?;
            demand.compare(&requirements, &pod, &path);
            add(&mut total, &requirements.requests);
        }
        let (mut sidecars, mut largest) = (Amounts::new(), Amounts::new());
        for container in init {
            let path = path("initContainers", container);
            let requirements = Requirements::of(container.resources.as_ref(), &path)?;
            demand.compare(&requirements, &pod, &path);
            let mut meanwhile = requirements.requests.clone();
            add(&mut meanwhile, &sidecars);
            raise(&mut largest, &meanwhile);
            if container.restart_policy.as_deref() == Some("Always") {
                add(&mut total, &requirements.requests);
                add(&mut sidecars, &requirements.requests);
            }
        }
        raise(&mut total, &largest);
        let of_pod = pod.of_pod(&total);
        raise(&mut total, &of_pod);
        let overhead = amounts(spec.overhead.as_ref(), "spec.pod.overhead")?;
        add(&mut total, &overhead);
        if total.len() > RESOURCES_MAX {
            return Err(format!(
                "spec.pod requests {} different resources: use {RESOURCES_MAX} at most",
                total.len()
            ));
        }
        total.insert(PODS.to_owned(), Amount::ONE);
        demand.amounts = total;

        Ok(demand)
    }

    /// Adds the overhead of a RuntimeClass, unless the pod names its own.
    pub(super) fn with_overhead(mut self, overhead: &Amounts) -> Self {
        if !self.has_overhead {
            add(&mut self.amounts, overhead);
        }
        self
    }

    /// Returns this demand with the amounts of another one where these are larger.
    pub(super) fn raised(mut self, other: &Self) -> Self {
        raise(&mut self.amounts, &other.amounts);
        self
    }

    /// Returns whether limits enforcement finds a field that it does not find in another demand.
    pub(super) fn is_looser(&self, other: &Self) -> bool {
        let is_new = |field: &Option<String>, old| field.is_some() && field != old;
        is_new(&self.without_request, &other.without_request)
            || is_new(&self.without_equal_limit, &other.without_equal_limit)
    }

    /// Returns a demand that leaves nothing of any resource of `others`.
    pub(super) fn unlimited<'a>(others: impl Iterator<Item = &'a str>) -> Self {
        let all = others.map(|resource| (resource.to_owned(), Amount::MAX));
        Self {
            amounts: all.collect(),
            ..Self::default()
        }
    }

    fn compare_pod(&mut self, pod: &Requirements) {
        let unequal = pod.unequal(|_| false);
        self.without_equal_limit = unequal.map(|resource| field("spec.pod.resources", resource));
    }

    /// Finds requests that are missing and limits that differ. What the pod limits as a whole, its containers need not.
    fn compare(&mut self, container: &Requirements, pod: &Requirements, path: &str) {
        let is_of_pod = |resource: &str| pod.requests.contains_key(resource);
        if self.without_request.is_none() {
            let mut missing = COMPUTE.into_iter().filter(|resource| {
                !container.requests.contains_key(*resource) && !is_of_pod(resource)
            });
            let missing = missing.next();
            self.without_request = missing.map(|resource| field(path, resource));
        }
        if self.without_equal_limit.is_none() {
            let unequal = container.unequal(is_of_pod);
            self.without_equal_limit = unequal.map(|resource| field(path, resource));
        }
    }
}

/// Requests and limits of a container, or of a pod as a whole.
#[derive(Default)]
struct Requirements {
    /// Requests; limits where there is none, as the API server sets them.
    requests: Amounts,
    /// Requests that are named.
    named: Amounts,
    limits: Amounts,
}

impl Requirements {
    fn of(resources: Option<&ResourceRequirements>, path: &str) -> Result<Self, String> {
        let Some(resources) = resources else {
            return Ok(Self::default());
        };
        let limits = amounts(resources.limits.as_ref(), &format!("{path}.limits"))?;
        let named = amounts(resources.requests.as_ref(), &format!("{path}.requests"))?;
        let mut requests = limits.clone();
        requests.extend(named.clone());

        Ok(Self {
            requests,
            named,
            limits,
        })
    }

    /// Returns the first resource whose limit is not its request, but for those of `excepted`.
    fn unequal(&self, excepted: impl Fn(&str) -> bool) -> Option<&str> {
        let mut unequal = self.requests.iter().filter(|(resource, request)| {
            self.limits.get(*resource) != Some(*request) && !excepted(resource)
        });
        unequal.next().map(|(resource, _)| resource.as_str())
    }

    /// Returns the requests of a pod as a whole. Its limits count only for resources that no container requests.
    fn of_pod(&self, containers: &Amounts) -> Amounts {
        let limits = self.limits.iter();
        let limits = limits.filter(|(resource, _)| !containers.contains_key(*resource));
        let mut requests: Amounts = limits.map(|(name, limit)| (name.clone(), *limit)).collect();
        requests.extend(self.named.clone());

        requests
    }
}

/// Returns amounts of quantities.
///
/// # Errors
///
/// Returns the field and what is wrong with it.
pub(super) fn amounts(quantities: Option<&Quantities>, path: &str) -> Result<Amounts, String> {
    let mut amounts = Amounts::new();
    for (resource, quantity) in quantities.into_iter().flatten() {
        if resource.len() > RESOURCE_LEN_MAX {
            return Err(format!("{path}: the name of a resource is too long"));
        }
        let field = field(path, resource);
        let Some(amount) = amount(&quantity.0) else {
            let cause = check(&quantity.0).err().unwrap_or("not a quantity");
            let quantity = shown(&quantity.0);
            return Err(format!(
                "{field} is `{quantity}`, which is {cause}: use a quantity like 500m or 2Gi"
            ));
        };
        amounts.insert(resource.clone(), amount);
    }

    Ok(amounts)
}

fn path(list: &str, container: &Container) -> String {
    format!("spec.pod.{list}[{}].resources", shown(&container.name))
}

fn field(path: &str, resource: &str) -> String {
    format!("{path}.{}", shown(resource))
}

/// Adds amounts to others.
pub(super) fn add(to: &mut Amounts, amounts: &Amounts) {
    for (resource, amount) in amounts {
        let sum = to.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

/// Subtracts amounts from others, and removes those of which nothing is left.
pub(super) fn subtract(from: &mut Amounts, amounts: &Amounts) {
    for (resource, amount) in amounts {
        if let Some(rest) = from.get_mut(resource) {
            *rest = rest.saturating_sub(*amount);
        }
    }
    from.retain(|_, rest| *rest != Amount::default());
}

/// Raises amounts to others where these are larger.
fn raise(to: &mut Amounts, amounts: &Amounts) {
    for (resource, amount) in amounts {
        let largest = to.entry(resource.clone()).or_default();
        *largest = (*largest).max(*amount);
    }
}
