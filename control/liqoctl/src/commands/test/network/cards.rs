//! Features that the nodes' network cards lack, as the route agents report them.

use super::execute::output;
use crate::pair::Side;
use anyhow::Result;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde::Deserialize;
use std::time::Duration;

/// Labels of the route agents' pods.
const ROUTE_AGENTS: &str = "app.kubernetes.io/name=fabric,app.kubernetes.io/component=networking";

/// Limit of one request to a route agent.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The part of a route agent's status that this command reads.
#[derive(Deserialize)]
struct Status {
    node: String,
    #[serde(default)]
    cards: Vec<Card>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
struct Card {
    device: String,
    lacks: Vec<String>,
}

/// Returns a line for each feature that a node's card lacks, and for each warning of a route agent.
///
/// Route agents that do not respond are left out, as is a cluster with upstream's.
///
/// # Errors
///
/// Returns an error if the pods cannot be listed.
pub(crate) async fn warnings(side: &Side) -> Result<Vec<String>> {
    let namespace = &side.liqo.namespace;
    let api = Api::<Pod>::namespaced(side.cluster.client.clone(), namespace);
    let pods = api
        .list(&ListParams::default().labels(ROUTE_AGENTS))
        .await
        .map_err(side.cluster.failed("list the route agents"))?;
    let names = pods.items.into_iter().filter_map(|pod| pod.metadata.name);
    let command = ["route-agent", "status", "--output", "json"];
    let documents = names.map(async |name| {
        let text = output(&side.cluster, (namespace, &name), command, TIMEOUT).await;
        text.ok()
    });
    let documents = join_all(documents).await.into_iter().flatten();
    let lines = documents.flat_map(|text| lines(&side.liqo.cluster_id, &text));

    Ok(lines.collect())
}

/// Returns the lines of a route agent's status. PURE.
fn lines(cluster_id: &str, status: &str) -> Vec<String> {
    let Ok(status) = serde_json::from_str::<Status>(status) else {
        return Vec::new();
    };
    let place = format!("{cluster_id}/{}", status.node);
    let cards = status.cards.iter();
    let lacks = cards.flat_map(|card| {
        let lacks = card.lacks.iter();
        lacks.map(|lack| format!("{place}: card {} lacks {lack}", card.device))
    });
    let warnings = status.warnings.iter();

    lacks
        .chain(warnings.map(|warning| format!("{place}: {warning}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_missing_feature_and_each_warning_has_a_line() {
        let cards = json!([
            {"device": "eth0", "lacks": ["rx-gro: slow"]},
            {"device": "eth1", "lacks": []},
        ]);
        let status = json!({"node": "worker-1", "cards": cards, "warnings": ["odd"], "peers": []});

        assert_eq!(
            lines("rome", &status.to_string()),
            [
                "rome/worker-1: card eth0 lacks rx-gro: slow",
                "rome/worker-1: odd"
            ]
        );
    }

    #[test]
    fn a_node_that_lacks_nothing_and_an_older_agent_have_no_line() {
        let complete =
            json!({"node": "a", "cards": [{"device": "eth0", "lacks": []}], "warnings": []});
        let older = json!({"node": "a"});

        for status in [complete.to_string(), older.to_string(), String::new()] {
            assert_eq!(lines("rome", &status), [""; 0]);
        }
    }
}
