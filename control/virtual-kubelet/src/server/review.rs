//! Reviews by the API server of this cluster: who a token belongs to, and what a user may do.

use super::attributes::Attributes;
use super::identity::User;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use sha2::{Digest as _, Sha256};

/// Input of a decision. Neither tokens nor users are kept longer than a request.
pub(crate) type Fingerprint = [u8; 32];

/// Returns the review of a token.
pub(crate) fn of_token(token: &str) -> TokenReview {
    TokenReview {
        spec: TokenReviewSpec {
            token: token.to_owned(),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    }
}

/// Returns the user of a token that was reviewed; `None` if the API server does not know the token.
pub(crate) fn user(review: TokenReview) -> Option<User> {
    let status = review.status?;
    if status.authenticated != Some(true) {
        return None;
    }
    let user = status.user?;
    let name = user.username.filter(|name| !name.is_empty())?;
    let user = User {
        name,
        uid: user.uid,
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    };

    Some(user.authenticated())
}

/// Returns the review of a right to a Node.
pub(crate) fn of_right(
    user: &User,
    attributes: &Attributes,
    subresource: &str,
    node: &str,
) -> SubjectAccessReview {
    let resource = ResourceAttributes {
        verb: Some(attributes.verb.to_owned()),
        version: Some("v1".to_owned()),
        resource: Some("nodes".to_owned()),
        subresource: Some(subresource.to_owned()),
        name: Some(node.to_owned()),
        ..ResourceAttributes::default()
    };
    let extra = (!user.extra.is_empty()).then(|| user.extra.clone());

    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: user.uid.clone(),
            groups: Some(user.groups.clone()),
            extra,
            resource_attributes: Some(resource),
            non_resource_attributes: None,
        },
        ..SubjectAccessReview::default()
    }
}

/// Returns whether a right that was reviewed exists.
pub(crate) fn is_allowed(review: &SubjectAccessReview) -> bool {
    let status = review.status.as_ref();
    status.is_some_and(|it| it.allowed && it.denied != Some(true))
}

/// Returns the fingerprint of a token.
pub(crate) fn fingerprint_of_token(token: &str) -> Fingerprint {
    Sha256::digest(token).into()
}

/// Returns the fingerprint of a review.
pub(crate) fn fingerprint_of_right(review: &SubjectAccessReview) -> Fingerprint {
    let text = serde_json::to_vec(&review.spec).unwrap_or_default();
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::route::Route;
    use serde_json::{from_value, json};

    fn scraper() -> User {
        User {
            name: "system:serviceaccount:kube-system:metrics-server".to_owned(),
            uid: Some("1".to_owned()),
            groups: vec!["system:serviceaccounts".to_owned()],
            extra: [("pod".to_owned(), vec!["a".to_owned()])].into(),
        }
    }

    #[test]
    fn a_right_is_one_to_this_node() {
        let attributes = Attributes::of(&Route::of_path("/metrics/resource"), &http::Method::GET);

        let review = of_right(&scraper(), &attributes, attributes.subresources[0], "milan");

        assert_eq!(
            json!(review.spec),
            json!({
                "user": "system:serviceaccount:kube-system:metrics-server",
                "uid": "1",
                "groups": ["system:serviceaccounts"],
                "extra": {"pod": ["a"]},
                "resourceAttributes": {"verb": "get", "version": "v1", "resource": "nodes",
                    "subresource": "metrics", "name": "milan"},
            })
        );
    }

    #[test]
    fn only_an_explicit_permission_is_one() {
        for (status, expected) in [
            (json!({"allowed": true}), true),
            (json!({"allowed": true, "denied": true}), false),
            (json!({"allowed": false}), false),
            (json!(null), false),
        ] {
            let review = json!({"spec": {}, "status": status});
            assert_eq!(
                is_allowed(&from_value(review).unwrap()),
                expected,
                "{status}"
            );
        }
    }

    #[test]
    fn only_an_authenticated_token_with_a_name_is_a_user() {
        let known = json!({"username": "admin", "groups": ["a"]});
        for (status, name) in [
            (json!({"authenticated": true, "user": known}), Some("admin")),
            (json!({"authenticated": false, "user": known}), None),
            (json!({"user": known}), None),
            (
                json!({"authenticated": true, "user": {"username": ""}}),
                None,
            ),
            (json!({"authenticated": true}), None),
            (json!(null), None),
        ] {
            let review = from_value(json!({"spec": {}, "status": status})).unwrap();
            let user = user(review);
            assert_eq!(user.as_ref().map(|it| &*it.name), name, "{status}");
            assert!(user.is_none_or(|it| it.groups == ["a", "system:authenticated"]));
        }
    }

    #[test]
    fn rights_of_different_users_or_verbs_have_different_fingerprints() {
        let get = Attributes::of(&Route::Pods, &http::Method::GET);
        let run = Attributes::of(&Route::of_path("/run/a/b/c"), &http::Method::GET);
        let other = User {
            groups: Vec::new(),
            ..scraper()
        };
        let fingerprint = |user: &User, attributes: &Attributes, subresource: &str| {
            fingerprint_of_right(&of_right(user, attributes, subresource, "milan"))
        };
        let first = fingerprint(&scraper(), &get, "proxy");

        assert_eq!(fingerprint(&scraper(), &get, "proxy"), first);
        assert_ne!(fingerprint(&scraper(), &run, "proxy"), first);
        assert_ne!(fingerprint(&scraper(), &get, "pods"), first);
        assert_ne!(fingerprint(&other, &get, "proxy"), first);
    }
}
