//! The measurements of the benchmark, in their order.

use crate::Cli;
use crate::admission::{self, Admission, Latency};
use crate::bench::{Batch, Bench, of_virtual_kubelet};
use crate::clusters::{self, LOCAL, NATIVE, Nodes, OFFLOADED, Pair, ROME};
use crate::commands::{self, Exec, Unoffload};
use crate::hollow;
use crate::pods::Place;
use crate::processes::memory;
use crate::virtual_nodes;
use anyhow::Result;
use serde::Serialize;

/// Pairs of the other measurements.
const PAIRS: u32 = 3;

/// All samples.
#[derive(Debug, Serialize)]
pub(crate) struct Samples {
    pods: u32,
    rounds: Vec<[Batch; 2]>,
    /// The webhooks at rest.
    admission_at_rest: Vec<Latency>,
    /// The webhooks that the batches have called.
    admission: Vec<Latency>,
    /// A pair of batches without networking between the clusters.
    networking_off: [Batch; 2],
    virtual_nodes: Vec<virtual_nodes::Sample>,
    exec: Vec<Exec>,
    unoffload: Vec<Unoffload>,
    memory: Memory,
    hollow: Vec<hollow::Sample>,
}

/// Resident memory in MB.
#[derive(Clone, Debug, Serialize)]
struct Memory {
    /// All components of the consumer, at rest before the first pod.
    consumer_mb: f64,
    /// The virtual kubelet, at rest before the first pod.
    virtual_kubelet_mb: f64,
    /// The virtual kubelet, with a batch of pods.
    with_pods_mb: f64,
}

pub(crate) async fn run(cli: &Cli) -> Result<Samples> {
    let pair = Pair::create(Nodes::default()).await?;
    pair.peer(&["--gw-server-service-type=NodePort"]).await?;
    for (site, namespace) in [(&pair.milan, NATIVE), (&pair.rome, LOCAL)] {
        site.namespace(namespace).await?;
    }
    pair.offload().await?;
    let bench = Bench::new(&pair, cli.pods).await?;
    let consumer = memory(ROME)?;
    eprintln!("    memory, MB: {consumer:.1?}");
    let admission_at_rest = admission::at_rest(&pair).await?;
    eprintln!("    {admission_at_rest:.2?}");
    let [native, offloaded] = bench.places();
    // The first pair, which fills caches, is not kept.
    let mut with_pods_mb = 0.0;
    let mut rounds = Vec::new();
    let before = Admission::of(&pair).await?;
    for round in 0..=cli.rounds {
        let (sample, memory_mb) = bench.round(round).await?;
        with_pods_mb = f64::max(with_pods_mb, memory_mb);
        rounds.extend((round > 0).then_some(sample));
    }
    let admission = Admission::of(&pair).await?.since(&before);
    eprintln!("    {admission:.2?}");
    native.create("exec", 1).await?;
    offloaded.create("exec", 1).await?;
    let exec = commands::exec(&pair, NATIVE, OFFLOADED, "exec-0").await?;
    native.delete().await?;
    offloaded.delete().await?;
    let mut unoffload = Vec::new();
    for _ in 0..PAIRS {
        let sample = commands::unoffload(&pair).await?;
        eprintln!("    {sample:.2?}");
        unoffload.push(sample);
    }
    let local = Place::new(&pair.rome.client, LOCAL);
    let virtual_nodes = virtual_nodes::run(&pair, &local, PAIRS).await?;

    pair.unoffload().await?;
    pair.unpeer()?;
    pair.peer(&["--networking-disabled"]).await?;
    pair.offload().await?;
    let bench = Bench::new(&pair, cli.pods).await?;
    let (networking_off, _) = bench.round(1).await?;
    let hollow = match cli.hollow.as_slice() {
        [] => Vec::new(),
        sizes => {
            clusters::remove()?;
            hollow::run(sizes).await?
        }
    };

    Ok(Samples {
        pods: cli.pods,
        rounds,
        admission_at_rest,
        admission,
        networking_off,
        virtual_nodes,
        exec,
        unoffload,
        memory: Memory {
            consumer_mb: consumer.iter().map(|it| it.1).sum(),
            virtual_kubelet_mb: of_virtual_kubelet(&consumer),
            with_pods_mb,
        },
        hollow,
    })
}
