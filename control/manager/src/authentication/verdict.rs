//! The verdict about the resources that a consumer requests.

use super::objects::Local;
use control_api::authentication::resource_slice::ResourceSliceConditionStatus as Status;
use control_api::classes::{IngressClass, LoadBalancerClass, StorageClass};
use control_api::quantity;
use control_api::{ResourceSlice, ResourceSliceStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Kubernetes' annotation on the StorageClass of claims that name none. Value: `true`.
pub(super) const DEFAULT_STORAGE_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Largest number of different resources in one request.
const RESOURCES_MAX: usize = 64;

/// Resources and classes that this cluster grants to consumers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grants {
    /// Whether requests of the default class are granted.
    pub(crate) is_default_class_enabled: bool,
    /// Amounts that a consumer gets if it requests none.
    pub(crate) defaults: BTreeMap<String, Quantity>,
    /// Whether consumers may use the StorageClasses of this cluster.
    pub(crate) has_storage: bool,
    /// Name of the StorageClass for claims that name none; if empty, it is that of this cluster.
    pub(crate) storage_class: String,
    pub(crate) ingress_classes: Vec<IngressClass>,
    pub(crate) load_balancer_classes: Vec<LoadBalancerClass>,
    /// Labels of the virtual nodes that represent this cluster.
    pub(crate) node_labels: BTreeMap<String, String>,
}

/// A verdict about the resources of a ResourceSlice.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The fields of the status that say what is granted.
    Accepted(Box<ResourceSliceStatus>),
    /// Reason and message of the condition, and a detail for an Event.
    Denied(&'static str, String, Option<String>),
    /// The present verdict stays.
    Unchanged,
    /// Another controller decides about this class.
    Foreign(String),
}

/// Reason and message of the condition `Resources` of a granted request.
pub(super) const ACCEPTED: (&str, &str) = (
    "ResourceSliceResourcesAccepted",
    "ResourceSlice resources accepted",
);

const DENIED: (&str, &str) = (
    "ResourceSliceResourcesDenied",
    "ResourceSlice resources denied",
);

const CLASS_DISABLED: (&str, &str) = (
    "DefaultResourceSliceClassDisabled",
    "the default ResourceSlice class has been administratively disabled on the provider",
);

/// State of the Tenant and of the present status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) is_cordoned: bool,
    pub(super) is_drained: bool,
    /// The present verdict.
    pub(super) present: Option<Status>,
}

/// Decides about the request of a ResourceSlice. `excess` says why it exceeds the TenantPolicy.
pub(super) fn decide(
    slice: &ResourceSlice,
    grants: &Grants,
    local: &Local<'_>,
    state: State,
    excess: Option<&str>,
) -> Verdict {
    let denied = |(reason, message): (&'static str, &str), detail| {
        Verdict::Denied(reason, message.to_owned(), detail)
    };
    if state.is_drained {
        return denied(DENIED, Some("the Tenant is drained".to_owned()));
    }
    let class = slice.spec.class.as_deref().unwrap_or_default();
    if !is_default_class(slice) {
        return Verdict::Foreign(class.to_owned());
    }
    if state.is_cordoned {
        return match state.present {
            Some(_) => Verdict::Unchanged,
            None => denied(DENIED, Some("the Tenant is cordoned".to_owned())),
        };
    }
    if !grants.is_default_class_enabled {
        return denied(CLASS_DISABLED, None);
    }
    if let Err(error) = check(&slice.spec.resources) {
        return denied(DENIED, Some(error));
    }
    if let Some(message) = excess {
        return Verdict::Denied(DENIED.0, message.to_owned(), Some(message.to_owned()));
    }

    Verdict::Accepted(Box::new(ResourceSliceStatus {
        resources: with_defaults(&grants.defaults, &slice.spec.resources),
        storage_classes: storage_classes(grants, local),
        ingress_classes: grants.ingress_classes.clone(),
        load_balancer_classes: grants.load_balancer_classes.clone(),
        node_labels: grants.node_labels.clone(),
        ..ResourceSliceStatus::default()
    }))
}

/// Returns whether this controller decides about the class of a ResourceSlice.
pub(super) fn is_default_class(slice: &ResourceSlice) -> bool {
    ["", "default"].contains(&slice.spec.class.as_deref().unwrap_or_default())
}

/// Returns the amounts that a request stands for.
pub(super) fn with_defaults(
    defaults: &BTreeMap<String, Quantity>,
    requested: &BTreeMap<String, Quantity>,
) -> BTreeMap<String, Quantity> {
    let mut resources = defaults.clone();
    resources.extend(requested.clone());

    resources
}

/// Returns the StorageClasses for consumers, sorted by name.
fn storage_classes(grants: &Grants, local: &Local<'_>) -> Vec<StorageClass> {
    if !grants.has_storage {
        return Vec::new();
    }
    let classes = local.storage_classes.iter().map(|(key, class)| {
        let annotations = class.metadata.annotations.as_ref();
        let is_default = if grants.storage_class.is_empty() {
            let annotation = annotations.and_then(|it| it.get(DEFAULT_STORAGE_CLASS));
            annotation.map(String::as_str) == Some("true")
        } else {
            key.name == grants.storage_class
        };
        StorageClass {
            default: is_default.then_some(true),
            storage_class_name: key.name.clone(),
        }
    });
    let mut classes: Vec<_> = classes.collect();
    classes.sort_by(|a, b| a.storage_class_name.cmp(&b.storage_class_name));

    classes
}

/// Checks the requested amounts.
///
/// # Errors
///
/// Returns the field that is wrong.
pub(super) fn check(resources: &BTreeMap<String, Quantity>) -> Result<(), String> {
    if resources.len() > RESOURCES_MAX {
        return Err(format!(
            "spec.resources has {} entries: request at most {RESOURCES_MAX} resources",
            resources.len()
        ));
    }
    for (name, quantity) in resources {
        quantity::check(&quantity.0).map_err(|error| {
            format!("spec.resources.{name} is {error}: use an amount like 4 or 8Gi")
        })?;
    }

    Ok(())
}
