//! The resources of the authentication controller.

use super::binding::{
    BINDING_PREFIX, CONTROL_PLANE_ROLE, users_of_cluster_role_binding, users_of_role_binding,
};
use super::objects::{AUTHENTICATION_KEYS, BY_PEER, BY_SECRET, BY_SUBJECT, secret_of};
use super::parameters::ROOT_CA;
use crate::network::keep;
use control_api::{Identity, Tenant, labels};
use control_runtime::{Cluster, Registration, Resource, Scope, Selector, WatchId};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};

/// Signer of the certificates of consumers.
pub(super) const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Why an Apply takes fields from other field managers.
const FORCE: &str = "only the manager writes nonces, signatures, certificates and kubeconfigs; an earlier \
                     installation of upstream's may have written them";

/// Why an Apply takes fields of a status from other field managers.
const FORCE_STATUS: &str = "only the manager writes these statuses; a user may have edited one";

/// Returns the resources that the controller follows, with Liqo in `namespace`.
pub(crate) fn registrations(namespace: &str) -> Vec<Registration> {
    let liqo = || Scope::Namespace(namespace.to_owned());

    vec![
        Registration::whole::<Tenant>(Scope::All)
            .index(BY_PEER, |tenant: &Tenant| {
                tenant.spec.cluster_id.iter().cloned().collect()
            })
            .verbs(&["patch"])
            .subresource("status", "patch")
            .subresource("finalizers", "update")
            .force("status", FORCE_STATUS)
            .fields(&["status"]),
        Registration::whole::<Identity>(Scope::All)
            .subresource("status", "patch")
            .subresource("finalizers", "update")
            .force("status", FORCE_STATUS)
            .fields(&["status"]),
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
        Registration::whole::<CertificateSigningRequest>(Scope::All)
            .labels(format!("{}=true", labels::REMOTE_TENANT_CSR))
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
        Registration::of(Scope::All, keep::<Namespace>),
        Registration::of(Scope::All, keep::<Node>),
        Registration::of(liqo(), keep::<ConfigMap>).name(ROOT_CA),
        Registration::of(liqo(), keep::<ConfigMap>).labels(format!(
            "{}={}",
            labels::APP_NAME,
            labels::CLUSTER_ID_CONFIG_MAP
        )),
    ]
}

/// Returns the watch of the Secrets of a tenant namespace that are about its peer.
pub(super) fn secrets(namespace: &str) -> WatchId {
    WatchId {
        cluster: Cluster::Local,
        resource: Resource::of::<Secret>(),
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            labels: labels::REMOTE_CLUSTER_ID.to_owned(),
            name: None,
        },
    }
}
