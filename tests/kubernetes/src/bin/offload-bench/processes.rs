//! CPU time and memory of the processes of a cluster.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fs;

/// Clock ticks per second in `/proc/PID/stat` (`man 5 proc`), which Linux fixes for programs.
const TICKS: f64 = 100.0;

/// The programs of Liqo by their `/proc/PID/comm`, which is at most 15 characters long.
const LIQO: [&str; 5] = [
    "controller-mana",
    "gateway",
    "route-agent",
    "edge",
    "virtual-kubelet",
];

const API_SERVER: &str = "kube-apiserver";

/// CPU time in seconds since the start of each process, by program and process ID.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processor(BTreeMap<(String, u32), f64>);

impl Processor {
    /// Reads the CPU time of all processes of the clusters.
    pub(crate) fn now(clusters: &[&str]) -> Result<Self> {
        let mut all = BTreeMap::new();
        for process in of(clusters)? {
            let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", process.id)) else {
                continue;
            };
            // The name, in parentheses, may contain blanks.
            let (_, fields) = stat.rsplit_once(") ").context("no name in stat")?;
            let mut fields = fields.split(' ').skip(11).map(str::parse::<f64>);
            let mut next = || fields.next().context("stat is short")?.context("no number");
            let ticks: f64 = next()? + next()?;
            all.insert((process.program, process.id), ticks / TICKS);
        }

        Ok(Self(all))
    }

    /// Returns the CPU time of API servers and of Liqo since `earlier`. Processes that have ended are missing.
    pub(crate) fn since(&self, earlier: &Self) -> [f64; 2] {
        let used = |is_counted: fn(&str) -> bool| {
            let counted = self.0.iter().filter(|((name, _), _)| is_counted(name));
            let parts = counted.map(|(key, value)| value - earlier.0.get(key).unwrap_or(&0.0));
            parts.sum()
        };

        [used(|it| it == API_SERVER), used(|it| LIQO.contains(&it))]
    }

    /// Describes the CPU time of each program of Liqo since `earlier`.
    pub(crate) fn shown_since(&self, earlier: &Self) -> String {
        let mut programs = BTreeMap::<&str, f64>::new();
        for (key, value) in &self.0 {
            let used = value - earlier.0.get(key).unwrap_or(&0.0);
            *programs.entry(&key.0).or_default() += used;
        }
        programs.retain(|_, used| *used >= 0.01);
        let parts = programs
            .iter()
            .map(|(name, used)| format!("{name} {used:.2}"));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the resident memory in MB of the processes of Liqo in a cluster, by program.
pub(crate) fn memory(cluster: &str) -> Result<Vec<(String, f64)>> {
    let mut all = Vec::new();
    for process in of(&[cluster])? {
        if !LIQO.contains(&process.program.as_str()) {
            continue;
        }
        let Ok(status) = fs::read_to_string(format!("/proc/{}/status", process.id)) else {
            continue;
        };
        let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|it| it.split_whitespace().next());
        let kilobytes: f64 = kilobytes.context("no resident memory")?.parse()?;
        all.push((process.program, kilobytes * 1024.0 / 1e6));
    }

    Ok(all)
}

/// Returns the IDs of the processes of a program in a cluster.
pub(crate) fn ids(cluster: &str, program: &str) -> Result<Vec<u32>> {
    let found = of(&[cluster])?.into_iter();
    Ok(found
        .filter(|it| it.program == program)
        .map(|it| it.id)
        .collect())
}

struct Process {
    program: String,
    id: u32,
}

/// Returns the processes of the clusters, which the names of their cgroups show. Those of a node are below a cgroup with
/// its name, which begins with the name of its cluster.
fn of(clusters: &[&str]) -> Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")
        .context("failed to read /proc")?
        .flatten()
    {
        let Some(id) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let groups = read("cgroup");
        let is_of = |name: &&str| groups.contains(&format!("/liqo-lab/{name}-"));
        if clusters.iter().any(is_of) {
            found.push(Process {
                program: read("comm").trim().to_owned(),
                id,
            });
        }
    }

    Ok(found)
}
