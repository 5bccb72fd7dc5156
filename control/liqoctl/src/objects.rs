//! The objects of a peer, which its label selects.

use crate::cluster::Cluster;
use crate::state::State;
use anyhow::{Result, bail};
use control_api::labels;
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;

/// A kind of object in tenant namespaces.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + 'static
{
}

/// Returns the label selector of the objects of a peer.
pub(crate) fn selector(peer: &str) -> String {
    format!("{}={peer}", labels::REMOTE_CLUSTER_ID)
}

/// Returns the objects of a peer, sorted by name.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn list<K: Kind>(
    cluster: &Cluster,
    namespace: &str,
    peer: &str,
) -> Result<Vec<K>> {
    select(cluster, namespace, &selector(peer)).await
}

/// Returns the objects with the labels of `selector`, sorted by name.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn select<K: Kind>(
    cluster: &Cluster,
    namespace: &str,
    selector: &str,
) -> Result<Vec<K>> {
    let api = Api::<K>::namespaced(cluster.client.clone(), namespace);
    let mut found = cluster.list(&api, &K::plural(&()), selector).await?;
    found.sort_by_key(|object| object.name_any());
    Ok(found)
}

/// Returns the object of a peer, or none.
///
/// # Errors
///
/// Returns an error if there are several, or if the API server fails.
pub(crate) async fn find<K: Kind>(
    cluster: &Cluster,
    namespace: &str,
    peer: &str,
) -> Result<Option<K>> {
    let mut found: Vec<K> = list(cluster, namespace, peer).await?;
    if found.len() > 1 {
        let names: Vec<String> = found.iter().map(|object| object.name_any()).collect();
        let kind = K::kind(&());
        bail!(
            "{} has several {kind} objects for peer {peer} in namespace {namespace} ({}): delete all but one",
            cluster.place(),
            names.join(", "),
        );
    }
    Ok(found.pop())
}

/// Returns whether an object must be written, is blocked by its deletion, or equals `manifest`.
/// Callers refine [`State::Ready`] by the status.
pub(crate) fn state<K: Kind>(existing: Option<&K>, manifest: &Value, place: &str) -> State<()> {
    match existing {
        Some(object) if object.meta().deletion_timestamp.is_some() => {
            let (kind, name) = (K::kind(&()), object.name_any());
            State::Blocked(format!("{kind} {name} in {place} is still being deleted"))
        }
        Some(object) if is_current(object, manifest) => State::Ready(()),
        Some(_) | None => State::Pending,
    }
}

/// Adds an empty text to `manifest` for one that only the existing object has. `field` is a JSON pointer to the parent, and
/// the name. An Apply without the field would keep a text that another field manager owns, such as upstream's `liqoctl`.
pub(crate) fn clear<K: Kind>(existing: &K, manifest: &mut Value, (parent, name): (&str, &str)) {
    let existing = serde_json::to_value(existing).unwrap_or_default();
    let of_existing = existing.pointer(parent).and_then(|it| it.get(name));
    let is_set = of_existing
        .and_then(Value::as_str)
        .is_some_and(|text| !text.is_empty());
    if let Some(Value::Object(fields)) = manifest.pointer_mut(parent)
        && is_set
        && !fields.contains_key(name)
    {
        fields.insert(name.to_owned(), "".into());
    }
}

/// Returns whether an object has the labels, annotations, owner references and spec of `manifest`.
/// Fields that `manifest` lacks, such as defaults of the API server, are not compared.
fn is_current<K: Kind>(existing: &K, manifest: &Value) -> bool {
    let Ok(existing) = serde_json::to_value(existing) else {
        return false;
    };
    let field = |path: &str| (existing.pointer(path), manifest.pointer(path));
    let has = |path: &str| match field(path) {
        (_, None) => true,
        (Some(existing), Some(desired)) => contains(existing, desired),
        (None, Some(_)) => false,
    };
    let has_owners = match field("/metadata/ownerReferences") {
        (_, None) => true,
        (Some(existing), Some(desired)) => has_items(existing, desired),
        (None, Some(_)) => false,
    };
    has_owners && ["/metadata/labels", "/metadata/annotations", "/spec"].map(has) == [true; 3]
}

/// Returns whether every field of `desired` has the same value in `existing`. Lists are compared as
/// a whole.
fn contains(existing: &Value, desired: &Value) -> bool {
    match (existing, desired) {
        (Value::Object(existing), Value::Object(desired)) => {
            desired.iter().all(|(key, desired)| {
                let existing = existing.get(key);
                existing.is_some_and(|existing| contains(existing, desired))
            })
        }
        _ => existing == desired,
    }
}

/// Returns whether every item of `desired` is in `existing`. Other writers may add items.
fn has_items(existing: &Value, desired: &Value) -> bool {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let existing = items(existing);
    let has_item = |desired: &Value| existing.iter().any(|item| contains(item, desired));
    items(desired).iter().all(has_item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::GatewayClient;
    use serde_json::{from_value, json};

    fn manifest() -> Value {
        json!({
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": "GatewayClient",
            "metadata": {
                "name": "milan",
                "labels": {"a": "b"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"}],
            },
            "spec": {
                "clientTemplateRef": {},
                "endpoint": {"addresses": ["172.18.2.3"], "port": 31110, "protocol": "UDP"},
                "mtu": 1340,
                "secretRef": {"name": ""},
            },
        })
    }

    fn existing(change: impl FnOnce(&mut Value)) -> GatewayClient {
        let mut object = manifest();
        change(&mut object);
        from_value(object).unwrap()
    }

    #[test]
    fn additions_of_other_writers_are_no_difference() {
        let existing = existing(|object| {
            object["metadata"]["labels"]["c"] = "d".into();
            object["metadata"]["annotations"] = json!({"e": "f"});
            let owner = json!({"apiVersion": "v1", "kind": "B", "name": "b", "uid": "2"});
            let owners = object["metadata"]["ownerReferences"].as_array_mut();
            owners.unwrap().insert(0, owner);
            object["spec"]["secretRef"]["name"] = "keys".into();
        });
        let mut desired = manifest();
        desired["spec"]["secretRef"] = json!({});

        assert!(is_current(&existing, &desired));
    }

    #[test]
    fn a_text_that_only_the_existing_object_has_is_emptied() {
        let field = ("/spec/secretRef", "name");
        let with =
            |name: &str| existing(|object| object["spec"]["secretRef"]["name"] = name.into());
        let without = || {
            let mut desired = manifest();
            desired["spec"]["secretRef"] = json!({});
            desired
        };
        let cleared = |existing: &GatewayClient, mut desired: Value| {
            clear(existing, &mut desired, field);
            desired["spec"]["secretRef"].clone()
        };

        assert_eq!(cleared(&with("keys"), without()), json!({"name": ""}));
        assert_eq!(cleared(&with(""), without()), json!({}));
        assert_eq!(cleared(&with("keys"), manifest()), json!({"name": ""}));
        let mut other = manifest();
        other["spec"]["secretRef"]["name"] = "new".into();
        assert_eq!(cleared(&with("keys"), other), json!({"name": "new"}));
    }

    #[test]
    fn an_object_that_is_being_deleted_blocks_its_step() {
        let current = existing(|_| {});
        let deleted = existing(|object| {
            object["metadata"]["deletionTimestamp"] = "2026-11-21T08:15:18Z".into();
        });
        let of = |existing| state::<GatewayClient>(existing, &manifest(), "the local cluster");

        assert_eq!(of(None), State::Pending);
        assert_eq!(of(Some(&current)), State::Ready(()));
        let reason = "GatewayClient milan in the local cluster is still being deleted";
        assert_eq!(of(Some(&deleted)), State::Blocked(reason.to_owned()));
    }

    #[test]
    fn every_difference_is_found() {
        let changes: [fn(&mut Value); 5] = [
            |object| object["metadata"]["labels"]["a"] = "c".into(),
            |object| object["metadata"]["annotations"] = json!({"new": "a"}),
            |object| object["metadata"]["ownerReferences"][0]["uid"] = "2".into(),
            |object| object["spec"]["mtu"] = 1400.into(),
            |object| object["spec"]["endpoint"]["addresses"] = json!(["172.18.2.3", "a"]),
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut desired = manifest();
            change(&mut desired);

            assert!(!is_current(&existing(|_| {}), &desired), "change {i}");
        }
    }
}
