//! Direct connections: addresses of a ShadowEndpointSlice that pods of the consumer have at its other providers.

use control_api::annotations;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Largest number of other providers in a slice.
const CLUSTERS_MAX: usize = 64;

/// Cluster IDs of the providers that have addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Direct(BTreeMap<Ipv4Addr, String>);

/// Why the annotation is invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum DirectError {
    #[error(
        "the annotation {key} is no JSON of addresses by cluster ID ({0}): remove it, or let the consumer's virtual kubelet \
         write it",
        key = annotations::DIRECT_CONNECTIONS_DATA
    )]
    Syntax(#[from] serde_json::Error),
    #[error(
        "the annotation {key} names {0} clusters, and {CLUSTERS_MAX} are allowed: split the slice",
        key = annotations::DIRECT_CONNECTIONS_DATA
    )]
    TooMany(usize),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    #[serde(default)]
    cluster_addresses: Option<BTreeMap<String, Option<Vec<String>>>>,
}

impl Direct {
    /// Reads the annotation. Of several clusters with one address, the first by name counts.
    ///
    /// # Errors
    ///
    /// Returns [`DirectError`] if the annotation is invalid.
    pub(super) fn of(metadata: &ObjectMeta) -> Result<Self, DirectError> {
        let annotations = metadata.annotations.as_ref();
        let text = annotations.and_then(|it| it.get(annotations::DIRECT_CONNECTIONS_DATA));
        let Some(text) = text else {
            return Ok(Self::default());
        };
        let data: Data = serde_json::from_str(text)?;
        let clusters = data.cluster_addresses.unwrap_or_default();
        if clusters.len() > CLUSTERS_MAX {
            return Err(DirectError::TooMany(clusters.len()));
        }
        let mut addresses = BTreeMap::new();
        for (cluster, texts) in clusters {
            for address in texts.iter().flatten().filter_map(|text| text.parse().ok()) {
                addresses.entry(address).or_insert_with(|| cluster.clone());
            }
        }

        Ok(Self(addresses))
    }

    /// Returns the cluster ID of the provider that has an address.
    pub(super) fn cluster(&self, address: Ipv4Addr) -> Option<&str> {
        self.0.get(&address).map(String::as_str)
    }

    /// Returns the cluster IDs of the providers, each once for each of its addresses.
    pub(super) fn clusters(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(String::as_str)
    }

    /// Returns the cluster IDs in the metadata of a slice, for an index; none if the annotation is invalid.
    pub(super) fn indexed(metadata: &ObjectMeta) -> Vec<String> {
        let direct = Self::of(metadata).unwrap_or_default();
        let clusters = BTreeSet::from_iter(direct.clusters());
        clusters.into_iter().map(str::to_owned).collect()
    }
}
