//! Checks that the user has the rights that an installation requires.

use crate::cluster::Cluster;
use anyhow::Result;
use futures_util::future::try_join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;

/// Verb, group and resource of each required right, and whether it is limited to Liqo's namespace.
const NEEDED: [(&str, &str, &str, bool); 12] = [
    ("create", "", "namespaces", false),
    (
        "patch",
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        false,
    ),
    ("create", "rbac.authorization.k8s.io", "clusterroles", false),
    (
        "escalate",
        "rbac.authorization.k8s.io",
        "clusterroles",
        false,
    ),
    (
        "create",
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        false,
    ),
    (
        "create",
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        false,
    ),
    (
        "create",
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        false,
    ),
    ("create", "apps", "deployments", true),
    ("create", "apps", "daemonsets", true),
    ("create", "", "secrets", true),
    ("create", "", "serviceaccounts", true),
    ("list", "", "nodes", false),
];

/// Returns verb and resource of each missing right.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn missing(cluster: &Cluster, namespace: &str) -> Result<Vec<String>> {
    let reviews = NEEDED
        .iter()
        .map(async |&(verb, group, resource, is_namespaced)| {
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(ResourceAttributes {
                        verb: Some(verb.to_owned()),
                        group: Some(group.to_owned()),
                        resource: Some(resource.to_owned()),
                        namespace: is_namespaced.then(|| namespace.to_owned()),
                        ..ResourceAttributes::default()
                    }),
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            let api = Api::<SelfSubjectAccessReview>::all(cluster.client.clone());
            let reviewed = api
                .create(&PostParams::default(), &review)
                .await
                .map_err(cluster.failed("review the rights of the user"))?;
            let is_allowed = reviewed.status.is_some_and(|status| status.allowed);
            anyhow::Ok((!is_allowed).then(|| format!("{verb} {resource}")))
        });
    Ok(try_join_all(reviews).await?.into_iter().flatten().collect())
}
