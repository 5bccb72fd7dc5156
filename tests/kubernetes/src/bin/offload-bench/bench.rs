//! A batch of pods: its durations, requests and CPU time.

use crate::clusters::{MILAN, NATIVE, OFFLOADED, Pair, ROME};
use crate::pods::Place;
use crate::processes::{Processor, memory};
use crate::requests::{Requests, SETTLED};
use anyhow::Result;
use serde::Serialize;
use std::time::Instant;

/// A batch of pods.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Batch {
    create: Step,
    delete: Step,
    /// From the binding of each pod to the virtual node until it exists at the provider. For pods of the provider, until the
    /// first status of the kubelet.
    placed_s: Vec<f64>,
}

/// Creation or deletion of a batch: its duration in seconds, requests per pod to both API servers, and CPU time in
/// seconds of both API servers and of Liqo.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Step {
    seconds: f64,
    requests: f64,
    api_servers_cpu_s: f64,
    liqo_cpu_s: f64,
}

pub(crate) struct Bench<'a> {
    pair: &'a Pair,
    pods: u32,
    /// Requests per second at rest.
    rate: Requests,
}

impl<'a> Bench<'a> {
    /// Counts the requests of the clusters at rest first.
    pub(crate) async fn new(pair: &'a Pair, pods: u32) -> Result<Self> {
        let rate = Requests::at_rest(pair).await?;
        eprintln!("    at rest, per second: {}", rate.shown());

        Ok(Self { pair, pods, rate })
    }

    pub(crate) fn places(&self) -> [Place; 2] {
        let native = Place::new(&self.pair.milan.client, NATIVE);
        let remote = format!("{OFFLOADED}-{ROME}");
        let mut offloaded = Place::new(&self.pair.rome.client, OFFLOADED);
        offloaded.remote = Some(Place::new(&self.pair.milan.client, &remote).pods);

        [native, offloaded]
    }

    /// Measures a batch of the provider's pods and one of offloaded pods, whose order alternates. Also returns the memory
    /// of the virtual kubelet with offloaded pods.
    pub(crate) async fn round(&self, round: u32) -> Result<([Batch; 2], f64)> {
        let [native, offloaded] = self.places();
        let prefix = format!("round-{round}");
        if round.is_multiple_of(2) {
            let (native, _) = self.batch(&native, &prefix).await?;
            let (offloaded, memory_mb) = self.batch(&offloaded, &prefix).await?;
            Ok(([native, offloaded], memory_mb))
        } else {
            let (offloaded, memory_mb) = self.batch(&offloaded, &prefix).await?;
            let (native, _) = self.batch(&native, &prefix).await?;
            Ok(([native, offloaded], memory_mb))
        }
    }

    /// Measures a batch of offloaded pods. Also returns the memory of the virtual kubelet with them.
    pub(crate) async fn offloaded(&self, prefix: &str) -> Result<(Batch, f64)> {
        let [_, offloaded] = self.places();
        self.batch(&offloaded, prefix).await
    }

    async fn batch(&self, place: &Place, prefix: &str) -> Result<(Batch, f64)> {
        let (created, create) = self
            .step("created", async || {
                let created = place.create(prefix, self.pods).await?;
                Ok((created.ready_s, created.placed_s))
            })
            .await?;
        let mut sorted = created.clone();
        sorted.sort_by(f64::total_cmp);
        if let (Some(median), Some(worst)) = (sorted.get(sorted.len() / 2), sorted.last()) {
            eprintln!("    placed after {median:.2} s at the median, {worst:.2} s at most");
        }
        let memory_mb = of_virtual_kubelet(&memory(ROME)?);
        let ((), delete) = self
            .step("deleted", async || Ok((place.delete().await?, ())))
            .await?;
        let batch = Batch {
            create,
            delete,
            placed_s: created,
        };

        Ok((batch, memory_mb))
    }

    /// Measures a step, which returns its duration in seconds.
    async fn step<T>(
        &self,
        name: &str,
        act: impl AsyncFnOnce() -> Result<(f64, T)>,
    ) -> Result<(T, Step)> {
        let clusters = [ROME, MILAN];
        let start = Instant::now();
        let (before, used) = (Requests::of(self.pair).await?, Processor::now(&clusters)?);
        let (seconds, value) = act().await?;
        tokio::time::sleep(SETTLED).await;
        let now = Processor::now(&clusters)?;
        let [api_servers_cpu_s, liqo_cpu_s] = now.since(&used);
        let requests = Requests::of(self.pair).await?;
        let elapsed = start.elapsed().as_secs_f64();
        let requests = requests.since(&before, &self.rate, elapsed);
        let requests = requests.per(f64::from(self.pods));
        eprintln!(
            "    {name} in {seconds:.1} s; per pod {:.1}: {}; CPU, s: {}",
            requests.sum(),
            requests.shown(),
            now.shown_since(&used)
        );
        let step = Step {
            seconds,
            requests: requests.sum(),
            api_servers_cpu_s,
            liqo_cpu_s,
        };

        Ok((value, step))
    }
}

pub(crate) fn of_virtual_kubelet(memory: &[(String, f64)]) -> f64 {
    let of = memory.iter().filter(|it| it.0 == "virtual-kubelet");
    of.map(|it| it.1).fold(0.0, f64::max)
}
