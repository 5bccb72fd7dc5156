//! The desired state as files hold it: `fabric.yaml` and the keys.

use super::keys;
use crate::engine::PeerConfig;
use crate::tables::{self, Indices};
use control_api::fabric::{self, Errors, Fabric};
use ebpf::Tables;
use ipnet::Ipv4Net;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The longest file that is read, in bytes: a thousand peers fill a tenth of it.
const FILE_MAX: u64 = 64 << 20;

/// The files do not hold a state that can be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The file cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },

    /// The file is longer than any fabric.
    #[error("{0} has more than {FILE_MAX} bytes: is it a fabric file?")]
    TooLong(PathBuf),

    /// The file's objects are wrong.
    #[error("{path} is not valid:\n{errors}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// All that is wrong.
        errors: Errors,
    },

    /// A gateway's identity is not changed under way.
    #[error(
        "{path}: the cluster id changed from {from} to {to}: restart the gateway to serve another cluster"
    )]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// What it was.
        from: String,
        /// What the file says now.
        to: String,
    },

    /// A private key is missing or wrong.
    #[error(transparent)]
    Key(#[from] keys::Error),
}

/// A state that can be served.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Desired {
    /// The file's contents, checked.
    pub(crate) fabric: Fabric,
    /// What the kernel must know.
    pub(crate) tables: Tables,
    /// What the engine must know.
    pub(crate) peers: Vec<PeerConfig>,
    /// Cluster ids and indices, sorted by id.
    pub(crate) ranks: Vec<(String, u16)>,
}

impl Desired {
    /// Returns what leads into a tunnel: the prefixes under which remote clusters are
    /// seen here, and the addresses given to single endpoints of theirs.
    pub(crate) fn tunnelled(&self) -> Vec<Ipv4Net> {
        let single = self.tables.transit.keys().copied().map(Ipv4Net::from);

        self.tables.outbound.keys().copied().chain(single).collect()
    }
}

/// Reads the files, again and again, with stable indices.
pub(crate) struct Loader {
    file: PathBuf,
    keys: PathBuf,
    indices: Indices,
    cluster_id: Option<String>,
    /// The file that was last accepted, and what it held.
    accepted: Option<(Stamp, Desired)>,
}

/// What changes when a file does: inode, length, times of change in nanoseconds.
type Stamp = (u64, u64, i64, i64, i64, i64);

impl Loader {
    /// Prepares to read `file`, and keys from the directory `keys`.
    pub(crate) fn new(file: &Path, keys: &Path) -> Self {
        Self {
            file: file.to_owned(),
            keys: keys.to_owned(),
            indices: Indices::default(),
            cluster_id: None,
            accepted: None,
        }
    }

    /// Reads the files; `None` if they say what they said when last accepted.
    ///
    /// Keys are read whenever the fabric file was written to, or was rejected before.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] with everything a person needs to mend them.
    pub(crate) fn load(&mut self) -> Result<Option<Desired>, Error> {
        let stamp = stamp(&self.file)?;
        if self.accepted.as_ref().is_some_and(|(old, _)| *old == stamp) {
            return Ok(None);
        }
        let fabric = load_fabric(&self.file)?;
        if let Some(from) = self
            .cluster_id
            .as_ref()
            .filter(|id| **id != fabric.cluster_id)
        {
            return Err(Error::OtherCluster {
                path: self.file.clone(),
                from: from.clone(),
                to: fabric.cluster_id,
            });
        }
        let keys = keys::read(&self.keys, wanted_keys(&fabric))?;
        self.indices.assign(&fabric);
        self.cluster_id = Some(fabric.cluster_id.clone());
        let desired = Desired {
            tables: tables::tables(&fabric, &self.indices),
            peers: tables::peers(&fabric, &self.indices, &keys),
            ranks: self
                .indices
                .by_rank()
                .map(|(id, index)| (id.to_owned(), index))
                .collect(),
            fabric,
        };
        let is_same = (self.accepted.as_ref()).is_some_and(|(_, old)| *old == desired);
        self.accepted = Some((stamp, desired.clone()));

        Ok((!is_same).then_some(desired))
    }

    /// Makes sure that the file and the keys of `served` can be read once more, after
    /// this process gave up the right to read everything.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] with the one that cannot.
    pub(crate) fn check_readable(&self, served: &Desired) -> Result<(), Error> {
        read(&self.file)?;
        keys::read(&self.keys, wanted_keys(&served.fabric))?;

        Ok(())
    }

    /// Forgets that the files were accepted: the kernel refused what they say.
    pub(crate) fn reject(&mut self) {
        self.accepted = None;
    }
}

/// Reads and checks a fabric file.
///
/// # Errors
///
/// Returns [`Error`] if it cannot be read or is invalid.
pub(crate) fn load_fabric(path: &Path) -> Result<Fabric, Error> {
    let invalid = |errors| Error::Invalid {
        path: path.to_owned(),
        errors,
    };
    let objects = fabric::parse(&read(path)?).map_err(invalid)?;
    Fabric::try_from(&objects).map_err(invalid)
}

/// Reads a fabric file's text.
///
/// # Errors
///
/// Returns [`Error`] if it cannot be read, or is no text or too long.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    if fs::metadata(path).map_err(failed)?.len() > FILE_MAX {
        return Err(Error::TooLong(path.to_owned()));
    }
    fs::read_to_string(path).map_err(failed)
}

/// The Secrets that `fabric` names, and by which objects.
pub(crate) fn wanted_keys(fabric: &Fabric) -> impl Iterator<Item = (&str, &str)> {
    fabric
        .peers
        .iter()
        .map(|peer| (peer.key_secret.as_str(), peer.gateway_name.as_str()))
}

fn stamp(path: &Path) -> Result<Stamp, Error> {
    let file = fs::metadata(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    Ok((
        file.ino(),
        file.len(),
        file.mtime(),
        file.mtime_nsec(),
        file.ctime(),
        file.ctime_nsec(),
    ))
}

#[cfg(test)]
mod tests;
