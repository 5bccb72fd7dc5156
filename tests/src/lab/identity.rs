//! The id of a laboratory, and the lock that shows whether its process is running.

use super::clean;
use anyhow::{Context as _, Result};
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Directory that contains the run directories of all laboratories.
pub(super) const RUN_DIR: &str = "/run/liqo-lab";

/// Name of the file in a run directory that the laboratory's process keeps locked.
pub(super) const LOCK_FILE: &str = "lock";

/// Name of the file in a run directory that marks a kept laboratory.
pub(super) const KEPT_FILE: &str = "kept";

/// The id of a laboratory. Dropping the value removes all objects whose name contains the id.
///
/// The laboratory's process locks a file in the run directory. The kernel releases the lock when
/// the process ends, even after a crash. The lock distinguishes running from crashed laboratories.
#[derive(Debug)]
pub struct Identity {
    id: String,
    run_dir: PathBuf,
    kept: AtomicBool,
    _lock: File,
}

impl Identity {
    /// Creates a run directory with a new random id, and locks it.
    ///
    /// # Errors
    ///
    /// Returns an error if the run directory cannot be created or locked.
    pub fn claim() -> Result<Arc<Self>> {
        fs::create_dir_all(RUN_DIR).with_context(|| format!("failed to create {RUN_DIR}"))?;

        loop {
            let id = random_id();
            let run_dir = Path::new(RUN_DIR).join(&id);
            match fs::create_dir(&run_dir) {
                Ok(()) => {
                    let identity = Self::lock(id, run_dir)?;
                    // A clean-up may have removed the directory before it was locked.
                    if identity.run_dir.join(LOCK_FILE).exists() {
                        return Ok(identity);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).context("failed to create the run directory"),
            }
        }
    }

    fn lock(id: String, run_dir: PathBuf) -> Result<Arc<Self>> {
        let lock = File::create(run_dir.join(LOCK_FILE)).context("failed to create the lock")?;
        lock.lock().context("failed to lock the run directory")?;

        Ok(Arc::new(Self {
            id,
            run_dir,
            kept: AtomicBool::new(false),
            _lock: lock,
        }))
    }

    /// Returns the id, which consists of five lower-case letters and digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the directory for files of this laboratory, `/run/liqo-lab/<id>`.
    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Returns the name that an object `name` of the laboratory has on the machine,
    /// `lq-<id>-<name>`.
    pub fn qualify(&self, name: &str) -> String {
        format!("{}{name}", prefix(&self.id))
    }

    /// Keeps the laboratory after its process has ended, until [`clean()`](clean::clean) removes
    /// it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file that marks the laboratory cannot be written.
    pub fn keep(&self) -> Result<()> {
        fs::write(self.run_dir.join(KEPT_FILE), "").context("failed to mark the laboratory")?;
        self.kept.store(true, Ordering::Relaxed);

        Ok(())
    }

    /// Returns whether [`Identity::keep`] was called.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        if self.is_kept() {
            return;
        }
        if let Err(error) = clean::remove(&self.id) {
            tracing::warn!(id = self.id, %error, "failed to remove a laboratory");
        }
    }
}

/// Returns the prefix of the names of all objects of the laboratory `id`.
pub(super) fn prefix(id: &str) -> String {
    format!("lq-{id}-")
}

fn random_id() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    const LENGTH: u64 = 5;

    let bits = RandomState::new().hash_one(std::process::id());
    (0..LENGTH)
        .map(|index| char::from(LETTERS[(bits >> (5 * index)) as usize % LETTERS.len()]))
        .collect()
}
