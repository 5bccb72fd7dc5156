//! The resources of the authentication controller.

use super::binding::{
    BINDING_PREFIX, CONTROL_PLANE_ROLE, users_of_cluster_role_binding, users_of_role_binding,
};
use super::csr::{self, secret_of};
use super::objects::{
    AUTHENTICATION_KEYS, BY_NAME, BY_PEER, BY_SECRET, BY_SUBJECT, BY_USER, user_of_slice,
};
use super::parameters::ROOT_CA;
use super::verdict::DEFAULT_STORAGE_CLASS;
use crate::network::keep;
use control_api::{Identity, NamespaceMap, Renew, ResourceSlice, Tenant, TenantPolicy, labels};
use control_runtime::{Cluster, Registration, Resource, Scope, Selector, WatchId};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Why an Apply takes fields from other field managers.
const FORCE: &str = "only the manager writes nonces, signatures, certificates and kubeconfigs; an earlier \
                     installation of upstream's may have written them";

/// Why an Apply takes fields of a status from other field managers.
const FORCE_STATUS: &str = "only the manager writes these statuses; a user may have edited one";

/// Returns the resources that the controller follows, with Liqo in `namespace`.
pub(crate) fn registrations(namespace: &str) -> Vec<Registration> {
    let mut all = of_liqo();
    all.extend(of_certificates(namespace));
    all.extend(of_cluster(namespace));

    all
}

/// Returns the resources of Liqo's API.
fn of_liqo() -> Vec<Registration> {
    vec![
        Registration::whole::<Tenant>(Scope::All)
            .index(BY_PEER, |tenant: &Tenant| {
                tenant.spec.cluster_id.iter().cloned().collect()
            })
            .index(BY_NAME, |tenant: &Tenant| tenant.metadata.name.iter().cloned().collect())
            .verbs(&["patch"])
            .subresource("status", "patch")
            .subresource("finalizers", "update")
            .force("", "only the manager restores the condition of a Tenant; a consumer may have applied another one")
            .force("status", FORCE_STATUS)
            .fields(&["spec.tenantCondition", "status"]),
        Registration::whole::<Identity>(Scope::All)
            .verbs(&["create", "patch", "delete"])
            .subresource("status", "patch")
            .subresource("finalizers", "update")
            .force("", FORCE)
            .force("status", FORCE_STATUS)
            .fields(&[
                "metadata.labels",
                "metadata.ownerReferences",
                "spec.authParams",
                "spec.clusterID",
                "spec.type",
                "status",
            ]),
        // Of those of consumers only; those of this cluster have their status from the provider, by replication.
        Registration::whole::<ResourceSlice>(Scope::All)
            .index(BY_USER, user_of_slice)
            .verbs(&["patch", "delete"])
            .subresource("status", "patch")
            .force("status", FORCE_STATUS),
        Registration::whole::<Renew>(Scope::All)
            .verbs(&["create", "patch", "delete"])
            .subresource("status", "patch")
            .force("status", FORCE_STATUS),
        Registration::whole::<NamespaceMap>(Scope::All).verbs(&["delete"]),
    ]
}

/// Returns the resources with keys, certificates and rights, with Liqo in `namespace`.
fn of_certificates(namespace: &str) -> Vec<Registration> {
    let liqo = || Scope::Namespace(namespace.to_owned());

    vec![
        Registration::whole::<Secret>(liqo())
            .name(AUTHENTICATION_KEYS)
            .verbs(&["create", "patch"]),
        // Secrets are watched only in namespaces where the manager may read them.
        Registration::whole::<Secret>(Scope::Planned)
            .labels(labels::REMOTE_CLUSTER_ID)
            .verbs(&["create", "patch", "delete"])
            .force("", FORCE)
            .fields(&[
                "data",
                "metadata.annotations",
                "metadata.labels",
                "metadata.ownerReferences",
            ]),
        Registration::of(Scope::All, csr::keep)
            .index(BY_SECRET, |request: &CertificateSigningRequest| {
                secret_of(request).into_iter().map(str::to_owned).collect()
            })
            .verbs(&["create", "delete"])
            .subresource("approval", "update"),
        Registration::of(Scope::All, keep::<RoleBinding>).index(BY_SUBJECT, users_of_role_binding),
        // The right to delete RoleBindings is limited to those of this name.
        Registration::of(Scope::All, keep::<RoleBinding>)
            .name(format!("{BINDING_PREFIX}{CONTROL_PLANE_ROLE}"))
            .verbs(&["create", "delete"]),
        Registration::whole::<ClusterRoleBinding>(Scope::All)
            .index(BY_SUBJECT, users_of_cluster_role_binding)
            .verbs(&["create", "delete"]),
    ]
}

/// Returns the resources that describe this cluster, with Liqo in `namespace`.
fn of_cluster(namespace: &str) -> Vec<Registration> {
    let liqo = || Scope::Namespace(namespace.to_owned());

    vec![
        Registration::whole::<TenantPolicy>(liqo()),
        Registration::of(Scope::All, kept_storage_class),
        // The provider's decision about the Tenant is an annotation of its namespace.
        Registration::of(Scope::All, keep::<Namespace>).verbs(&["patch"]),
        Registration::of(Scope::All, keep::<Node>),
        Registration::of(liqo(), keep::<ConfigMap>).name(ROOT_CA),
        Registration::of(liqo(), keep::<ConfigMap>).labels(format!(
            "{}={}",
            labels::APP_NAME,
            labels::CLUSTER_ID_CONFIG_MAP
        )),
    ]
}

/// Clears the fields of a StorageClass but those that consumers receive.
pub(super) fn kept_storage_class(class: StorageClass) -> StorageClass {
    let annotations = class.metadata.annotations.unwrap_or_default().into_iter();
    let annotations = annotations.filter(|(key, _)| key == DEFAULT_STORAGE_CLASS);
    StorageClass {
        metadata: ObjectMeta {
            name: class.metadata.name,
            annotations: Some(annotations.collect()),
            ..ObjectMeta::default()
        },
        ..StorageClass::default()
    }
}

/// Returns the watch of the Secrets of a tenant namespace that are about its peer.
pub(crate) fn secrets(namespace: &str) -> WatchId {
    WatchId {
        cluster: Cluster::Local,
        resource: Resource::of::<Secret>(),
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            labels: labels::REMOTE_CLUSTER_ID.to_owned(),
            ..Selector::default()
        },
    }
}
