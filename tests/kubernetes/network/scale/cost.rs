//! The cost of a change, which is the resource usage beyond that of the idle cluster.

use super::requests;
use super::usage::{self, Part, Process};
use anyhow::Result;
use kubernetes_lab::cluster::Cluster;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// The duration of each measurement. A measurement takes longer than a change, since effects may
/// occur late.
const WINDOW: Duration = Duration::from_secs(10);

/// The resource usage of Liqo's processes during a measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct Cost {
    /// The time from the first request of the change to its effect.
    pub(super) effective: Duration,
    /// The duration of the measurement.
    time: Duration,
    /// The CPU time of each kind of process.
    parts: BTreeMap<Part, Duration>,
    /// The number of API requests of all processes.
    pub(super) requests: u64,
}

impl Cost {
    /// Returns the CPU time of all processes.
    pub(super) fn processor(&self) -> Duration {
        self.parts.values().sum()
    }

    /// Subtracts the usage that the idle cluster has in a period of the same length.
    fn beyond(mut self, idle: &Self) -> Self {
        let share = self.time.as_secs_f64() / idle.time.as_secs_f64();
        for (part, time) in &mut self.parts {
            let idle = idle.parts.get(part).copied().unwrap_or_default();
            *time = time.saturating_sub(idle.mul_f64(share));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "small whole numbers"
        )]
        let idle = (idle.requests as f64 * share) as u64;
        self.requests = self.requests.saturating_sub(idle);

        self
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.effective.is_zero() {
            write!(f, "effective after {:.2} s; ", self.effective.as_secs_f64())?;
        }
        write!(f, "in {:.0} s", self.time.as_secs_f64())?;
        for (part, time) in &self.parts {
            let milliseconds = time.as_secs_f64() * 1000.0;
            write!(f, ", {part:?} {milliseconds:.1} ms of processor time")?;
        }
        write!(f, ", {} requests", self.requests)
    }
}

/// The processes of a cluster, and their cost while the cluster is idle.
pub(super) struct Meter<'a> {
    cluster: &'a Cluster,
    processes: Vec<Process>,
    idle: Cost,
}

impl<'a> Meter<'a> {
    /// Measures the idle cluster.
    pub(super) async fn start(cluster: &'a Cluster) -> Result<Self> {
        let mut meter = Self {
            cluster,
            processes: usage::processes(cluster).await?,
            idle: Cost::default(),
        };
        let (idle, ()) = meter.observe(async || Ok(())).await?;
        meter.idle = Cost {
            effective: Duration::ZERO,
            ..idle
        };

        Ok(meter)
    }

    /// Returns the cost of the idle cluster for [`WINDOW`].
    pub(super) fn idle(&self) -> &Cost {
        &self.idle
    }

    /// Measures the cost of `change`, which must return once the change is effective.
    pub(super) async fn measure<T>(
        &self,
        change: impl AsyncFnOnce() -> Result<T>,
    ) -> Result<(Cost, T)> {
        let (cost, value) = self.observe(change).await?;

        Ok((cost.beyond(&self.idle), value))
    }

    async fn observe<T>(&self, change: impl AsyncFnOnce() -> Result<T>) -> Result<(Cost, T)> {
        let before = self.used()?;
        let requests = requests::count(self.cluster)?;
        let start = Instant::now();

        let value = change().await?;
        let effective = start.elapsed();
        tokio::time::sleep(WINDOW.saturating_sub(effective)).await;

        let mut parts = self.used()?;
        for (part, time) in &mut parts {
            *time -= before.get(part).copied().unwrap_or_default();
        }
        let cost = Cost {
            effective,
            time: start.elapsed(),
            parts,
            requests: requests::count(self.cluster)? - requests,
        };

        Ok((cost, value))
    }

    fn used(&self) -> Result<BTreeMap<Part, Duration>> {
        let mut used = BTreeMap::new();
        for process in &self.processes {
            *used.entry(process.part).or_default() += process.processor()?;
        }

        Ok(used)
    }
}
