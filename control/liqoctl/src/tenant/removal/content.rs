//! The content of a tenant namespace, which decides about its deletion.

use super::kinds::Kinds;
use super::ownership::{Object, Objects};
use crate::cluster::Cluster;
use anyhow::Result;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::Status;
use kube::{Api, Error};
use std::time::Duration;

/// Lists in progress per cluster, so that one command does not use up the user's share of the API server (API priority
/// and fairness).
const CONCURRENCY: usize = 16;

/// Objects that are read of each kind. A peering has fewer of any kind, so a namespace with more is kept.
const OBJECTS_MAX: u32 = 500;

/// Limit of a list. The API server waits 60 s for an extension API server that does not respond.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The objects of a kind in a namespace.
#[derive(Debug)]
struct Listed {
    resource: ApiResource,
    outcome: Outcome,
}

/// The outcome of a list.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// The objects that were read.
    Objects {
        metadata: Vec<ObjectMeta>,
        /// Whether there are no others.
        is_complete: bool,
    },
    /// The user may not list the kind.
    Forbidden,
    /// The API server does not list the kind, for this reason.
    Unavailable(String),
}

/// Returns why a namespace must be kept, or none if all objects in it are of its peering or of Kubernetes.
///
/// # Errors
///
/// Returns an error if the API server is unreachable.
pub(super) async fn reason_to_keep(cluster: &Cluster, namespace: &str) -> Result<Option<String>> {
    let Kinds {
        served,
        unavailable,
    } = Kinds::discover(cluster).await?;
    let lists: Vec<Listed> = stream::iter(served)
        .map(|resource| list(cluster, namespace, resource))
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;

    Ok(reason(&lists, &unavailable))
}

async fn list(cluster: &Cluster, namespace: &str, resource: ApiResource) -> Result<Listed> {
    let client = cluster.client.clone();
    let api = Api::<DynamicObject>::namespaced_with(client, namespace, &resource);
    let params = ListParams::default().limit(OBJECTS_MAX);
    let outcome = match tokio::time::timeout(TIMEOUT, api.list_metadata(&params)).await {
        Ok(Ok(list)) => Outcome::Objects {
            is_complete: list.metadata.continue_.is_none_or(|it| it.is_empty()),
            metadata: list.items.into_iter().map(|it| it.metadata).collect(),
        },
        Ok(Err(Error::Api(status))) => of_refusal(&status),
        Ok(Err(error)) => return Err(cluster.failed(&format!("list {}", name(&resource)))(error)),
        Err(_) => Outcome::Unavailable("the request timed out".to_owned()),
    };

    Ok(Listed { resource, outcome })
}

/// Returns the outcome of a list that the API server refuses.
fn of_refusal(status: &Status) -> Outcome {
    match status.code {
        403 => Outcome::Forbidden,
        // The kind was removed after its discovery.
        404 | 405 => Outcome::Objects {
            metadata: Vec::new(),
            is_complete: true,
        },
        code if status.message.is_empty() => Outcome::Unavailable(format!("HTTP status {code}")),
        _ => Outcome::Unavailable(status.message.clone()),
    }
}

/// Returns why a namespace must be kept. An object of another owner is the best reason; kinds of which the objects are not
/// known are the next.
fn reason(lists: &[Listed], unavailable: &[String]) -> Option<String> {
    let mut objects = Objects::default();
    let mut forbidden = Vec::new();
    let mut unlisted = unavailable.to_vec();
    let mut oversized = None;
    for Listed { resource, outcome } in lists {
        match outcome {
            Outcome::Objects {
                metadata,
                is_complete,
            } => {
                objects.add(resource, metadata, *is_complete);
                if !is_complete {
                    oversized = oversized.or(Some(&resource.kind));
                }
            }
            Outcome::Forbidden => forbidden.push(name(resource)),
            Outcome::Unavailable(reason) => unlisted.push(format!("{}: {reason}", name(resource))),
        }
    }
    if let Some(object) = foreign(lists, &objects) {
        return Some(format!("it contains {}", object.describe()));
    }
    if let Some(kind) = oversized {
        return Some(format!(
            "it contains more than {OBJECTS_MAX} objects of kind {kind}"
        ));
    }
    if !forbidden.is_empty() {
        let kinds = and_others(&forbidden);
        return Some(format!("the user may not list its objects ({kinds})"));
    }
    if unlisted.is_empty() {
        return None;
    }
    Some(format!(
        "the API server failed to list its objects ({})",
        and_others(&unlisted)
    ))
}

/// Returns the first object of another owner.
fn foreign<'a>(lists: &'a [Listed], objects: &Objects<'a>) -> Option<Object<'a>> {
    lists.iter().find_map(|Listed { resource, outcome }| {
        let metadata = match outcome {
            Outcome::Objects { metadata, .. } => metadata.as_slice(),
            Outcome::Forbidden | Outcome::Unavailable(_) => &[],
        };
        let mut of_kind = metadata
            .iter()
            .map(|metadata| Object { resource, metadata });
        of_kind.find_map(|object| objects.foreign_origin(object))
    })
}

/// Returns the name of a kind as kubectl's: plural and group.
fn name(resource: &ApiResource) -> String {
    match resource.group.as_str() {
        "" => resource.plural.clone(),
        group => format!("{}.{group}", resource.plural),
    }
}

/// Returns the first name, with a hint if there are others.
fn and_others(names: &[String]) -> String {
    match names {
        [only] => only.clone(),
        [first, ..] => format!("{first} and other kinds"),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::api::GroupVersionKind;
    use serde_json::{from_value, json};

    fn listed(group: &str, kind: &str, outcome: Outcome) -> Listed {
        let gvk = GroupVersionKind::gvk(group, "v1", kind);
        let resource = ApiResource::from_gvk(&gvk);
        Listed { resource, outcome }
    }

    fn named(names: &[&str]) -> Outcome {
        let metadata = |name: &&str| from_value(json!({"name": name, "uid": name}));
        let metadata: Result<_, _> = names.iter().map(metadata).collect();
        Outcome::Objects {
            metadata: metadata.expect("metadata"),
            is_complete: true,
        }
    }

    #[test]
    fn a_foreign_object_of_any_kind_keeps_a_namespace() {
        let common = || listed("", "ConfigMap", named(&["kube-root-ca.crt"]));
        assert_eq!(reason(&[common()], &[]), None);

        for (group, kind) in [
            ("batch", "CronJob"),
            ("apps", "DaemonSet"),
            ("networking.k8s.io", "Ingress"),
            ("", "ResourceQuota"),
            ("example.com", "Widget"),
        ] {
            let lists = [common(), listed(group, kind, named(&["mine"]))];
            let expected = format!("it contains {kind} mine");
            assert_eq!(reason(&lists, &[]), Some(expected));
        }
    }

    #[test]
    fn a_kind_that_the_user_may_not_list_is_named() {
        let first = || listed("batch", "CronJob", Outcome::Forbidden);
        let second = listed("apps", "DaemonSet", Outcome::Forbidden);

        assert_eq!(
            reason(&[first()], &[]).as_deref(),
            Some("the user may not list its objects (cronjobs.batch)")
        );
        assert_eq!(
            reason(&[first(), second], &[]).as_deref(),
            Some("the user may not list its objects (cronjobs.batch and other kinds)")
        );
    }

    #[test]
    fn a_foreign_object_is_reported_rather_than_a_missing_right() {
        let lists = [
            listed("batch", "CronJob", Outcome::Forbidden),
            listed("", "ConfigMap", named(&["notes"])),
        ];

        let reason = reason(&lists, &["any kind: a".to_owned()]);

        assert_eq!(reason.as_deref(), Some("it contains ConfigMap notes"));
    }

    #[test]
    fn an_unavailable_kind_keeps_a_namespace_with_the_reason() {
        let unavailable = Outcome::Unavailable("service unavailable".to_owned());
        let widgets = listed("example.com", "Widget", unavailable);
        let prefix = "the API server failed to list its objects";

        assert_eq!(
            reason(&[widgets], &[]),
            Some(format!(
                "{prefix} (widgets.example.com: service unavailable)"
            ))
        );
        assert_eq!(
            reason(&[], &["example.com/v1: a".to_owned()]),
            Some(format!("{prefix} (example.com/v1: a)"))
        );
    }

    #[test]
    fn a_namespace_with_more_objects_than_are_read_is_kept() {
        let truncated = Outcome::Objects {
            metadata: Vec::new(),
            is_complete: false,
        };

        let reason = reason(&[listed("", "Pod", truncated)], &[]);

        let expected = "it contains more than 500 objects of kind Pod";
        assert_eq!(reason.as_deref(), Some(expected));
    }

    #[test]
    fn a_kind_that_was_removed_has_no_objects() {
        let refused = |code| of_refusal(&Status::failure("unavailable", "").with_code(code));

        for code in [404, 405] {
            assert_eq!(refused(code), named(&[]));
        }
        assert_eq!(refused(403), Outcome::Forbidden);
        for code in [429, 500, 503] {
            let expected = Outcome::Unavailable("unavailable".to_owned());
            assert_eq!(refused(code), expected);
        }
    }
}
