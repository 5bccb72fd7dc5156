//! Kinds that the flag `--reflected-resource` names. Their objects are unstructured: all fields but metadata and status are
//! reflected as they are.

use super::metadata::reflected;
use super::observed;
use super::peering::Peering;
use control_api::ReflectedResource;
use control_runtime::Resource;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Name of the field that the provider's controllers write, and of its subresource.
pub(super) const STATUS: &str = "status";

/// A kind that the flags name.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Other {
    group: String,
    version: String,
    plural: String,
    /// Resource and group, for example `certificates.cert-manager.io`.
    pub(super) name: String,
    /// Whether the provider's status is written to the objects of this cluster.
    pub(super) has_status: bool,
}

impl Other {
    /// Returns the kind of a flag. It is never freed, because flags last as long as the process.
    pub(crate) fn leak(resource: &ReflectedResource) -> &'static Self {
        Box::leak(Box::new(Self {
            group: resource.group.clone(),
            version: resource.version.clone(),
            plural: resource.resource.clone(),
            name: resource.name(),
            has_status: resource.status,
        }))
    }

    /// Returns the resource. Its kind is known only from objects.
    pub(super) fn resource(&'static self) -> Resource {
        Resource {
            group: Cow::Borrowed(&self.group),
            version: Cow::Borrowed(&self.version),
            kind: Cow::Borrowed(""),
            plural: Cow::Borrowed(&self.plural),
        }
    }
}

/// Returns the reflected object; `None` if the kind of the object is not known.
pub(super) fn remote(local: &DynamicObject, peering: &Peering) -> Option<Value> {
    let kind = kind_of(local)?;
    let mut object = local.data.as_object().cloned().unwrap_or_default();
    object.remove(STATUS);
    object.insert("kind".to_owned(), kind.into());
    let metadata = json!(reflected(&local.metadata, peering));
    object.insert("metadata".to_owned(), metadata);

    Some(object.into())
}

/// Returns the fields of the local object's status, which is about `generation` of it; `None` if the kind of the object is not known.
pub(super) fn local_status(remote: &DynamicObject, generation: Option<i64>) -> Option<Value> {
    let kind = kind_of(remote)?;
    let mut status = remote.data.get(STATUS)?.clone();
    let observed = observed::take(&mut status.clone());
    if let (Some(generation), Some(observed)) = (generation, observed) {
        observed::shift(&mut status, generation.saturating_sub(observed));
    }
    Some(json!({"kind": kind, STATUS: status}))
}

fn kind_of(object: &DynamicObject) -> Option<&str> {
    let types = object.types.as_ref()?;
    Some(types.kind.as_str()).filter(|it| !it.is_empty())
}
