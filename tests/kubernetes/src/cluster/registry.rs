//! The registry of clusters. Each cluster has a folder with a record.

use super::Cluster;
use crate::place;
use crate::spec::Spec;
use anyhow::{Context as _, Result, bail};
use std::fs::{self, File};
use std::path::Path;

/// The largest number of a cluster. Larger numbers are those of hosts outside of clusters (253),
/// NAT routers (254) and the machine (255).
const NUMBER_MAX: u8 = 250;

/// Returns the sorted names of all clusters.
///
/// # Errors
///
/// Returns an error if the folder of clusters cannot be read.
pub fn names() -> Result<Vec<String>> {
    let folder = place::clusters();
    let mut names: Vec<_> = match fs::read_dir(&folder) {
        Ok(entries) => entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            return Err(error).with_context(|| format!("failed to read {}", folder.display()));
        }
    };
    names.sort();

    Ok(names)
}

pub(super) fn find(name: &str) -> Result<Cluster> {
    if let Some(cluster) = read(name)? {
        return Ok(cluster);
    }
    let names = names()?;
    if names.iter().any(|known| known == name) {
        bail!("{name} is incomplete: `cargo xtask cluster down {name}` removes it");
    }
    if names.is_empty() {
        bail!("no cluster {name:?}: none is up; `cargo xtask cluster up {name}` creates it");
    }
    bail!("no cluster {name:?}: there are {}", names.join(", "))
}

pub(super) fn read(name: &str) -> Result<Option<Cluster>> {
    let path = place::clusters().join(name).join("cluster.json");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("failed to read {name}'s record")),
    };

    serde_json::from_str(&text)
        .map(Some)
        .with_context(|| format!("{} is damaged: run `down {name}`", path.display()))
}

/// Locks the registry until the result is dropped.
pub(super) fn lock() -> Result<File> {
    let folder = place::state();
    fs::create_dir_all(place::clusters())
        .with_context(|| format!("failed to create {}: run this as root", folder.display()))?;
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("failed to open {}", path.display()))?;
    file.lock()
        .with_context(|| format!("failed to lock {}", path.display()))?;

    Ok(file)
}

/// Adds a cluster, which gets the lowest free number.
pub(super) fn enter(spec: Spec, artifacts: &Path) -> Result<Cluster> {
    let taken: Vec<u8> = Cluster::all()?
        .iter()
        .map(|cluster| cluster.number)
        .collect();
    let number = (1..=NUMBER_MAX)
        .find(|number| !taken.contains(number))
        .context("the underlay has no room for another cluster: take one down")?;
    let cluster = Cluster {
        spec,
        number,
        artifacts: artifacts.to_owned(),
    };
    write(&cluster)?;

    Ok(cluster)
}

/// Writes the record of a cluster.
pub(super) fn write(cluster: &Cluster) -> Result<()> {
    let folder = cluster.folder();
    fs::create_dir_all(&folder)
        .with_context(|| format!("failed to create {}", folder.display()))?;
    let text = serde_json::to_string_pretty(cluster).context("a record is JSON")?;
    fs::write(folder.join("cluster.json.partial"), text)
        .and_then(|()| {
            fs::rename(
                folder.join("cluster.json.partial"),
                folder.join("cluster.json"),
            )
        })
        .context("failed to write a cluster's record")
}
