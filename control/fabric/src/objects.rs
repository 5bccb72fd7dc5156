//! The objects of a fabric, in the order of their file.

use super::decode::{self, Strictness};
use super::error::{Place, Position, Problem};
use control_api::{
    Configuration, Connection, GatewayClient, GatewayServer, IP, Network, PublicKey, labels,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// The objects of one cluster's fabric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    pub(super) documents: Vec<Document>,
}

/// An object and its position in the file, if any. Copies share the object until one of them is changed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Document {
    pub(super) position: Option<Position>,
    pub(super) object: Arc<Object>,
    /// Whether [`LastGood`](super::LastGood) has replaced the object by its last complete state.
    pub(super) is_last_good: bool,
}

/// Defines [`Object`] over all kinds that a fabric consists of.
macro_rules! kinds {
    ($($kind:ident $strictness:ident $schema:expr,)*) => {
        /// An object of a fabric.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        #[expect(missing_docs, reason = "each variant is a kind of its name")]
        #[expect(clippy::large_enum_variant, reason = "a fabric holds few objects, and all the time")]
        pub enum Object {
            $($kind($kind),)*
        }

        impl Object {
            /// Returns the kind.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => stringify!($kind),)*
                }
            }

            /// Returns the metadata.
            pub fn metadata(&self) -> &ObjectMeta {
                match self {
                    $(Self::$kind(object) => object.meta(),)*
                }
            }

            /// Decodes the object of that kind from `value`.
            pub(super) fn decode(
                api_version: &str,
                kind: &str,
                value: Value,
            ) -> Result<Self, Vec<(String, Problem)>> {
                $(if kind == stringify!($kind) && api_version == $kind::api_version(&()) {
                    static SCHEMA: LazyLock<Value> = LazyLock::new($schema);
                    return decode::object(value, &SCHEMA, Strictness::$strictness).map(Self::$kind);
                })*
                let problem = Problem::UnknownKind {
                    api_version: api_version.to_owned(),
                    kind: kind.to_owned(),
                    known: known_kinds(),
                };
                Err(vec![("kind".to_owned(), problem)])
            }
        }

        /// Returns the kinds that a fabric consists of, with their API versions.
        fn known_kinds() -> Vec<String> {
            vec![$(format!("{} ({})", stringify!($kind), $kind::api_version(&())),)*]
        }

        $(impl From<$kind> for Object {
            fn from(object: $kind) -> Self {
                Self::$kind(object)
            }
        }

        impl<'a> TryFrom<&'a Object> for &'a $kind {
            type Error = OtherKind;

            fn try_from(object: &'a Object) -> Result<Self, OtherKind> {
                if let Object::$kind(object) = object {
                    Ok(object)
                } else {
                    Err(OtherKind(object.kind()))
                }
            }
        })*
    };
}

kinds! {
    ConfigMap Lenient || decode::kubernetes_schema("ConfigMap"),
    Node Lenient || decode::kubernetes_schema("Node"),
    EndpointSlice Lenient || decode::kubernetes_schema("EndpointSlice"),
    Network Strict decode::schema::<Network>,
    IP Strict decode::schema::<IP>,
    Configuration Strict decode::schema::<Configuration>,
    GatewayServer Strict decode::schema::<GatewayServer>,
    GatewayClient Strict decode::schema::<GatewayClient>,
    PublicKey Strict decode::schema::<PublicKey>,
    Connection Strict decode::schema::<Connection>,
}

/// The object is of another kind than the requested type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object is of kind {0}")]
pub struct OtherKind(pub &'static str);

impl Objects {
    /// Adds an object.
    pub fn push(&mut self, object: impl Into<Object>) {
        self.push_shared(Arc::new(object.into()));
    }

    /// Adds an object without a copy.
    pub fn push_shared(&mut self, object: Arc<Object>) {
        self.documents.push(Document {
            position: None,
            object,
            is_last_good: false,
        });
    }

    /// Returns the objects in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Object> {
        self.documents.iter().map(|document| &*document.object)
    }

    /// Returns the objects of one kind in their order.
    pub fn of<'a, T: 'a>(&'a self) -> impl Iterator<Item = &'a T>
    where
        &'a T: TryFrom<&'a Object>,
    {
        self.iter().filter_map(|object| object.try_into().ok())
    }

    /// Returns the objects in their order, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Object> {
        self.documents
            .iter_mut()
            .map(|document| Arc::make_mut(&mut document.object))
    }

    /// Returns the object at `index`.
    pub(super) fn get(&self, index: usize) -> Option<&Object> {
        self.documents.get(index).map(|document| &*document.object)
    }

    /// Returns the object at `index`, to be changed.
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Object> {
        let document = self.documents.get_mut(index)?;
        Some(Arc::make_mut(&mut document.object))
    }

    /// Returns whether the object at `index` is the last good state of a Configuration.
    pub(super) fn is_last_good(&self, index: usize) -> bool {
        let document = self.documents.get(index);
        document.is_some_and(|document| document.is_last_good)
    }

    /// Keeps only the objects that `keep` accepts.
    pub fn retain(&mut self, mut keep: impl FnMut(&Object) -> bool) {
        self.documents.retain(|document| keep(&document.object));
    }

    /// Returns the objects as a multi-document YAML file, in their order.
    ///
    /// Comments of a parsed file are lost.
    pub fn to_yaml(&self) -> String {
        self.documents
            .iter()
            .map(|document| {
                let yaml = serde_saphyr::to_string(&*document.object)
                    .expect("an object has string keys and no infinite number");
                format!("---\n{yaml}")
            })
            .collect()
    }

    /// Returns the place of a field of the object at `index`, for an error.
    pub(super) fn place(&self, index: usize, field: impl Into<String>) -> Place {
        let document = &self.documents[index];
        Place {
            position: document.position,
            object: document.object.label(),
            field: field.into(),
        }
    }
}

impl<T: Into<Object>> Extend<T> for Objects {
    fn extend<I: IntoIterator<Item = T>>(&mut self, objects: I) {
        for object in objects {
            self.push(object);
        }
    }
}

impl Object {
    /// Returns kind and name as they appear in messages.
    pub(super) fn label(&self) -> String {
        let metadata = self.metadata();
        let name = metadata.name.as_deref().unwrap_or_default();
        match &metadata.namespace {
            Some(namespace) => format!("{} {namespace}/{name}", self.kind()),
            None => format!("{} {name}", self.kind()),
        }
    }

    /// Returns the cluster ID of the peer of an object of a peering; an empty text if its label is missing.
    pub(super) fn peer(&self) -> Option<&str> {
        match self {
            Self::Configuration(_)
            | Self::GatewayServer(_)
            | Self::GatewayClient(_)
            | Self::PublicKey(_) => Some(
                self.label_value(labels::REMOTE_CLUSTER_ID)
                    .unwrap_or_default(),
            ),
            Self::ConfigMap(_)
            | Self::Node(_)
            | Self::EndpointSlice(_)
            | Self::Network(_)
            | Self::IP(_)
            | Self::Connection(_) => None,
        }
    }

    /// Returns the value of a label of the object.
    pub(super) fn label_value(&self, key: &str) -> Option<&str> {
        let labels = self.metadata().labels.as_ref()?;
        labels.get(key).map(String::as_str)
    }
}
