//! DaemonSets whose pods Kubernetes would schedule on virtual nodes.

use crate::cluster::{Cluster, FIELD_MANAGER};
use crate::failure;
use anyhow::{Result, bail};
use control_api::daemon_set;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// Number of attempts to patch a DaemonSet whose status changes in between.
const TRIES: usize = 5;

/// A DaemonSet from before the installation, which no webhook has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exposed {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The merge patch that keeps its pods off virtual nodes, and restarts them on all nodes.
    pub(crate) patch: Value,
}

impl Exposed {
    /// Returns the state of a DaemonSet; none if its pods stay off virtual nodes.
    fn of(daemon_set: &DaemonSet) -> Option<Self> {
        Some(Self {
            namespace: daemon_set.namespace().unwrap_or_default(),
            name: daemon_set.name_any(),
            patch: daemon_set::patch(daemon_set)?,
        })
    }

    /// Returns a DaemonSet with this patch.
    #[cfg(test)]
    pub(crate) fn new(namespace: &str, name: &str, patch: Value) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            patch,
        }
    }

    /// Returns namespace and name, for messages.
    pub(crate) fn place(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Returns the DaemonSets whose pods would be scheduled on virtual nodes, sorted by namespace and name.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn find(cluster: &Cluster) -> Result<Vec<Exposed>> {
    let api = Api::<DaemonSet>::all(cluster.client.clone());
    let all = cluster.list(&api, "DaemonSets", "").await?;
    let mut exposed: Vec<Exposed> = all.iter().filter_map(Exposed::of).collect();
    exposed.sort_by_key(Exposed::place);
    Ok(exposed)
}

/// Keeps the pods of a DaemonSet off virtual nodes. Kubernetes restarts them on all nodes. Returns whether the DaemonSet
/// still needed the patch.
///
/// # Errors
///
/// Returns an error if the API server refuses the patch, or if the DaemonSet changes again and again.
pub(crate) async fn patch(cluster: &Cluster, exposed: &Exposed) -> Result<bool> {
    let Exposed {
        namespace, name, ..
    } = exposed;
    let api = Api::<DaemonSet>::namespaced(cluster.client.clone(), namespace);
    let action = format!("patch DaemonSet {}", exposed.place());
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    for _ in 0..TRIES {
        let current = cluster.get(&api, "DaemonSet", name).await?;
        let Some(current) = current else {
            return Ok(false);
        };
        let Some(mut patch) = daemon_set::patch(&current) else {
            return Ok(false);
        };
        // The patch replaces the list of terms, so it must not overwrite a change of it.
        patch["metadata"] = json!({"resourceVersion": current.resource_version()});
        match api.patch(name, &params, &Patch::Merge(patch)).await {
            Ok(_) => return Ok(true),
            Err(error) if failure::is_conflict(&error) => {}
            Err(error) => return Err(cluster.failed(&action)(error)),
        }
    }
    bail!("failed to {action}: it was changed again and again; run the command again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_apiserver::{ApiServer, Front, Head, Reply};
    use std::sync::atomic::{AtomicUsize, Ordering};

    const AGENT: &str = "/apis/apps/v1/namespaces/logging/daemonsets/agent";

    fn daemon_set(name: &str, tolerations: &Value) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": "logging"},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "agent"}], "tolerations": tolerations},
                },
            },
        })
    }

    fn cluster() -> (ApiServer, Front, Cluster) {
        let server = ApiServer::start();
        server.put(AGENT, daemon_set("agent", &json!([{"operator": "Exists"}])));
        server.put(
            "/apis/apps/v1/namespaces/logging/daemonsets/plain",
            daemon_set("plain", &json!([])),
        );
        let front = Front::start(&server, |_| Reply::Forward);
        let cluster = Cluster::behind(&front, "local");
        (server, front, cluster)
    }

    #[tokio::test]
    async fn a_patched_daemon_set_is_no_longer_found_and_keeps_its_other_fields() {
        let (server, _front, cluster) = cluster();

        let found = find(&cluster).await.unwrap();
        let places: Vec<String> = found.iter().map(Exposed::place).collect();
        assert_eq!(places, ["logging/agent"]);
        assert!(patch(&cluster, &found[0]).await.unwrap());

        assert_eq!(find(&cluster).await.unwrap(), []);
        assert!(!patch(&cluster, &found[0]).await.unwrap(), "a second time");
        let pod = server.get(AGENT).unwrap()["spec"]["template"]["spec"].clone();
        assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
        assert_eq!(pod["containers"], json!([{"name": "agent"}]));
    }

    #[tokio::test]
    async fn a_change_between_read_and_patch_is_kept() {
        let (server, front, cluster) = cluster();
        let found = find(&cluster).await.unwrap();
        let patches = AtomicUsize::new(0);
        // Every attempt but the last one meets a newer version.
        front.set(move |head| match head.method.as_str() {
            "PATCH" if patches.fetch_add(1, Ordering::Relaxed) + 1 < TRIES => {
                Reply::status(409, "Conflict", "the object has been modified")
            }
            _ => Reply::Forward,
        });
        let mut changed = server.get(AGENT).unwrap();
        let disk = json!({"matchExpressions": [{"key": "disk", "operator": "Exists"}]});
        changed["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [disk]},
        }});
        server.put(AGENT, changed);

        assert!(patch(&cluster, &found[0]).await.unwrap());

        let stored = server.get(AGENT).unwrap()["spec"].to_string();
        assert!(
            stored.contains("disk") && stored.contains("DoesNotExist"),
            "{stored}"
        );
    }

    #[tokio::test]
    async fn attempts_are_limited_and_a_refusal_is_reported() {
        let (_server, front, cluster) = cluster();
        let found = find(&cluster).await.unwrap();
        let is_patch = |head: &Head| head.method == "PATCH";
        for (code, expected, attempts) in [(409, "again and again", TRIES), (403, "no right", 1)] {
            let before = front.count(is_patch);
            front.set(move |head| match is_patch(head) {
                true => Reply::status(code, "Refused", "no right"),
                false => Reply::Forward,
            });

            let error = patch(&cluster, &found[0]).await.unwrap_err().to_string();

            assert!(
                error.contains("patch DaemonSet logging/agent") && error.contains(expected),
                "{error}"
            );
            assert_eq!(front.count(is_patch) - before, attempts);
        }
    }
}
