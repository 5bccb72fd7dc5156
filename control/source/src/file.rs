//! Reads the desired state from a file.

use control_fabric::{Errors, Fabric};
use std::path::{Path, PathBuf};
use std::{fs, io};
use telemetry::watch::FileWatch;

/// Maximum size of the file, in bytes: ten times the size with a thousand peers.
const FILE_MAX: u64 = 64 << 20;

/// The file contains no valid desired state.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },

    /// The file exceeds the maximum size.
    #[error("{0} exceeds {FILE_MAX} bytes: use a file with the objects of a fabric")]
    TooLong(PathBuf),

    /// The objects of the file are invalid.
    #[error("{path} is not valid:\n{errors}")]
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// All errors of the objects.
        errors: Errors,
    },
}

/// A file and, after [`File::follow`], its watch.
pub struct File {
    path: PathBuf,
    watch: Option<FileWatch>,
}

impl File {
    /// Creates the source without opening the file.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            watch: None,
        }
    }

    /// Starts a thread that watches the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory of the file does not exist, or if a limit of inotify is reached.
    pub fn follow(&mut self) -> Result<(), telemetry::watch::Error> {
        self.watch = Some(FileWatch::new(&self.path)?);

        Ok(())
    }

    /// Completes when the file may have changed; never before [`File::follow`].
    pub async fn changed(&mut self) {
        match &mut self.watch {
            Some(watch) => watch.changed().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads and validates a fabric file.
///
/// # Errors
///
/// Returns [`Error`] if the file cannot be read or is invalid.
pub fn load(path: &Path) -> Result<Fabric, Error> {
    let invalid = |errors| Error::Invalid {
        path: path.to_owned(),
        errors,
    };
    let objects = control_fabric::parse(&read(path)?).map_err(invalid)?;
    Fabric::try_from(&objects).map_err(invalid)
}

/// Reads the text of a fabric file.
///
/// # Errors
///
/// Returns [`Error`] if the file cannot be read, is not UTF-8, or exceeds the maximum size.
pub fn read(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    if fs::metadata(path).map_err(failed)?.len() > FILE_MAX {
        return Err(Error::TooLong(path.to_owned()));
    }
    fs::read_to_string(path).map_err(failed)
}
