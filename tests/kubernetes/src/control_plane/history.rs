//! The history of etcd: compaction, and a return to an earlier state.

use super::{Component, ControlPlane, DATA};
use crate::host;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;

/// A copy of etcd's data.
#[derive(Debug)]
pub struct Snapshot(PathBuf);

impl ControlPlane {
    /// Removes the history of etcd before its current revision. Afterwards the API server responds
    /// with 410 to a watch or a continued list at an earlier resourceVersion, unless its cache has
    /// this resourceVersion. See [`Options::watch_cache`](super::Options::watch_cache).
    ///
    /// # Errors
    ///
    /// Returns an error if etcd is not running, or if it is compacted at its current revision.
    pub fn compact(&self) -> Result<()> {
        let revision = self.revision()?.to_string();
        self.etcdctl(&["compact", "--physical", &revision])
            .map(drop)
    }

    /// Compacts etcd, and restarts the API server with an empty cache. Afterwards the API server
    /// responds with 410 to each watch and each continued list at an earlier resourceVersion.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ControlPlane::compact`] and [`ControlPlane::restart_api_server`].
    pub async fn expire_resource_versions(&self) -> Result<()> {
        self.compact()?;
        self.restart_api_server().await
    }

    /// Returns the current revision of etcd, which is the resourceVersion of the latest change.
    ///
    /// # Errors
    ///
    /// Returns an error if etcd is not running.
    pub fn revision(&self) -> Result<u64> {
        let text = self.etcdctl(&["endpoint", "status", "--write-out=json"])?;
        let status: Value = serde_json::from_str(&text).context("no JSON from etcdctl")?;
        status[0]["Status"]["header"]["revision"]
            .as_u64()
            .with_context(|| format!("no revision in {status}"))
    }

    /// Copies etcd's data while etcd is suspended.
    ///
    /// # Errors
    ///
    /// Returns an error if etcd is not running, or if the files cannot be copied.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let number = self.snapshots.fetch_add(1, Ordering::Relaxed);
        let copy = self.folder.join(format!("snapshot-{number}"));
        self.pause_component(Component::Etcd)?;
        let copied = copy_folder(&self.folder.join(DATA), &copy);
        self.resume_component(Component::Etcd)?;

        copied.map(|()| Snapshot(copy))
    }

    /// Replaces etcd's data by a snapshot, and restarts the components. Later changes are lost, and
    /// their resourceVersions are used again. Waits until the API server is ready.
    ///
    /// # Errors
    ///
    /// Returns an error if the files cannot be copied, or if a component does not start.
    pub async fn restore(&self, snapshot: &Snapshot) -> Result<()> {
        let components = [
            Component::ControllerManager,
            Component::ApiServer,
            Component::Etcd,
        ];
        for component in components {
            self.stop_component(component)?;
        }
        let data = self.folder.join(DATA);
        fs::remove_dir_all(&data).context("failed to remove etcd's data")?;
        copy_folder(&snapshot.0, &data)?;

        self.start_component(Component::Etcd)?;
        self.start_component(Component::ApiServer)?;
        self.until_ready().await?;
        if self.options.controller_manager {
            self.start_component(Component::ControllerManager)?;
        }
        Ok(())
    }

    fn etcdctl(&self, words: &[&str]) -> Result<String> {
        let mut etcdctl = Command::new(self.artifacts().program("etcdctl"));
        etcdctl.args(["--endpoints", &self.etcd]).args(words);
        host::checked(&mut etcdctl, "")
    }
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let words = [OsStr::new("-a"), from.as_os_str(), to.as_os_str()];
    host::run("cp", &words).map(drop)
}
