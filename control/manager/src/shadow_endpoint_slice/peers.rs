//! The namespaces and Configurations of peers in the cache, by which addresses are translated.

use super::mapping::{Mapping, NotMapped};
use crate::authentication::label;
use crate::network::keep;
use control_api::tenant_namespace::{choose, peer_of};
use control_api::{Configuration, annotations, labels};
use control_runtime::{Cache, Change, Cluster, Objects, Registration, Scope};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;

/// Index of namespaces that were created for a consumer, by its cluster ID.
const BY_CONSUMER: &str = "shadow-endpoint-slice/consumer";

/// Index of tenant namespaces and Configurations by the cluster ID of their peer.
const BY_PEER: &str = "shadow-endpoint-slice/peer";

/// The peers of this cluster.
pub(crate) struct Peers<'a> {
    namespaces: Objects<'a, Namespace>,
    configurations: Objects<'a, Configuration>,
    /// Namespaces that may hold the Configuration of any peer.
    tenant_namespaces: &'a [String],
}

impl<'a> Peers<'a> {
    /// Returns the registrations of namespaces and of Configurations, with the indexes that this type uses.
    pub(crate) fn registrations() -> [Registration; 2] {
        let namespaces = Registration::of(Scope::All, keep::<Namespace>)
            .index(BY_CONSUMER, |namespace: &Namespace| {
                let consumer = consumer_of(&namespace.metadata);
                consumer.into_iter().map(str::to_owned).collect()
            })
            .index(BY_PEER, |namespace: &Namespace| {
                let peer = peer_of(&namespace.metadata);
                peer.into_iter().map(str::to_owned).collect()
            });
        let configurations = Registration::of(Scope::All, keep::<Configuration>).index(
            BY_PEER,
            |configuration: &Configuration| {
                let peer = label(&configuration.metadata, labels::REMOTE_CLUSTER_ID);
                peer.into_iter().map(str::to_owned).collect()
            },
        );

        [namespaces, configurations]
    }

    /// Creates the view of a cache.
    pub(crate) fn new(cache: &'a Cache, tenant_namespaces: &'a [String]) -> Self {
        Self {
            namespaces: cache.objects(&Cluster::Local),
            configurations: cache.objects(&Cluster::Local),
            tenant_namespaces,
        }
    }

    /// Returns the namespaces that were created for a consumer.
    pub(crate) fn namespaces_of(&self, consumer: &str) -> impl Iterator<Item = &'a str> {
        let namespaces = self.namespaces.indexed(BY_CONSUMER, consumer);
        namespaces.map(|(key, _)| key.name.as_str())
    }

    /// Returns the translation of a peer's addresses.
    ///
    /// # Errors
    ///
    /// Returns [`NotMapped`] if the peer has no Configuration in its tenant namespace whose CIDRs are allocated.
    pub(crate) fn mapping(&self, peer: &str) -> Result<Mapping, NotMapped> {
        let of_peer = || self.configurations.indexed(BY_PEER, peer);
        let labelled = self.namespaces.indexed(BY_PEER, peer);
        let tenant = choose(
            labelled.map(|(_, namespace)| &namespace.metadata),
            self.tenant_namespaces,
            |name| of_peer().any(|(key, _)| key.namespace == name),
        );
        let placed = of_peer().filter(|(key, it)| {
            Some(key.namespace.as_str()) == tenant && it.metadata.deletion_timestamp.is_none()
        });
        // The network controller uses the oldest.
        let oldest = placed.min_by_key(|(key, it)| {
            let created = it.metadata.creation_timestamp.clone();
            (created.map(|time| time.0), (*key).clone())
        });

        Mapping::of(oldest.ok_or(NotMapped::Missing)?.1)
    }

    /// Returns the peers whose translation a change of a Configuration may concern.
    pub(crate) fn remapped<'c>(change: &Change<'c>) -> BTreeSet<&'c str> {
        let states = [change.before::<Configuration>(), change.after()];
        let facts = states.map(|it| {
            let it = it?;
            let peer = label(&it.metadata, labels::REMOTE_CLUSTER_ID);
            let is_terminating = it.metadata.deletion_timestamp.is_some();
            Some((peer, is_terminating, Mapping::of(it)))
        });
        if facts[0] == facts[1] {
            return BTreeSet::new();
        }

        facts.iter().flatten().filter_map(|it| it.0).collect()
    }
}

/// Returns the cluster ID of the consumer in the metadata of a namespace that was created for it.
pub(super) fn consumer_of(namespace: &ObjectMeta) -> Option<&str> {
    let annotations = namespace.annotations.as_ref()?;
    let is_created = annotations.contains_key(annotations::NAMESPACE_MAP);
    let peer = label(namespace, labels::REMOTE_CLUSTER_ID).filter(|_| is_created)?;

    (!peer.is_empty()).then_some(peer)
}
