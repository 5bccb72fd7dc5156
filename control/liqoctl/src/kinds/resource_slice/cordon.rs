//! The provider's decision about a ResourceSlice: an annotation of its replica.

use crate::cluster::{Cluster, FIELD_MANAGER};
use crate::global::Global;
use crate::verbs::Run;
use crate::{objects, parse, progress, prompt};
use anyhow::{Result, bail};
use clap::Args;
use control_api::{ResourceSlice, annotations, labels};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// Flags of `liqoctl cordon resourceslice`.
#[derive(Args, Debug)]
pub(super) struct Cordon {
    #[command(flatten)]
    slice: Slice,
}

/// Flags of `liqoctl uncordon resourceslice`.
#[derive(Args, Debug)]
pub(super) struct Uncordon {
    #[command(flatten)]
    slice: Slice,
}

#[derive(Args, Debug)]
struct Slice {
    /// The name of the ResourceSlice.
    name: String,

    /// The cluster ID of the consumer. Default: the only consumer with a ResourceSlice of this name.
    #[arg(long, value_name = "ID", value_parser = parse::cluster_id)]
    remote_cluster_id: Option<String>,
}

impl Run for Cordon {
    async fn run(self, global: &Global) -> Result<()> {
        prompt::confirm_verb(global, "cordon").await?;
        self.slice.set(global, &json!("true"), "cordoned").await
    }
}

impl Run for Uncordon {
    async fn run(self, global: &Global) -> Result<()> {
        self.slice.set(global, &Value::Null, "uncordoned").await
    }
}

impl Slice {
    async fn set(&self, global: &Global, value: &Value, done: &str) -> Result<()> {
        let cluster = Cluster::local(global).await?;
        let slice = self.find(&cluster).await?;
        let (name, namespace) = (slice.name_any(), slice.namespace().unwrap_or_default());
        let api = Api::<ResourceSlice>::namespaced(cluster.client.clone(), &namespace);
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = json!({"metadata": {"annotations": {annotations::CORDON: value}}});
        api.patch(&name, &params, &Patch::Merge(&patch))
            .await
            .map_err(cluster.failed(&format!("change ResourceSlice {name}")))?;
        progress::info(format_args!("ResourceSlice \"{name}\" {done}"));
        Ok(())
    }

    /// Returns the replica of the consumer's ResourceSlice.
    async fn find(&self, cluster: &Cluster) -> Result<ResourceSlice> {
        let api = Api::<ResourceSlice>::all(cluster.client.clone());
        let mut selector = format!("{}=true", labels::REPLICATED);
        if let Some(peer) = &self.remote_cluster_id {
            selector = format!("{selector},{}", objects::selector(peer));
        }
        let mut found = cluster.list(&api, "ResourceSlices", &selector).await?;
        found.retain(|slice| slice.name_any() == self.name);
        choose(found, &self.name, &cluster.place())
    }
}

fn choose(mut found: Vec<ResourceSlice>, name: &str, place: &str) -> Result<ResourceSlice> {
    let peers: Vec<String> = found
        .iter()
        .filter_map(|it| it.labels().get(labels::REMOTE_CLUSTER_ID).cloned())
        .collect();
    match (found.pop(), found.is_empty()) {
        (Some(slice), true) => Ok(slice),
        (Some(_), false) => bail!(
            "several consumers have a ResourceSlice {name} in {place} ({}): name one with --remote-cluster-id",
            peers.join(", ")
        ),
        (None, _) => bail!("no consumer has a ResourceSlice {name} in {place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(peer: &str) -> ResourceSlice {
        serde_json::from_value(json!({
            "apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice", "spec": {},
            "metadata": {"name": "a", "labels": {"liqo.io/remote-cluster-id": peer}},
        }))
        .unwrap()
    }

    #[test]
    fn one_name_at_two_consumers_needs_the_flag() {
        let both = vec![slice("rome"), slice("turin")];

        assert!(choose(vec![slice("rome")], "a", "here").is_ok());
        assert!(choose(Vec::new(), "a", "here").is_err());
        let error = choose(both, "a", "here").unwrap_err().to_string();
        assert!(error.contains("rome, turin"), "{error}");
        assert!(error.contains("--remote-cluster-id"), "{error}");
    }
}
