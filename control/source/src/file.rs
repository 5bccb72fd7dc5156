//! The desired state as a file holds it.

use control_fabric::{Errors, Fabric};
use std::path::{Path, PathBuf};
use std::{fs, io};
use telemetry::watch::FileWatch;

/// The longest file that is read, in bytes: a thousand peers fill a tenth of it.
const FILE_MAX: u64 = 64 << 20;

/// The file holds no state that can be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },

    /// It is longer than any fabric.
    #[error("{0} has more than {FILE_MAX} bytes: is it a fabric file?")]
    TooLong(PathBuf),

    /// Its objects are wrong.
    #[error("{path} is not valid:\n{errors}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// All that is wrong.
        errors: Errors,
    },
}

/// A file and, once it is followed, the watch on it.
pub struct File {
    path: PathBuf,
    watch: Option<FileWatch>,
}

impl File {
    /// Names a file, which is not opened yet.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            watch: None,
        }
    }

    /// Starts to watch it, by a thread.
    ///
    /// # Errors
    ///
    /// Returns an error if its directory does not exist or inotify is exhausted.
    pub fn follow(&mut self) -> Result<(), telemetry::watch::Error> {
        self.watch = Some(FileWatch::new(&self.path)?);

        Ok(())
    }

    /// Completes when it may have changed; never before [`File::follow`].
    pub async fn changed(&mut self) {
        match &mut self.watch {
            Some(watch) => watch.changed().await,
            None => std::future::pending().await,
        }
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads and checks a fabric file.
///
/// # Errors
///
/// Returns [`Error`] if it cannot be read or is invalid.
pub fn load(path: &Path) -> Result<Fabric, Error> {
    let invalid = |errors| Error::Invalid {
        path: path.to_owned(),
        errors,
    };
    let objects = control_fabric::parse(&read(path)?).map_err(invalid)?;
    Fabric::try_from(&objects).map_err(invalid)
}

/// Reads a fabric file's text.
///
/// # Errors
///
/// Returns [`Error`] if it cannot be read, or is no text or too long.
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
