//! The live gateway replicas, according to the probes of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The live gateway replicas by name, with the ids of the remote clusters that they reach. Copies share
/// the ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    serving: BTreeMap<String, Arc<BTreeSet<String>>>,
    /// Replicas that are about to stop or have missed probes. A cluster's packets are sent to them
    /// only if no serving replica reaches the cluster.
    last_resort: BTreeMap<String, Arc<BTreeSet<String>>>,
}

impl View {
    /// Adds `cluster` to the clusters that the serving replica `replica` reaches.
    pub(crate) fn reaches(&mut self, replica: &str, cluster: &str) {
        let clusters = self.serving.entry(replica.to_owned()).or_default();
        Arc::make_mut(clusters).insert(cluster.to_owned());
    }

    /// Adds a serving replica that reaches `clusters`.
    pub(crate) fn serves(&mut self, replica: &str, clusters: impl Into<Arc<BTreeSet<String>>>) {
        self.serving.insert(replica.to_owned(), clusters.into());
    }

    /// Adds a replica that is used only for those of `clusters` that no serving replica reaches.
    pub(crate) fn is_last_resort(
        &mut self,
        replica: &str,
        clusters: impl Into<Arc<BTreeSet<String>>>,
    ) {
        self.last_resort.insert(replica.to_owned(), clusters.into());
    }

    /// Returns the clusters that each serving replica reaches, by the replica's name.
    pub(crate) fn serving(&self) -> &BTreeMap<String, Arc<BTreeSet<String>>> {
        &self.serving
    }

    /// Returns the replicas to which packets for `cluster` are sent.
    pub(crate) fn replicas_of(&self, cluster: &str) -> BTreeSet<&str> {
        let serving = reaching(&self.serving, cluster);
        if serving.is_empty() {
            return reaching(&self.last_resort, cluster);
        }

        serving
    }
}

fn reaching<'a>(
    replicas: &'a BTreeMap<String, Arc<BTreeSet<String>>>,
    cluster: &str,
) -> BTreeSet<&'a str> {
    replicas
        .iter()
        .filter(|(_, clusters)| clusters.contains(cluster))
        .map(|(name, _)| name.as_str())
        .collect()
}
