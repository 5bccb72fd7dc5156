//! The remote namespaces that still exist, as providers report them.

use crate::cluster::{Cluster, list_all};
use crate::parse;
use control_api::offloading::namespace_map::NamespaceMapping;
use control_api::{NamespaceMap, labels};
use kube::{Api, ResourceExt as _};

/// A counterpart that a provider still has, of a namespace that is no longer offloaded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RemoteNamespace {
    /// Cluster ID of the provider.
    provider: String,
    mapping: NamespaceMapping,
}

/// Returns the remote namespaces of a namespace; none if the NamespaceMaps cannot be read, because another error is
/// reported.
pub(super) async fn find(cluster: &Cluster, namespace: &str) -> Vec<RemoteNamespace> {
    let api = Api::<NamespaceMap>::all(cluster.client.clone());
    let selector = format!("{}=true", labels::REPLICATION);
    let maps = list_all(&api, &selector).await.unwrap_or_default();
    let mut found: Vec<RemoteNamespace> = maps.iter().filter_map(|it| of(it, namespace)).collect();
    found.sort_by(|one, other| one.provider.cmp(&other.provider));
    found
}

fn of(map: &NamespaceMap, namespace: &str) -> Option<RemoteNamespace> {
    let mapping = map.status.as_ref()?.current_mapping.get(namespace)?.clone();
    let provider = map.labels().get(labels::REMOTE_ID).cloned();
    Some(RemoteNamespace {
        provider: provider.unwrap_or_else(|| map.name_any()),
        mapping,
    })
}

/// Returns a message with the remote namespaces and the remedy, or none if there are none.
pub(super) fn describe(found: &[RemoteNamespace]) -> Option<String> {
    let first = &found.first()?.provider;
    let shown: Vec<String> = found.iter().map(RemoteNamespace::show).collect();
    Some(format!(
        "these namespaces still exist in other clusters: {}; `liqoctl info peer` shows whether these clusters respond; for one that never will, run `liqoctl force unpeer {first}`",
        shown.join(", ")
    ))
}

impl RemoteNamespace {
    fn show(&self) -> String {
        // The provider has written the name: it may be long, or contain control characters of terminals.
        let name = self.mapping.remote_namespace.as_deref();
        let name = name.filter(|it| parse::namespace(it).is_ok());
        let phase = self.mapping.phase.map(|it| format!(", {it:?}"));
        format!(
            "{} (cluster {}{})",
            name.unwrap_or("without a valid name"),
            self.provider,
            phase.unwrap_or_default()
        )
    }
}
