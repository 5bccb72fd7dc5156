//! Decides which consumer's metrics a requester may read.
//!
//! ```text
//! group = the consumer's cluster ID           allowed: these are the credentials of its virtual kubelets
//! otherwise, an identity of any peer          forbidden, whatever rights it has
//! otherwise, right `get` on `scrape/all`      allowed: administrators, monitoring of this cluster
//! otherwise                                   forbidden
//! ```
//!
//! The API server has already checked the right `get` on `scrape/metrics` before it passes a request on. All consumers
//! have this right, for any cluster ID, because upstream's ClusterRole of consumers names no objects. So it does not
//! distinguish them: this cluster's own identities need `scrape/all`, which no role of consumers contains, in addition.
//! Identities of peers never pass by this right, because a right that an administrator has given to all users of the
//! cluster would include them.

use super::request_header::Requester;
use super::route::GROUP;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use std::collections::BTreeSet;

/// Group of the certificates by which consumers' control planes and peering users authenticate themselves.
const PEERING_GROUP: &str = "liqo.io";

/// Subresource of `scrape` that stands for the metrics of all consumers.
const ALL: &str = "all";

/// The decision about a scrape.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decision {
    Allow,
    Forbid,
    /// Allowed if the API server says so.
    Review(Box<SubjectAccessReview>),
}

/// Decides whether a requester may read the metrics of a consumer. `peers` are the cluster IDs of all peers.
pub(super) fn decide(requester: &Requester, consumer: &str, peers: &BTreeSet<&str>) -> Decision {
    if requester.groups.contains(consumer) {
        return Decision::Allow;
    }
    let mut names = requester.groups.iter().chain([&requester.user]);
    if names.any(|name| name == PEERING_GROUP || peers.contains(name.as_str())) {
        return Decision::Forbid;
    }

    Decision::Review(Box::new(review(requester, consumer)))
}

fn review(requester: &Requester, consumer: &str) -> SubjectAccessReview {
    let attributes = ResourceAttributes {
        group: Some(GROUP.to_owned()),
        version: Some(super::route::VERSION.to_owned()),
        resource: Some("scrape".to_owned()),
        subresource: Some(ALL.to_owned()),
        name: Some(consumer.to_owned()),
        verb: Some("get".to_owned()),
        ..ResourceAttributes::default()
    };

    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(requester.user.clone()),
            uid: requester.uid.clone(),
            groups: Some(requester.groups.iter().cloned().collect()),
            extra: Some(requester.extra.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

/// Returns the message for a requester who may not read the metrics of a consumer.
pub(super) fn forbidden(requester: &Requester, consumer: &str) -> String {
    format!(
        "user \"{}\" cannot read the metrics of cluster \"{consumer}\": its credentials need the group \
         \"{consumer}\", or, unless they are a peer's, the right `get` on `scrape/{ALL}` in the API group {GROUP}",
        requester.user
    )
}

#[cfg(test)]
mod tests;
