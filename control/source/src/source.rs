//! The source of the desired state: one interface over file and API server.

use crate::file::{self, File};
use crate::installation::Installation;
use crate::metrics::Metrics;
use crate::registrations::Scope;
use crate::watch::{self, Watch};
use control_fabric::{Errors, Fabric, Resolution, Waiting};
use control_runtime::{RegistrationError, Runtime};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The configured source of the desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// The API server of the cluster.
    Cluster(Installation),
}

/// The desired state cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] file::Error),

    /// The file cannot be watched.
    #[error(transparent)]
    FileWatch(#[from] telemetry::watch::Error),

    /// The API server cannot be watched.
    #[error(transparent)]
    Watch(#[from] watch::Error),

    /// Objects of this cluster are missing or invalid.
    #[error("the cluster's objects cannot be served:\n{0}")]
    Cluster(Errors),
}

/// The desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The part that is served.
    pub fabric: Fabric,
    /// A line for each error of a rejected object. A file with an error is rejected as a whole.
    pub refused: Vec<String>,
    /// The incomplete objects.
    pub waiting: Vec<Waiting>,
    /// The reason why a peer is not served, by cluster ID.
    pub unserved: BTreeMap<String, String>,
}

/// A source of the desired state, with notifications of changes.
pub enum Source {
    /// A file.
    File(File),
    /// An API server.
    Cluster(Box<Watch>),
}

impl Source {
    /// Opens the source; waits until an API server has listed all objects.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Watch`] if there are no credentials for an API server.
    pub async fn open(origin: &Origin, scope: Scope, metrics: &Metrics) -> Result<Self, Error> {
        Self::open_with(origin, scope, metrics, |_| Ok(())).await
    }

    /// Opens the source as [`open`](Self::open) does. If it is an API server, `add` adds the controllers
    /// of the process to the runtime that watches.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); [`Error::Watch`] also if `add` fails.
    pub async fn open_with(
        origin: &Origin,
        scope: Scope,
        metrics: &Metrics,
        add: impl FnOnce(&mut Runtime) -> Result<(), RegistrationError>,
    ) -> Result<Self, Error> {
        match origin {
            Origin::File(path) => Ok(Self::File(File::new(path))),
            Origin::Cluster(installation) => {
                let mut watch = Watch::start(installation, scope, metrics, add).await?;
                watch.wait_until_complete().await;
                Ok(Self::Cluster(Box::new(watch)))
            }
        }
    }

    /// Ends the watches of an API server, and waits until the requests in flight have ended, for a few
    /// seconds at most.
    pub async fn stop(&mut self) {
        match self {
            Self::File(_) => {}
            Self::Cluster(watch) => watch.stop().await,
        }
    }

    /// Starts to watch for changes.
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

    /// Completes when the desired state may have changed, after a pause of the changes.
    ///
    /// The future can be dropped without losing a change.
    pub async fn changed(&mut self) {
        match self {
            Self::File(file) => file.changed().await,
            Self::Cluster(watch) => watch.changed().await,
        }
    }

    /// Reads the desired state.
    ///
    /// # Errors
    ///
    /// Returns [`Error::File`] or [`Error::Cluster`] with all invalid objects and fields.
    pub fn read(&mut self) -> Result<Reading, Error> {
        match self {
            Self::File(file) => Ok(Reading {
                fabric: file::load(file.path())?,
                refused: Vec::new(),
                waiting: Vec::new(),
                unserved: BTreeMap::new(),
            }),
            Self::Cluster(watch) => {
                let Resolution {
                    fabric,
                    refused,
                    waiting,
                    unserved,
                } = watch.resolve();
                Ok(Reading {
                    fabric: fabric.clone().map_err(Error::Cluster)?,
                    refused: refused.iter().map(ToString::to_string).collect(),
                    waiting: waiting.clone(),
                    unserved: unserved.clone(),
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
