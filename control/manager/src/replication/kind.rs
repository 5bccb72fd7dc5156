//! The kinds of objects that are replicated.

use control_api::{ExportedService, NamespaceMap, Renew, ResourceSlice};
use control_runtime::{Cache, Cluster, Key, Resource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

/// A kind of objects that are replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ResourceSlice,
    Renew,
    NamespaceMap,
    /// Optional: clusters without multi-cluster Services lack the kind, or the right to it.
    ExportedService,
}

impl Kind {
    /// All kinds.
    pub(super) const ALL: [Self; 4] = [
        Self::ResourceSlice,
        Self::Renew,
        Self::NamespaceMap,
        Self::ExportedService,
    ];

    /// The kinds that each provider of a peering serves.
    pub(super) const REQUIRED: [Self; 3] = [Self::ResourceSlice, Self::Renew, Self::NamespaceMap];

    /// Returns the name, for logs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ResourceSlice => "resource_slice",
            Self::Renew => "renew",
            Self::NamespaceMap => "namespace_map",
            Self::ExportedService => "exported_service",
        }
    }

    /// Returns the resource.
    pub(super) fn resource(self) -> Resource {
        match self {
            Self::ResourceSlice => Resource::of::<ResourceSlice>(),
            Self::Renew => Resource::of::<Renew>(),
            Self::NamespaceMap => Resource::of::<NamespaceMap>(),
            Self::ExportedService => Resource::of::<ExportedService>(),
        }
    }

    /// Returns the kind of a resource.
    pub(super) fn of(resource: &Resource) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.resource() == *resource)
    }

    /// Returns an object with all fields.
    pub(super) fn object(self, cache: &Cache, cluster: &Cluster, key: &Key) -> Option<Value> {
        fn value<K>(cache: &Cache, cluster: &Cluster, key: &Key) -> Option<Value>
        where
            K: control_runtime::Kept + serde::Serialize,
        {
            serde_json::to_value(cache.objects::<K>(cluster).get(key)?).ok()
        }
        match self {
            Self::ResourceSlice => value::<ResourceSlice>(cache, cluster, key),
            Self::Renew => value::<Renew>(cache, cluster, key),
            Self::NamespaceMap => value::<NamespaceMap>(cache, cluster, key),
            Self::ExportedService => value::<ExportedService>(cache, cluster, key),
        }
    }

    /// Returns the metadata of an object of this cluster.
    pub(super) fn metadata<'a>(self, cache: &'a Cache, key: &Key) -> Option<&'a ObjectMeta> {
        match self {
            Self::ResourceSlice => cache.local::<ResourceSlice>(key).map(|it| &it.metadata),
            Self::Renew => cache.local::<Renew>(key).map(|it| &it.metadata),
            Self::NamespaceMap => cache.local::<NamespaceMap>(key).map(|it| &it.metadata),
            Self::ExportedService => cache.local::<ExportedService>(key).map(|it| &it.metadata),
        }
    }

    /// Returns the objects in a namespace, with their metadata.
    pub(super) fn within<'a>(
        self,
        cache: &'a Cache,
        cluster: &Cluster,
        namespace: &str,
    ) -> Vec<(&'a Key, &'a ObjectMeta)> {
        match self {
            Self::ResourceSlice => {
                let objects = cache.objects::<ResourceSlice>(cluster);
                objects
                    .within(namespace)
                    .map(|(key, it)| (key, &it.metadata))
                    .collect()
            }
            Self::Renew => {
                let objects = cache.objects::<Renew>(cluster);
                objects
                    .within(namespace)
                    .map(|(key, it)| (key, &it.metadata))
                    .collect()
            }
            Self::NamespaceMap => {
                let objects = cache.objects::<NamespaceMap>(cluster);
                objects
                    .within(namespace)
                    .map(|(key, it)| (key, &it.metadata))
                    .collect()
            }
            Self::ExportedService => {
                let objects = cache.objects::<ExportedService>(cluster);
                objects
                    .within(namespace)
                    .map(|(key, it)| (key, &it.metadata))
                    .collect()
            }
        }
    }
}
