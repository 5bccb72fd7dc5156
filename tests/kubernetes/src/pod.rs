//! Processes and network namespaces of pods. In the latter, tests send and receive packets.

use crate::namespace::Namespace;
use anyhow::{Context as _, Result};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::PathBuf;
use tests::lab::netns::Netns;

/// Opens the network namespace of a pod, which must contain a shell.
///
/// # Errors
///
/// Returns an error if the pod does not exist, or has no process.
pub async fn netns(namespace: &Namespace, pod: &str) -> Result<Netns> {
    let link = namespace.sh(pod, "readlink /proc/self/ns/net").await?;
    let link = PathBuf::from(link.trim());
    let file = open(&link).with_context(|| format!("no process has {}", link.display()))?;

    Ok(Netns::adopt(pod, file))
}

/// Kills a process of the pod with this UID by a signal from the machine. Process 1 of a pod ignores signals from inside the
/// pod.
///
/// # Errors
///
/// Returns an error if the pod has no process of this name.
pub fn kill(uid: &str, program: &str) -> Result<()> {
    // The kernel shortens the names of processes to 15 bytes.
    let comm = program.get(..COMM_LEN_MAX).unwrap_or(program);
    let read = |pid: i32, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
    let is_of_pod = |pid: &i32| {
        let groups = read(*pid, "cgroup").unwrap_or_default();
        let name = read(*pid, "comm").unwrap_or_default();
        groups.contains(uid) && name.trim() == comm
    };
    let processes = fs::read_dir("/proc").context("failed to read /proc")?;
    let pid = processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .find(is_of_pod)
        .with_context(|| format!("no process {program} in the control group of pod {uid}"))?;

    signal::kill(Pid::from_raw(pid), Signal::SIGKILL)
        .with_context(|| format!("failed to kill {program}"))
}

/// The length of the longest name of a process, in bytes.
const COMM_LEN_MAX: usize = 15;

/// Opens the network namespace whose links `/proc/PID/ns/net` have the target `link`, such as
/// `net:[4026531840]`. Returns `None` if no process is in this namespace.
fn open(link: &PathBuf) -> Option<File> {
    let processes = fs::read_dir("/proc").ok()?;
    processes
        .filter_map(|entry| {
            let path = entry.ok()?.path().join("ns/net");
            (fs::read_link(&path).ok()? == *link).then(|| File::open(path).ok())?
        })
        .next()
}
