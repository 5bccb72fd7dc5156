//! What a node knows of the gateway replicas.

use std::collections::{BTreeMap, BTreeSet};

/// Which replicas serve, and which remote clusters each of them reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Replicas that serve, by name.
    serving: BTreeMap<String, BTreeSet<String>>,
    /// Replicas that are about to stop, or that may have stopped.
    last_resort: BTreeMap<String, BTreeSet<String>>,
}

impl View {
    /// Notes that `replica` serves and reaches `cluster`.
    pub(crate) fn reaches(&mut self, replica: &str, cluster: &str) {
        let clusters = self.serving.entry(replica.to_owned()).or_default();
        clusters.insert(cluster.to_owned());
    }

    /// Notes that `replica` serves and reaches `clusters`.
    pub(crate) fn serves(&mut self, replica: &str, clusters: BTreeSet<String>) {
        self.serving.insert(replica.to_owned(), clusters);
    }

    /// Notes that `replica`, which reaches `clusters`, may not do so for long.
    pub(crate) fn is_last_resort(&mut self, replica: &str, clusters: BTreeSet<String>) {
        self.last_resort.insert(replica.to_owned(), clusters);
    }

    /// Returns what each serving replica reaches.
    pub(crate) fn serving(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.serving
    }

    /// Returns the replicas that packets for `cluster` go to.
    ///
    /// One that is about to stop is used only where no other one reaches the cluster:
    /// it forwards until then.
    pub(crate) fn replicas_of(&self, cluster: &str) -> BTreeSet<&str> {
        let serving = reaching(&self.serving, cluster);
        if serving.is_empty() {
            return reaching(&self.last_resort, cluster);
        }

        serving
    }
}

fn reaching<'a>(
    replicas: &'a BTreeMap<String, BTreeSet<String>>,
    cluster: &str,
) -> BTreeSet<&'a str> {
    replicas
        .iter()
        .filter(|(_, clusters)| clusters.contains(cluster))
        .map(|(name, _)| name.as_str())
        .collect()
}
