//! The file that describes the cluster.

use control_api::fabric::{self, Fabric};
use std::io;
use std::path::{Path, PathBuf};

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It cannot be read.
    #[error("failed to read {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },

    /// It is wrong, in the ways listed.
    #[error("{path} is invalid:\n{errors}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        errors: fabric::Errors,
    },
}

/// Reads and checks the file.
///
/// # Errors
///
/// Returns [`Error`], which lists all that is wrong.
pub(crate) fn load(path: &Path) -> Result<Fabric, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let objects = fabric::parse(&text);

    objects
        .and_then(|objects| Fabric::try_from(&objects))
        .map_err(|errors| Error::Invalid {
            path: path.to_owned(),
            errors,
        })
}
