//! The form in which the cache keeps objects of both clusters: digests, which are equal if the objects are.

use super::ingress;
use super::observed;
use super::other::STATUS;
use super::peering::Peering;
use super::service;
use super::token::TokenState;
use control_api::ShadowEndpointSlice;
use control_api::annotations::USE_DIRECT_CONNECTIONS;
use control_api::offloading::policy::Marks;
use control_runtime::{Digest, Kept, Resource};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// Fields of an object that both clusters have, and those that reflection depends on.
#[derive(Debug, PartialEq)]
pub(crate) struct Summary<K> {
    pub(super) fingerprint: Fingerprint,
    pub(super) marks: Marks,
    /// Whether a Service has the annotation [`USE_DIRECT_CONNECTIONS`].
    pub(super) is_direct: bool,
    /// Type of a Service.
    pub(super) service_type: Option<String>,
    /// State of a Secret with tokens of a pod.
    pub(super) tokens: Option<Box<TokenState>>,
    /// State of an object of a kind that a flag names.
    pub(super) other: Option<Box<OtherState>>,
    pub(super) is_terminating: bool,
    marker: PhantomData<fn() -> K>,
}

/// State of an object of a kind that a flag names.
#[derive(Debug, PartialEq)]
pub(super) struct OtherState {
    /// Kind of the object; empty if the server has left it out of a list.
    pub(super) kind: Box<str>,
    /// Digest of the status without generations, if there is one.
    pub(super) status: Option<Digest>,
    pub(super) generation: i64,
    /// Generations of the object that the status does not know yet; `None` if the status names no generation.
    pub(super) lag: Option<i64>,
}

/// Digests of the fields of an object that are reflected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, Digest>,
    /// Type of a Secret, load balancer class of a Service, class of an Ingress.
    pub(super) class: Option<String>,
    /// Whether a Service has no ClusterIP. The API server keeps the absence if an Apply does not name it, without a refusal.
    pub(super) is_headless: bool,
    pub(super) content: Digest,
}

/// A kind that the cache keeps as a [`Summary`].
pub(crate) trait Summarized: kube::Resource<DynamicType = ()> {
    /// Returns the digest of the fields that both clusters have, besides metadata and class.
    fn content(&self) -> Digest;

    /// Returns [`Fingerprint::class`].
    fn class(&self) -> Option<String> {
        None
    }

    /// Sets the fields of the summary that only this kind has.
    fn complete(&self, _summary: &mut Summary<Self>)
    where
        Self: Sized,
    {
    }
}

impl<K> Kept for Summary<K>
where
    K: kube::Resource<DynamicType = ()> + PartialEq + 'static,
{
    fn resource() -> Resource {
        Resource::of::<K>()
    }
}

/// Returns the summary of an object.
pub(crate) fn keep<K: Summarized>(object: K) -> Summary<K> {
    let mut summary = Summary::new(object.meta(), object.class(), object.content());
    object.complete(&mut summary);

    summary
}

/// Returns the summary of an object of a kind that a flag names.
pub(super) fn keep_unstructured(mut object: DynamicObject) -> Summary<DynamicObject> {
    let status = object.data.as_object_mut().and_then(|it| it.remove(STATUS));
    let mut status = status.filter(|it| !it.is_null());
    let generation = object.metadata.generation.unwrap_or_default();
    let observed = status.as_mut().and_then(observed::take);
    let kind = object.types.map(|it| it.kind).unwrap_or_default();
    // An empty field may mean something else than an absent one.
    let mut summary = Summary::new(&object.metadata, None, Digest::of(&object.data));
    summary.other = Some(Box::new(OtherState {
        kind: kind.into(),
        status: status.map(|it| Digest::of(&it)),
        generation,
        lag: observed.map(|it| generation.saturating_sub(it)),
    }));

    summary
}

impl<K> Summary<K> {
    /// Returns the summary of an object with this class and content.
    pub(super) fn new(metadata: &ObjectMeta, class: Option<String>, content: Digest) -> Self {
        Self {
            fingerprint: Fingerprint {
                labels: metadata.labels.clone().unwrap_or_default(),
                annotations: digests(metadata),
                class,
                is_headless: false,
                content,
            },
            marks: Marks::of(metadata.annotations.as_ref()),
            is_direct: is_true(metadata, USE_DIRECT_CONNECTIONS),
            service_type: None,
            tokens: None,
            other: None,
            is_terminating: metadata.deletion_timestamp.is_some(),
            marker: PhantomData,
        }
    }

    /// Returns whether an object of the provider is reflected from this cluster.
    pub(super) fn is_reflected(&self, peering: &Peering) -> bool {
        peering.is_reflected(&self.fingerprint.labels)
    }
}

impl Summarized for Service {
    fn content(&self) -> Digest {
        digest(&service::content(self))
    }

    fn class(&self) -> Option<String> {
        self.spec.as_ref()?.load_balancer_class.clone()
    }

    fn complete(&self, summary: &mut Summary<Self>) {
        let spec = self.spec.as_ref();
        summary.service_type = spec.and_then(|it| it.type_.clone());
        summary.fingerprint.is_headless = service::is_headless(self);
    }
}

impl Summarized for Ingress {
    fn content(&self) -> Digest {
        digest(&ingress::content(self))
    }

    fn class(&self) -> Option<String> {
        self.spec.as_ref()?.ingress_class_name.clone()
    }
}

impl Summarized for ConfigMap {
    fn content(&self) -> Digest {
        Digest::of(&(
            filled(self.data.as_ref()),
            filled(self.binary_data.as_ref()).map(bytes),
            self.immutable.unwrap_or_default(),
        ))
    }
}

impl Summarized for Secret {
    fn content(&self) -> Digest {
        let data = filled(self.data.as_ref()).map(bytes);
        Digest::of(&(data, self.immutable.unwrap_or_default()))
    }

    fn class(&self) -> Option<String> {
        self.type_.clone()
    }

    fn complete(&self, summary: &mut Summary<Self>) {
        summary.tokens = TokenState::of(self).map(Box::new);
    }
}

impl Summarized for ShadowEndpointSlice {
    fn content(&self) -> Digest {
        digest(&self.spec)
    }
}

/// Returns a map that has members. An API server may store an empty one as absent.
fn filled<K, V>(map: Option<&BTreeMap<K, V>>) -> Option<&BTreeMap<K, V>> {
    map.filter(|it| !it.is_empty())
}

fn bytes(map: &BTreeMap<String, k8s_openapi::ByteString>) -> Vec<(&str, &[u8])> {
    let members = map.iter();
    members
        .map(|(key, it)| (key.as_str(), it.0.as_slice()))
        .collect()
}

fn digests(metadata: &ObjectMeta) -> BTreeMap<String, Digest> {
    let annotations = metadata.annotations.iter().flatten();
    annotations
        .map(|(key, it)| (key.clone(), Digest::of(it)))
        .collect()
}

fn is_true(metadata: &ObjectMeta, annotation: &str) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations
        .and_then(|it| it.get(annotation))
        .is_some_and(|it| it == "true")
}

/// Returns the digest of a value, in which an empty field is an absent one.
fn digest(value: &impl Serialize) -> Digest {
    let mut value = serde_json::to_value(value).unwrap_or_default();
    prune(&mut value);
    Digest::of(&value)
}

fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields.retain(|_, it| !is_empty(it));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
