//! Network namespaces of pods, in which tests send and receive packets.

use crate::namespace::Namespace;
use anyhow::{Context as _, Result};
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
