//! Batches of pods on simulated nodes of the provider, which cost neither containers nor kubelets.

use crate::bench::{Batch, Bench};
use crate::clusters::{MILAN, Nodes, Pair};
use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;

/// A batch on simulated nodes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pods: u32,
    batch: Batch,
    /// Resident memory with the pods, in MB.
    virtual_kubelet_mb: f64,
}

/// Measures batches of these sizes, on clusters of their own.
pub(crate) async fn run(sizes: &[u32]) -> Result<Vec<Sample>> {
    let Some(most) = sizes.iter().max() else {
        return Ok(Vec::new());
    };
    let pair = Pair::create(Nodes::hollow(*most)).await?;
    pair.peer(&["--networking-disabled"]).await?;
    cordon_real_nodes(&pair).await?;
    pair.offload().await?;
    let mut samples = Vec::new();
    for &pods in sizes {
        let bench = Bench::new(&pair, pods).await?;
        let (batch, virtual_kubelet_mb) = bench.offloaded(&format!("hollow-{pods}")).await?;
        samples.push(Sample {
            pods,
            batch,
            virtual_kubelet_mb,
        });
    }

    Ok(samples)
}

/// Leaves only the simulated nodes to new pods.
async fn cordon_real_nodes(pair: &Pair) -> Result<()> {
    let nodes: Api<Node> = Api::all(pair.milan.client.clone());
    for node in nodes
        .list(&ListParams::default().labels("type!=kwok"))
        .await?
    {
        let name = node.metadata.name.unwrap_or_default();
        nodes.cordon(&name).await?;
        eprintln!("    {name} of {MILAN} takes no further pods");
    }

    Ok(())
}
