//! Objects in the cache, and reviews of requests.

use crate::certificates::{self, WEBHOOKS};
use crate::webhook;
use crate::webhook::handler::{Handler, Settings};
use crate::webhook::review::{Operation, Request, Response, UserInfo, Verdict};
use control_api::NamespaceOffloading;
use control_runtime::{Cache, Registration, Resource};
use serde_json::{Value, json};

pub(super) const NAMESPACE: &str = "liqo";

pub(super) const SETTINGS: Settings = Settings {
    enforces_resources: true,
    default_toleration_seconds: 300,
};

fn registrations(namespace: &str) -> Vec<Registration> {
    let mut registrations = certificates::registrations(namespace, &[&WEBHOOKS]);
    registrations.extend(webhook::registrations());
    registrations
}

pub(super) fn cache() -> Cache {
    Cache::fixture(&registrations(NAMESPACE)).unwrap()
}

/// Puts an object into the cache.
pub(super) fn put<K: kube::Resource<DynamicType = ()>>(cache: &mut Cache, mut object: Value) {
    let resource = Resource::of::<K>();
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = resource.kind.as_ref().into();
    object["metadata"]["uid"] = "1".into();
    object["metadata"]["resourceVersion"] = "1".into();
    let registrations = registrations(NAMESPACE);
    let of = |it: &&Registration| it.resource == resource;
    let registration = registrations.iter().find(of).unwrap();
    let entry = registration.decode(&object.to_string()).unwrap();
    cache.fixture_put(registration, entry);
}

/// Returns a cache with the NamespaceOffloading of namespace `shop`.
pub(super) fn offloaded(spec: Value, annotations: Value) -> Cache {
    let mut cache = cache();
    let metadata = json!({"name": "offloading", "namespace": "shop", "annotations": annotations});
    put::<NamespaceOffloading>(&mut cache, json!({"metadata": metadata, "spec": spec}));
    cache
}

pub(super) fn create(object: Value) -> Request {
    Request {
        uid: "7".to_owned(),
        operation: Operation::Create,
        namespace: "shop".to_owned(),
        user_info: UserInfo {
            username: "milan-a8a4c692b93b".to_owned(),
        },
        object,
        old_object: Value::Null,
    }
}

pub(super) fn update(old_object: Value, object: Value) -> Request {
    Request {
        operation: Operation::Update,
        old_object,
        ..create(object)
    }
}

pub(super) fn decide(handler: Handler, request: &Request, cache: &Cache) -> Response {
    handler.decide(request, cache, &SETTINGS)
}

/// Returns the object after the patch of a response.
#[track_caller]
pub(super) fn patched(object: &Value, response: &Response) -> Value {
    let Verdict::Allow(patch) = &response.verdict else {
        panic!("{response:?}");
    };
    let patch: json_patch::Patch = serde_json::from_value(patch.clone().into_json()).unwrap();
    let mut object = object.clone();
    json_patch::patch(&mut object, &patch).unwrap();
    object
}

/// Returns the message of a refusal.
#[track_caller]
pub(super) fn refusal(response: Response) -> String {
    match response.verdict {
        Verdict::Deny(message) => message,
        Verdict::Allow(patch) => panic!("allowed: {patch:?}"),
    }
}

pub(super) fn is_unchanged(response: &Response) -> bool {
    matches!(&response.verdict, Verdict::Allow(patch) if patch.is_empty())
}
