//! Objects as the cache keeps them.

use control_client::object::{Key, Resource, key_of};
use control_client::watch::{self, Watched};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The form in which the cache keeps the objects of one resource.
///
/// Kubernetes types that are known at compile time are kept as they are, or with unused fields
/// cleared. A type of its own keeps less, for example a digest.
pub trait Kept: Any + PartialEq + Send + Sync {
    /// Returns the resource of the objects.
    fn resource() -> Resource;
}

impl<K> Kept for K
where
    K: kube::Resource<DynamicType = ()> + PartialEq + Send + Sync + 'static,
{
    fn resource() -> Resource {
        Resource::of::<K>()
    }
}

/// A type of objects of the API.
pub trait Source:
    kube::Resource + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static
{
}

impl<K: kube::Resource + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static> Source
    for K
{
}

/// An object in the cache, with the metadata that the runtime itself needs.
#[derive(Clone)]
pub struct Entry {
    /// Name of the object.
    pub key: Key,
    /// `metadata.uid`; empty if the server sent none.
    pub uid: String,
    /// `metadata.resourceVersion` as a number; `None` if it is not a number.
    ///
    /// Versions of one resource are comparable numbers (Kubernetes API concepts, Resource versions).
    pub version: Option<u64>,
    /// Length of the object's JSON, in bytes.
    pub size: usize,
    /// Labels of an object that a request returned; `None` for those of watches.
    pub(crate) labels: Option<BTreeMap<String, String>>,
    /// Field managers that have changed the object by the operation `Update`, with the subresource.
    pub(crate) updaters: Vec<(String, String)>,
    /// Field managers of an object that a plan has read, each with its subresource, the latest first; `None` for other objects.
    pub(crate) managers: Option<Box<[(String, String)]>>,
    /// `None` for most objects.
    pub(crate) finalization: Option<Box<Finalization>>,
    pub(crate) kept: Arc<dyn Any + Send + Sync>,
    /// The object as it was decoded, in changes and responses whose registration wants it.
    pub(crate) full: Option<Arc<dyn Any + Send + Sync>>,
}

/// Finalizers that delay the deletion of an object, and the time of its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finalization {
    pub(crate) finalizers: Vec<String>,
    pub(crate) deleted_at: Option<Timestamp>,
}

impl Entry {
    /// Returns the object; `None` if `T` is not the type that the registration keeps.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.kept.downcast_ref()
    }

    /// Returns the full object, if the registration wants [full
    /// objects](crate::Registration::full_objects) and this is not the entry in the cache.
    pub fn full<K: Any + Send + Sync>(&self) -> Option<Arc<K>> {
        Arc::clone(self.full.as_ref()?).downcast().ok()
    }

    /// Returns the field managers of a subresource of an object that a [plan has read](crate::Plan::reads), the latest first. An
    /// empty name stands for the object itself. Watches and writes do not report them.
    pub fn managers(&self, subresource: &str) -> impl Iterator<Item = &str> {
        let managers = self.managers.iter().flatten();
        let managers = managers.filter(move |(_, of)| of == subresource);
        managers.map(|(name, _)| name.as_str())
    }

    /// Adds the field managers of the object, whose JSON is `text`.
    pub(crate) fn with_managers(mut self, text: &str) -> Self {
        self.managers = Some(managers(text));
        self
    }

    /// Returns `metadata.finalizers`.
    pub fn finalizers(&self) -> &[String] {
        let finalization = self.finalization.as_ref();
        finalization.map_or(&[], |it| it.finalizers.as_slice())
    }

    /// Returns `metadata.deletionTimestamp`, which is set while finalizers delay the deletion.
    pub fn deleted_at(&self) -> Option<Timestamp> {
        self.finalization.as_ref()?.deleted_at
    }

    /// Returns the object, shared with the cache. It is of the type that the registration keeps.
    pub fn shared(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.kept)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the object, which may be a Secret.
        f.debug_struct("Entry")
            .field("key", &self.key)
            .field("uid", &self.uid)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// An object that could not be decoded. Its metadata is known.
#[derive(Clone, Debug, thiserror::Error)]
#[error("failed to decode {resource} {key}: {reason}")]
pub struct DecodeError {
    /// Resource that the object was requested from.
    pub resource: Box<Resource>,
    /// Name of the object.
    pub key: Key,
    /// Field and reason, as the decoder reports them.
    pub reason: String,
}

/// An event of a watch.
pub(crate) type Signal = watch::Signal<Result<Entry, DecodeError>>;

/// An object of a response, decoded once. An object that does not match its type is no error of the
/// response, so that one invalid object does not hide the others.
#[derive(Clone, Debug)]
pub(crate) struct Decoded<K> {
    pub(crate) metadata: ObjectMeta,
    /// The object without its metadata's managed fields, or why it cannot be decoded.
    pub(crate) object: Result<K, String>,
    /// Field managers that have changed the object by the operation `Update`, with the subresource.
    updaters: Vec<(String, String)>,
    pub(crate) size: usize,
}

impl<'de, K: Source> Deserialize<'de> for Decoded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(serde::de::Error::custom)
    }
}

impl<K: Source> Watched for Decoded<K> {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: ObjectMeta,
}

/// The parts of an object that identify it.
#[derive(Deserialize)]
struct Identity {
    metadata: IdentifyingMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentifyingMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl From<IdentifyingMetadata> for ObjectMeta {
    fn from(metadata: IdentifyingMetadata) -> Self {
        Self {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            ..Self::default()
        }
    }
}

/// Memory that an object within an object needs at least once it is decoded, in bytes. Its JSON may be as short as `{},`.
const NESTED_BYTES: usize = 256;

/// Most memory of an object as counted by [`size_of_json`], in bytes. etcd refuses objects whose JSON is longer than 1.5 MiB.
const BYTES_MAX: usize = 16 << 20;

/// Returns how much memory a decoded object needs about, at least the length of its JSON.
fn size_of_json(text: &str) -> usize {
    let (mut nested, mut is_string, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            b'{' if !is_string => nested += 1,
            _ => {}
        }
    }

    text.len().max(nested.saturating_mul(NESTED_BYTES))
}

impl<K: Source> Decoded<K> {
    /// Decodes an object.
    ///
    /// # Errors
    ///
    /// Returns an error if `text` is not an object with metadata.
    pub(crate) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let (updaters, text) = without_managed_fields(text)
            .map_or((None, Cow::Borrowed(text)), |(updaters, text)| {
                (Some(updaters), Cow::Owned(text))
            });
        let size = size_of_json(&text);
        if size > BYTES_MAX {
            let head: Identity = serde_json::from_str(&text)?;
            return Ok(Self {
                updaters: Vec::new(),
                metadata: head.metadata.into(),
                object: Err(format!("it takes some {} MiB of memory", size >> 20)),
                size,
            });
        }
        let (metadata, object) = match serde_json::from_str::<K>(&text) {
            Ok(mut object) => (identity(object.meta_mut()), Ok(object)),
            Err(error) => {
                let head: Head = serde_json::from_str(&text)?;
                (head.metadata, Err(error.to_string()))
            }
        };

        Ok(Self {
            updaters: updaters.unwrap_or_default(),
            metadata,
            object,
            size,
        })
    }

    /// Applies `keep` to the object.
    ///
    /// # Errors
    ///
    /// Returns [`DecodeError`] if the object did not match its type.
    pub(crate) fn entry<T: Any + Send + Sync>(
        self,
        resource: &Resource,
        keep: impl Fn(K) -> T,
        is_full: bool,
    ) -> Result<Entry, DecodeError> {
        let key = key_of(&self.metadata);
        let object = self.object.map_err(|reason| DecodeError {
            resource: Box::new(resource.clone()),
            key: key.clone(),
            reason,
        })?;
        let metadata = self.metadata;

        Ok(Entry {
            key,
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.and_then(|it| it.parse().ok()),
            size: self.size,
            labels: metadata.labels,
            updaters: self.updaters,
            managers: None,
            finalization: finalization(metadata.finalizers, metadata.deletion_timestamp),
            full: is_full.then(|| Arc::new(object.clone()) as _),
            kept: Arc::new(keep(object)),
        })
    }
}

/// Copies the metadata that identify an object.
fn identity(metadata: &mut ObjectMeta) -> ObjectMeta {
    // Managed fields of which `without_managed_fields` could not make sense are still there.
    metadata.managed_fields = None;
    ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        labels: metadata.labels.clone(),
        finalizers: metadata.finalizers.clone(),
        deletion_timestamp: metadata.deletion_timestamp.clone(),
        ..ObjectMeta::default()
    }
}

fn finalization(
    finalizers: Option<Vec<String>>,
    deleted_at: Option<Time>,
) -> Option<Box<Finalization>> {
    let (finalizers, deleted_at) = (finalizers.unwrap_or_default(), deleted_at.map(|it| it.0));
    let is_delayed = !finalizers.is_empty() || deleted_at.is_some();
    is_delayed.then(|| {
        Box::new(Finalization {
            finalizers,
            deleted_at,
        })
    })
}

/// The part of an object that [`without_managed_fields`] reads.
#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(borrow)]
    metadata: OutlineMetadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutlineMetadata<'a> {
    #[serde(borrow)]
    managed_fields: &'a RawValue,
}

#[derive(Deserialize)]
struct Manager {
    manager: Option<String>,
    operation: Option<String>,
    subresource: Option<String>,
    /// RFC 3339 in UTC, so its order is that of time.
    time: Option<String>,
}

/// Returns the field managers of an object, each with its subresource, the latest first.
fn managers(text: &str) -> Box<[(String, String)]> {
    let outline = serde_json::from_str::<Outline<'_>>(text);
    let fields = outline.map(|it| it.metadata.managed_fields.get());
    let managers = fields.and_then(serde_json::from_str::<Vec<Manager>>);
    let mut managers = managers.unwrap_or_default();
    managers.sort_by(|a, b| b.time.cmp(&a.time));
    let managers = managers.into_iter();

    managers
        .filter_map(|it| Some((it.manager?, it.subresource.unwrap_or_default())))
        .collect()
}

/// Returns the field managers of an object that have changed it by the operation `Update`, and the object without its managed
/// fields; `None` if it has none.
///
/// They are half of a pod's JSON, and as a tree most of the allocations of its decoding.
fn without_managed_fields(text: &str) -> Option<(Vec<(String, String)>, String)> {
    let outline: Outline<'_> = serde_json::from_str(text).ok()?;
    let fields = outline.metadata.managed_fields.get();
    let managers: Vec<Manager> = serde_json::from_str(fields).ok()?;
    let start = fields.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let (before, after) = (text.get(..start)?, text.get(start + fields.len()..)?);
    let updaters = managers
        .into_iter()
        .filter(|it| it.operation.as_deref() == Some("Update"))
        .filter_map(|it| Some((it.manager?, it.subresource.unwrap_or_default())));

    Some((updaters.collect(), [before, "[]", after].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};

    const OBJECT: &str = r#"{"metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "17",
        "managedFields": [{"manager": "old", "operation": "Update"}, {"manager": "new", "operation": "Apply"}]},
        "data": {"key": "value"}}"#;

    #[test]
    fn an_object_is_kept_without_managed_fields() {
        let decoded: Decoded<ConfigMap> = serde_json::from_str(OBJECT).unwrap();
        let resource = Resource::of::<ConfigMap>();
        let entry = decoded
            .entry(&resource, |object: ConfigMap| object, false)
            .unwrap();

        assert_eq!(entry.key, Key::new("b", "a"));
        assert_eq!((entry.version, entry.uid.as_str()), (Some(17), "u"));
        assert_eq!(entry.updaters, [("old".into(), String::new())]);
        let object: &ConfigMap = entry.get().unwrap();
        assert_eq!(object.metadata.managed_fields, None);
        assert_eq!(object.data.as_ref().unwrap()["key"], "value");
    }

    #[test]
    fn an_object_of_many_nested_ones_is_not_decoded() {
        let statuses = |count: usize| {
            let statuses = vec!["{}"; count].join(",");
            let metadata =
                r#"{"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "17"}"#;
            let status = format!(r#"{{"containerStatuses": [{statuses}]}}"#);
            format!(r#"{{"metadata": {metadata}, "status": {status}}}"#)
        };
        let many: Decoded<Pod> = Decoded::parse(&statuses(1 << 20)).unwrap();
        let refusal = many.object.unwrap_err();
        assert!(refusal.contains("256 MiB"), "{refusal}");
        assert_eq!(many.metadata.name.as_deref(), Some("a"));
        assert_eq!(many.metadata.resource_version.as_deref(), Some("17"));

        let some: Decoded<Pod> = Decoded::parse(&statuses(1000)).unwrap();
        assert!(some.object.is_ok() && some.size >= 1000 * NESTED_BYTES);
    }

    #[test]
    fn braces_in_strings_are_no_objects() {
        let data = r#"{\"{"#.repeat(1 << 18);
        let text = format!(r#"{{"metadata": {{"name": "a"}}, "data": {{"key": "{data}"}}}}"#);

        let decoded: Decoded<ConfigMap> = Decoded::parse(&text).unwrap();

        assert!(decoded.object.is_ok());
        assert_eq!(decoded.size, text.len());
    }

    #[test]
    fn the_managers_of_an_object_that_was_read_are_in_the_order_of_their_last_change() {
        let text = r#"{"metadata": {"name": "a", "managedFields": [
            {"manager": "first", "operation": "Apply", "time": "2026-11-27T10:00:00Z"},
            {"manager": "third", "operation": "Update", "time": "2026-11-27T10:00:02Z"},
            {"manager": "status", "operation": "Update", "subresource": "status", "time": "2026-11-27T10:00:03Z"},
            {"manager": "second", "operation": "Update", "time": "2026-11-27T10:00:01Z"}]}}"#;
        let decoded = Decoded::<ConfigMap>::parse(text).unwrap();
        let resource = Resource::of::<ConfigMap>();
        let entry = decoded
            .entry(&resource, |map: ConfigMap| map, false)
            .unwrap();

        assert_eq!(entry.managers("").next(), None);
        let entry = entry.with_managers(text);
        let of = |subresource| Vec::from_iter(entry.managers(subresource));
        assert_eq!(of(""), ["third", "second", "first"]);
        assert_eq!(of("status"), ["status"]);
        assert!(managers(r#"{"metadata": {"name": "a"}}"#).is_empty());
    }

    #[test]
    fn an_object_of_another_shape_is_reported_by_name_and_hides_no_other() {
        let list = format!(r#"[{{"metadata": {{"name": "c"}}, "data": 7}}, {OBJECT}]"#);
        let mut list: Vec<Decoded<ConfigMap>> = serde_json::from_str(&list).unwrap();
        let keep = |object: ConfigMap| object;
        let resource = Resource::of::<ConfigMap>();

        assert!(list.pop().unwrap().entry(&resource, keep, false).is_ok());
        let error = list
            .pop()
            .unwrap()
            .entry(&resource, keep, false)
            .unwrap_err();
        assert_eq!(error.key, Key::cluster("c"));
        assert!(error.to_string().contains("configmaps c"), "{error}");
    }

    #[test]
    fn managed_fields_in_a_string_or_of_another_shape_are_left_to_the_decoder() {
        let object = |metadata: &str| format!(r#"{{"metadata": {{"name": "a", {metadata}}}}}"#);
        let decoded = |metadata| Decoded::<ConfigMap>::parse(&object(metadata)).unwrap();
        let value = r#""annotations": {"a": "\"managedFields\":[]"}"#;
        let annotations = decoded(value).object.unwrap().metadata.annotations.unwrap();
        assert_eq!(annotations["a"], r#""managedFields":[]"#);

        let null = decoded(r#""managedFields": null"#);
        assert!(null.object.is_ok() && null.updaters.is_empty());
        let twice = decoded(r#""managedFields": [], "managedFields": []"#);
        assert_eq!(twice.object.unwrap().metadata.managed_fields, None);
        assert!(Decoded::<ConfigMap>::parse(&object(r#""managedFields": 7"#)).is_err());
    }
}
