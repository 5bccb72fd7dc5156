//! Memory of Liqo's processes, and CPU time of their cgroups.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use kubernetes_lab::cluster::Cluster;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fixture::LIQO;

const GROUPS: &str = "/sys/fs/cgroup";

/// A part of the cgroup path of every process in the laboratory.
const LABORATORY: &str = "/liqo-lab/";

/// A kind of Liqo process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Manager,
    Gateway,
    Agent,
    MetricAgent,
}

impl Part {
    /// Returns the kind of a process by its `/proc/PID/comm`. The kernel truncates the name to 15
    /// characters.
    fn of(program: &str) -> Option<Self> {
        match program {
            "controller-mana" => Some(Self::Manager),
            "gateway" => Some(Self::Gateway),
            "route-agent" => Some(Self::Agent),
            "edge" => Some(Self::MetricAgent),
            _ => None,
        }
    }
}

/// A running process of Liqo.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) part: Part,
    /// The name of the process's pod.
    pub(crate) pod: String,
    pid: String,
    /// The directory of the process's cgroup in the cgroup file system.
    group: PathBuf,
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) peak: u64,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [now, most] = [self.resident, self.peak].map(megabytes);
        write!(f, "{now:.1} MB (peak {most:.1})")
    }
}

#[expect(clippy::cast_precision_loss, reason = "the value is only displayed")]
pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Returns the processes of Liqo in a cluster. Each pod of Liqo has one process.
pub(crate) async fn processes(cluster: &Cluster) -> Result<Vec<Process>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await?, LIQO);
    let pods = pods.list(&ListParams::default()).await?.items;
    let uids: BTreeMap<_, _> = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .filter_map(|pod| Some((pod.uid()?, pod.name_any())))
        .collect();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().into_string() else {
            continue;
        };
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let Some(part) = Part::of(read("comm").trim()) else {
            continue;
        };
        let groups = read("cgroup");
        let pod = uids.iter().find(|(uid, _)| groups.contains(uid.as_str()));
        let Some((_, pod)) = pod else {
            continue;
        };
        let group = group(&groups).with_context(|| format!("no group of {pod}: {groups}"))?;
        let pod = pod.clone();
        found.push(Process {
            part,
            pod,
            pid,
            group,
        });
    }
    found.sort_by(|a, b| (a.part, &a.pod).cmp(&(b.part, &b.pod)));
    ensure!(
        found.len() == uids.len(),
        "{found:?} are not one process for each of {uids:?}"
    );

    Ok(found)
}

impl Process {
    /// Returns the CPU time that the process's cgroup has used.
    pub(crate) fn processor(&self) -> Result<Duration> {
        let read = |file: &str| fs::read_to_string(self.group.join(file));
        if let Ok(nanoseconds) = read("cpuacct.usage") {
            return Ok(Duration::from_nanos(nanoseconds.trim().parse()?));
        }
        let text = read("cpu.stat").context("the process has ended")?;
        let microseconds = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "))
            .context("cpu.stat has no usage")?;

        Ok(Duration::from_micros(microseconds.trim().parse()?))
    }

    /// Reads a file in the process's `/proc/PID`.
    pub(crate) fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid)).context("the process has ended")
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        let text = self.read("status")?;
        let bytes = |key: &'static str| -> Result<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            let kilobytes = line.and_then(|line| line.split_whitespace().next());
            let kilobytes: u64 = kilobytes.context(key)?.parse()?;
            Ok(kilobytes << 10)
        };

        Ok(Memory {
            resident: bytes("VmRSS:")?,
            peak: bytes("VmHWM:")?,
        })
    }
}

/// Returns the path of the cgroup that accounts CPU time. `/proc/PID/cgroup` has a line
/// `NUMBER:CONTROLLERS:PATH` for each hierarchy of cgroup v1. The line of cgroup v2 has no
/// controllers (`man 7 cgroups`).
fn group(text: &str) -> Option<PathBuf> {
    let lines = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        // If this machine is a container, the path begins with the container's cgroup on its host.
        let at = path.find(LABORATORY)?;
        Some((controllers, path[at + 1..].to_owned()))
    });
    let lines: Vec<_> = lines.collect();
    let first = |controller: &str| {
        let mut lines = lines.iter();
        let of_controller = |controllers: &str| controllers.split(',').any(|it| it == controller);
        let found = lines.find(|(controllers, _)| of_controller(controllers));
        found.map(|(controllers, path)| Path::new(GROUPS).join(controllers).join(path))
    };

    first("cpuacct").or_else(|| first(""))
}
