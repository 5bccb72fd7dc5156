//! Changes of a pod that exists (PURE): ephemeral containers and resizes of its ShadowPod.
//!
//! ```text
//! ShadowPod -> Followed --compare--> Change --policy, Quota--> pods/ephemeralcontainers, pods/resize
//! ```
//!
//! Both are written by server-side apply. An Apply removes what the field manager has applied before and omits now, so it has all
//! ephemeral containers, and the resources of all containers. It takes fields over (`force`): the manager itself has set the
//! resources at the creation of the pod, by another operation.
//!
//! Ephemeral containers are subject to the TenantPolicy, like the other containers. They request no resources. A resize that
//! requests more than the pod has counts against the Quota before it is written.

use control_api::annotations;
use control_api::quantity::{Amount, amount};
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Subresource of pods by which ephemeral containers are added.
pub(super) const EPHEMERAL_CONTAINERS: &str = "ephemeralcontainers";

/// Subresource of pods by which they are resized.
pub(super) const RESIZE: &str = "resize";

/// Resources of a container that Kubernetes resizes.
const RESIZED: [&str; 2] = ["cpu", "memory"];

/// Largest number of containers of a pod that are followed.
const CONTAINERS_MAX: usize = 256;

/// Largest number of ephemeral containers. They stay until the pod ends.
const EPHEMERAL_CONTAINERS_MAX: usize = 64;

/// Largest number of resources of a container.
const RESOURCES_MAX: usize = 64;

/// Longest name of a container, a DNS label.
const NAME_LEN_MAX: usize = 63;

/// Longest name of a resource: a DNS subdomain, a slash, and a name of 63 characters.
const RESOURCE_LEN_MAX: usize = 253 + 1 + 63;

/// Longest refusal in the annotation of a pod, in bytes.
const REFUSAL_LEN_MAX: usize = 512;

/// Quantities by resource.
type Quantities = BTreeMap<String, Quantity>;

/// The fields of a ShadowPod that its pod follows after its creation. They are kept instead of the spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Followed {
    containers: Vec<Resources>,
    /// Names of the ephemeral containers.
    ephemeral_containers: Vec<String>,
}

/// The resources of a container, or of a sidecar.
#[derive(Clone, Debug, PartialEq)]
struct Resources {
    list: List,
    name: String,
    requests: Quantities,
    limits: Quantities,
}

/// A list of containers of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Containers,
    InitContainers,
}

/// The difference between a ShadowPod and its pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Whether the pod has other amounts of processors or memory.
    pub(super) is_resize: bool,
    /// Names of the ephemeral containers that the pod lacks.
    pub(super) ephemeral_containers: Vec<String>,
    /// The first difference that no subresource changes.
    refusal: Option<String>,
}

/// Results of the checks of a [`Change`], with the reason of a refusal and its remedy.
#[derive(Debug)]
pub(super) struct Checks {
    /// Check of the whole ShadowPod by the TenantPolicy. It applies to new ephemeral containers.
    pub(super) policy: Result<(), String>,
    /// Check by the Quota, if the resize [`grows`]. It applies to resizes.
    pub(super) quota: Result<(), String>,
}

/// Server-side apply of a subresource of the pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Apply {
    pub(super) subresource: &'static str,
    pub(super) fields: Value,
}

/// The requests that a [`Change`] needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Planned {
    pub(super) applies: Vec<Apply>,
    /// Whether the spec of the ShadowPod has to be read, because it is not kept.
    pub(super) needs_spec: bool,
    /// Why the change is not made, or only a part of it.
    pub(super) refusal: Option<String>,
}

impl Followed {
    /// Returns the fields of a ShadowPod's spec.
    ///
    /// # Errors
    ///
    /// Returns the field that exceeds a limit.
    pub(super) fn of(spec: &PodSpec) -> Result<Self, String> {
        let init = spec.init_containers.iter().flatten();
        // Other init containers have ended, or will, before the pod runs.
        let sidecars = init.filter(|it| it.restart_policy.as_deref() == Some("Always"));
        let containers = spec.containers.iter().map(|it| (List::Containers, it));
        let containers = containers.chain(sidecars.map(|it| (List::InitContainers, it)));
        let containers: Vec<_> = containers.take(CONTAINERS_MAX + 1).collect();
        if containers.len() > CONTAINERS_MAX {
            return Err(format!(
                "spec.pod has more than {CONTAINERS_MAX} containers: use fewer"
            ));
        }
        let ephemeral = spec.ephemeral_containers.as_deref().unwrap_or_default();
        if ephemeral.len() > EPHEMERAL_CONTAINERS_MAX {
            return Err(format!(
                "spec.pod.ephemeralContainers has {} containers: use {EPHEMERAL_CONTAINERS_MAX} at most",
                ephemeral.len()
            ));
        }
        let names = ephemeral.iter().map(|it| &it.name);
        if let Some(name) = names.clone().find(|it| it.len() > NAME_LEN_MAX) {
            return Err(format!(
                "spec.pod.ephemeralContainers has a name of {} bytes: use {NAME_LEN_MAX} at most",
                name.len()
            ));
        }
        let containers = containers.into_iter();
        let containers = containers.map(|(list, container)| Resources::of(list, container));

        Ok(Self {
            containers: containers.collect::<Result<_, _>>()?,
            ephemeral_containers: names.cloned().collect(),
        })
    }

    /// Compares with the spec of the pod. The pod may have further ephemeral containers and amounts, which the provider has added.
    pub(super) fn compare(&self, pod: &PodSpec) -> Change {
        let mut change = Change::default();
        for resources in &self.containers {
            let difference = resources.compare(pod);
            change.is_resize |= difference == Ok(true);
            change.refusal = change.refusal.or_else(|| difference.err());
        }
        let present = pod.ephemeral_containers.as_deref().unwrap_or_default();
        let is_missing = |name: &&String| !present.iter().any(|it| it.name == **name);
        let missing = self.ephemeral_containers.iter().filter(is_missing);
        change.ephemeral_containers = missing.cloned().collect();

        change
    }

    /// Returns the resources of the pod after the resize. Containers and amounts that the provider has added stay.
    pub(super) fn resized(&self, pod: &PodSpec) -> PodSpec {
        let mut pod = pod.clone();
        for resources in &self.containers {
            let containers = match resources.list {
                List::Containers => Some(&mut pod.containers),
                List::InitContainers => pod.init_containers.as_mut(),
            };
            let mut containers = containers.into_iter().flatten();
            let Some(container) = containers.find(|it| it.name == resources.name) else {
                continue;
            };
            let present = container.resources.get_or_insert_default();
            for (amounts, desired) in [
                (&mut present.requests, &resources.requests),
                (&mut present.limits, &resources.limits),
            ] {
                let desired = desired.iter();
                let desired = desired.filter(|(name, _)| RESIZED.contains(&name.as_str()));
                let desired = desired.map(|(name, amount)| (name.clone(), amount.clone()));
                amounts.get_or_insert_default().extend(desired);
            }
        }

        pod
    }

    /// Returns the fields that resize the pod.
    fn resize(&self) -> Value {
        let mut spec = json!({});
        for resources in &self.containers {
            let amounts = resources.resized();
            if amounts == json!({}) {
                continue;
            }
            let container = json!({"name": resources.name, "resources": amounts});
            let list = &mut spec[resources.list.field()];
            match list.as_array_mut() {
                Some(list) => list.push(container),
                None => *list = json!([container]),
            }
        }

        json!({"spec": spec})
    }
}

impl Change {
    /// Returns whether a subresource has to be written.
    pub(super) fn needs(&self, subresource: &str) -> bool {
        match subresource {
            RESIZE => self.is_resize,
            EPHEMERAL_CONTAINERS => !self.ephemeral_containers.is_empty(),
            _ => false,
        }
    }

    /// Leaves out the part that a subresource changes.
    pub(super) fn skip(&mut self, subresource: &str) {
        match subresource {
            RESIZE => self.is_resize = false,
            EPHEMERAL_CONTAINERS => self.ephemeral_containers.clear(),
            _ => {}
        }
    }

    /// Plans the change. `spec` is that of the ShadowPod, if it is known.
    pub(super) fn plan(
        self,
        followed: &Followed,
        spec: Option<&PodSpec>,
        checks: Checks,
    ) -> Planned {
        let mut planned = Planned::default();
        let mut refusals = Vec::from_iter(self.refusal);
        if !self.ephemeral_containers.is_empty() {
            match (checks.policy, spec) {
                (Err(refusal), _) => refusals.push(refusal),
                (Ok(()), None) => planned.needs_spec = true,
                (Ok(()), Some(spec)) => planned.applies.push(Apply {
                    subresource: EPHEMERAL_CONTAINERS,
                    fields: json!({"spec": {"ephemeralContainers": spec.ephemeral_containers}}),
                }),
            }
        }
        if self.is_resize {
            match checks.quota {
                Err(refusal) => refusals.push(refusal),
                Ok(()) => planned.applies.push(Apply {
                    subresource: RESIZE,
                    fields: followed.resize(),
                }),
            }
        }
        planned.refusal = (!refusals.is_empty()).then(|| refusals.join("; "));

        planned
    }
}

impl Resources {
    fn of(list: List, container: &Container) -> Result<Self, String> {
        let name = &container.name;
        if name.len() > NAME_LEN_MAX {
            return Err(format!(
                "spec.pod.{} has a name of {} bytes: use {NAME_LEN_MAX} at most",
                list.field(),
                name.len()
            ));
        }
        let amounts = |amounts: fn(&ResourceRequirements) -> &Option<Quantities>| {
            let amounts = container
                .resources
                .as_ref()
                .and_then(|it| amounts(it).as_ref());
            let amounts = amounts.cloned().unwrap_or_default();
            let is_short = amounts.keys().all(|it| it.len() <= RESOURCE_LEN_MAX);
            if amounts.len() > RESOURCES_MAX || !is_short {
                return Err(format!(
                    "spec.pod.{}[{}].resources is too large: use {RESOURCES_MAX} resources at most",
                    list.field(),
                    name.escape_debug()
                ));
            }
            Ok(amounts)
        };

        Ok(Self {
            list,
            name: name.clone(),
            requests: amounts(|it| &it.requests)?,
            limits: amounts(|it| &it.limits)?,
        })
    }

    /// Returns whether a pod has other amounts of resources that Kubernetes resizes.
    ///
    /// # Errors
    ///
    /// Returns the first difference that it does not resize.
    fn compare(&self, pod: &PodSpec) -> Result<bool, String> {
        let containers = match self.list {
            List::Containers => Some(&pod.containers),
            List::InitContainers => pod.init_containers.as_ref(),
        };
        let mut containers = containers.into_iter().flatten();
        let Some(container) = containers.find(|it| it.name == self.name) else {
            let path = self.path();
            return Err(format!("{path} is not in the pod: create a new pod"));
        };
        let present = container.resources.clone().unwrap_or_default();
        let pairs = [
            ("requests", &self.requests, present.requests),
            ("limits", &self.limits, present.limits),
        ];
        let mut is_resize = false;
        for (field, desired, present) in pairs {
            let present = present.unwrap_or_default();
            for (resource, desired) in desired {
                let path = || {
                    format!(
                        "{}.resources.{field}.{}",
                        self.path(),
                        resource.escape_debug()
                    )
                };
                let Some(desired) = amount(&desired.0) else {
                    let path = path();
                    return Err(format!("{path} is no quantity: use one like 500m or 2Gi"));
                };
                let present = present.get(resource).and_then(|it| amount(&it.0));
                if present == Some(desired) {
                    continue;
                }
                if !RESIZED.contains(&resource.as_str()) {
                    return Err(format!(
                        "{} has changed, and only cpu and memory can: create a new pod",
                        path()
                    ));
                }
                is_resize = true;
            }
        }

        Ok(is_resize)
    }

    /// Returns the path of the container in the ShadowPod.
    fn path(&self) -> String {
        format!(
            "spec.pod.{}[{}]",
            self.list.field(),
            self.name.escape_debug()
        )
    }

    /// Returns the amounts that Kubernetes resizes.
    fn resized(&self) -> Value {
        let mut resources = json!({});
        for (field, amounts) in [("requests", &self.requests), ("limits", &self.limits)] {
            for resource in RESIZED {
                if let Some(amount) = amounts.get(resource) {
                    resources[field][resource] = json!(amount);
                }
            }
        }

        resources
    }
}

impl List {
    fn field(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::InitContainers => "initContainers",
        }
    }
}

/// Returns whether a pod would request more of a resource than it has. Less is possible also with a Quota that is exceeded or
/// cordoned.
pub(super) fn grows(
    present: &BTreeMap<String, Amount>,
    desired: &BTreeMap<String, Amount>,
) -> bool {
    let mut desired = desired.iter();

    desired.any(|(resource, desired)| *desired > present.get(resource).copied().unwrap_or_default())
}

/// Returns the annotations of the pod by which its consumer knows that changes are applied, and why the last one was not; `None`
/// where the pod must not have it.
pub(super) fn annotations_of(refusal: Option<&str>) -> [(&'static str, Option<String>); 2] {
    let refusal = refusal.map(|it| it[..it.floor_char_boundary(REFUSAL_LEN_MAX)].to_owned());
    [
        (annotations::APPLIES_CHANGES, Some("true".to_owned())),
        (annotations::CHANGE_REFUSED, refusal),
    ]
}

#[cfg(test)]
mod tests;
