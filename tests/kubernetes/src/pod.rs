//! A pod as the machine sees it: its network namespace, in which tests send and receive
//! themselves.

use crate::namespace::Namespace;
use anyhow::{Context as _, Result};
use std::fs::{self, File};
use std::path::PathBuf;
use tests::lab::netns::Netns;

/// Opens the network namespace of a pod that has a shell.
///
/// # Errors
///
/// Returns an error if there is no such pod, or no process in it.
pub async fn netns(namespace: &Namespace, pod: &str) -> Result<Netns> {
    let link = namespace.sh(pod, "readlink /proc/self/ns/net").await?;
    let link = PathBuf::from(link.trim());
    let file = open(&link).with_context(|| format!("no process is in {}", link.display()))?;

    Ok(Netns::adopt(pod, file))
}

/// Opens the network namespace that `/proc` calls `link`, as a process in it holds it.
fn open(link: &PathBuf) -> Option<File> {
    let processes = fs::read_dir("/proc").ok()?;
    processes
        .filter_map(|entry| {
            let path = entry.ok()?.path().join("ns/net");
            (fs::read_link(&path).ok()? == *link).then(|| File::open(path).ok())?
        })
        .next()
}
