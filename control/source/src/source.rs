//! Where the desired state comes from: one interface over file and API server.

use crate::file::{self, File};
use crate::watch::{self, Installation, Scope, Watch};
use control_fabric::{Admission, Errors, Fabric, Waiting};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Where the desired state is, as a person says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a file.
    File(PathBuf),
    /// In the API server of the cluster.
    Cluster(Installation),
}

/// The desired state cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] file::Error),

    /// The file cannot be watched.
    #[error(transparent)]
    FileWatch(#[from] telemetry::watch::Error),

    /// The API server cannot be asked.
    #[error(transparent)]
    Watch(#[from] watch::Error),

    /// The cluster's own objects are missing or wrong.
    #[error("the cluster's objects cannot be served:\n{0}")]
    Cluster(Errors),
}

/// What is to be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What can be.
    pub fabric: Fabric,
    /// What is wrong, and so left out: a line each. A file is taken whole or not at all.
    pub refused: Vec<String>,
    /// What is not complete yet.
    pub waiting: Vec<Waiting>,
    /// The peers among all that, by cluster id, and why each is not served.
    pub unserved: BTreeMap<String, String>,
}

/// The desired state, and how to hear of changes.
pub enum Source {
    /// A file's.
    File(File),
    /// An API server's.
    Cluster(Box<Watch>),
}

impl Source {
    /// Opens it; that of an API server once everything was listed.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Watch`] if there are no credentials for an API server.
    pub async fn open(origin: &Origin, scope: Scope) -> Result<Self, Error> {
        match origin {
            Origin::File(path) => Ok(Self::File(File::new(path))),
            Origin::Cluster(installation) => {
                let mut watch = Watch::start(installation, scope).await?;
                watch.wait_until_complete().await;
                Ok(Self::Cluster(Box::new(watch)))
            }
        }
    }

    /// Starts to listen for changes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::FileWatch`] if the file cannot be watched.
    pub fn follow(&mut self) -> Result<(), Error> {
        match self {
            Self::File(file) => Ok(file.follow()?),
            Self::Cluster(_) => Ok(()),
        }
    }

    /// Completes when the desired state may have changed and has come to rest.
    ///
    /// It can be dropped and called again without losing a change.
    pub async fn changed(&mut self) {
        match self {
            Self::File(file) => file.changed().await,
            Self::Cluster(watch) => watch.changed().await,
        }
    }

    /// Returns what is to be served now.
    ///
    /// # Errors
    ///
    /// Returns [`Error::File`] or [`Error::Cluster`] with everything a person needs to mend it.
    pub fn read(&mut self) -> Result<Reading, Error> {
        match self {
            Self::File(file) => Ok(Reading {
                fabric: file::load(file.path())?,
                refused: Vec::new(),
                waiting: Vec::new(),
                unserved: BTreeMap::new(),
            }),
            Self::Cluster(watch) => {
                let Admission {
                    fabric,
                    refused,
                    waiting,
                    unserved,
                } = watch.admit();
                Ok(Reading {
                    fabric: fabric.map_err(Error::Cluster)?,
                    refused: refused.iter().map(ToString::to_string).collect(),
                    waiting,
                    unserved,
                })
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "{}", file.path().display()),
            Self::Cluster(watch) => write!(f, "API server, namespace {}", watch.namespace()),
        }
    }
}
