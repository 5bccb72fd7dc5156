//! Whether the objects of a tenant namespace are of its peering, of Kubernetes, or of other owners.

use control_api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::ApiResource;
use std::collections::{BTreeMap, BTreeSet};

/// Group and kind of the objects of which a peering consists. They keep a namespace as long as they exist: the peering, or
/// the one in the reverse direction, has not ended.
const PEERING: [(&str, &str); 7] = [
    ("authentication.liqo.io", "Identity"),
    ("authentication.liqo.io", "ResourceSlice"),
    ("authentication.liqo.io", "Tenant"),
    ("networking.liqo.io", "Configuration"),
    ("networking.liqo.io", "GatewayClient"),
    ("networking.liqo.io", "GatewayServer"),
    ("offloading.liqo.io", "VirtualNode"),
];

/// Kind and name of the objects that Kubernetes and OpenShift create in every namespace.
const OF_EVERY_NAMESPACE: [(&str, &str); 8] = [
    ("ConfigMap", "kube-root-ca.crt"),
    ("ConfigMap", "openshift-service-ca.crt"),
    ("ServiceAccount", "default"),
    ("ServiceAccount", "builder"),
    ("ServiceAccount", "deployer"),
    ("RoleBinding", "system:deployers"),
    ("RoleBinding", "system:image-builders"),
    ("RoleBinding", "system:image-pullers"),
];

/// Values of [`labels::SLICE_MANAGED_BY`] for the EndpointSlices that Kubernetes derives from Services and Endpoints.
const SLICE_CONTROLLERS: [&str; 2] = [
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
];

/// Label of the Endpoints that Kubernetes derives from Services.
const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";

/// Annotation of the Secrets with a token of a ServiceAccount.
const SERVICE_ACCOUNT: &str = "kubernetes.io/service-account.name";

/// Longest chain of owners that is followed. The longest of Kubernetes has three: CronJob, Job and Pod.
const OWNERS_MAX: usize = 8;

/// An object with its kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object<'a> {
    pub(super) resource: &'a ApiResource,
    pub(super) metadata: &'a ObjectMeta,
}

/// The objects of a namespace.
#[derive(Debug, Default)]
pub(super) struct Objects<'a> {
    by_uid: BTreeMap<&'a str, Object<'a>>,
    /// By group, kind and name.
    by_name: BTreeMap<(&'a str, &'a str, &'a str), Object<'a>>,
    /// Group and kind of those that are known completely.
    kinds: BTreeSet<(&'a str, &'a str)>,
}

/// The owner of an object.
enum Owner<'a> {
    /// An object of the namespace.
    Present(Object<'a>),
    /// It is deleted, and the garbage collector deletes the object.
    Deleted,
    /// There is none in the namespace.
    None,
}

impl<'a> Object<'a> {
    fn name(self) -> &'a str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn label(self, key: &str) -> Option<&'a str> {
        let value = self.metadata.labels.as_ref()?.get(key)?;
        Some(value)
    }

    fn group_kind(self) -> (&'a str, &'a str) {
        (&self.resource.group, &self.resource.kind)
    }

    /// Returns kind and name, for messages.
    pub(super) fn describe(self) -> String {
        format!("{} {}", self.resource.kind, self.name())
    }

    /// Returns group, kind and name of the object that this one describes without an owner reference.
    fn described(self) -> Option<(&'static str, &'static str, &'a str)> {
        match self.group_kind() {
            ("", "Endpoints") => Some(("", "Service", self.name())),
            ("discovery.k8s.io", "EndpointSlice") => {
                Some(("", "Service", self.label(labels::SERVICE_NAME)?))
            }
            ("", "Secret") => {
                let annotations = self.metadata.annotations.as_ref()?;
                Some(("", "ServiceAccount", annotations.get(SERVICE_ACCOUNT)?))
            }
            _ => None,
        }
    }

    /// Returns whether an object without owner in the namespace is neither of the peering nor of Kubernetes, and is not
    /// being deleted.
    fn is_foreign(self) -> bool {
        if self.metadata.deletion_timestamp.is_some() || self.is_of_kubernetes() {
            return false;
        }
        PEERING.contains(&self.group_kind()) || !self.is_of_liqo()
    }

    fn is_of_kubernetes(self) -> bool {
        let controller = self.label(labels::SLICE_MANAGED_BY);
        match self.group_kind() {
            ("", "Endpoints") => self.label(ENDPOINTS_MANAGED_BY).is_some(),
            ("discovery.k8s.io", "EndpointSlice") => {
                controller.is_some_and(|it| SLICE_CONTROLLERS.contains(&it))
            }
            (_, kind) => OF_EVERY_NAMESPACE.contains(&(kind, self.name())),
        }
    }

    /// Returns whether the labels are those of Liqo's objects.
    fn is_of_liqo(self) -> bool {
        if self.label(labels::PEERING_USER_NAME).is_some() {
            return false;
        }
        let is_labelled = self.label(labels::REMOTE_CLUSTER_ID).is_some()
            || self.label(labels::MANAGED).is_some()
            || self.label(labels::APP_MANAGED_BY) == Some("liqo");
        // The Identity owns the kubeconfig Secret of a peering. One without owner is of a user.
        let is_of_user =
            self.group_kind() == ("", "Secret") && self.label(labels::IDENTITY_TYPE).is_some();

        is_labelled && !is_of_user
    }
}

impl<'a> Objects<'a> {
    /// Adds the objects of a kind. `is_complete` is false if there are more.
    pub(super) fn add(
        &mut self,
        resource: &'a ApiResource,
        objects: &'a [ObjectMeta],
        is_complete: bool,
    ) {
        if is_complete {
            self.kinds.insert((&resource.group, &resource.kind));
        }
        for metadata in objects {
            let object = Object { resource, metadata };
            let (group, kind) = object.group_kind();
            self.by_name.insert((group, kind, object.name()), object);
            if let Some(uid) = &metadata.uid {
                self.by_uid.insert(uid, object);
            }
        }
    }

    /// Returns the object of another owner because of which an object is not of the peering, or none.
    pub(super) fn foreign_origin(&self, object: Object<'a>) -> Option<Object<'a>> {
        let mut origin = object;
        for _ in 0..OWNERS_MAX {
            match self.owner(origin) {
                Owner::Present(owner) => origin = owner,
                Owner::Deleted => return None,
                Owner::None => return origin.is_foreign().then_some(origin),
            }
        }
        // Objects that own each other are never garbage-collected.
        object.is_foreign().then_some(object)
    }

    fn owner(&self, object: Object<'a>) -> Owner<'a> {
        let references = object.metadata.owner_references.as_deref();
        let references = references.unwrap_or_default();
        let mut present = references
            .iter()
            .filter_map(|it| self.by_uid.get(it.uid.as_str()));
        let described = || self.by_name.get(&object.described()?);
        if let Some(owner) = present.next().or_else(described) {
            return Owner::Present(*owner);
        }
        // The owner of a namespaced kind is in the namespace of the object, or does not exist.
        let is_deleted = |it: &OwnerReference| {
            let group = it
                .api_version
                .split_once('/')
                .map_or("", |(group, _)| group);
            self.kinds.contains(&(group, &it.kind))
        };
        match !references.is_empty() && references.iter().all(is_deleted) {
            true => Owner::Deleted,
            false => Owner::None,
        }
    }
}

#[cfg(test)]
mod tests;
