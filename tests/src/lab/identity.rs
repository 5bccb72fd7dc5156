//! The id of a laboratory, and the lock that its owner holds while it runs.

use super::clean;
use anyhow::{Context as _, Result};
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Directory with one subdirectory for each laboratory's files.
pub(super) const RUN_DIR: &str = "/run/liqo-lab";

/// The name of the file that the owner of a laboratory holds locked.
pub(super) const LOCK_FILE: &str = "lock";

/// The name of the file that marks a laboratory to be kept.
pub(super) const KEPT_FILE: &str = "kept";

/// The id of a laboratory. When it is dropped, everything whose name has the id is removed.
///
/// The owner holds a lock on a file of the run directory, which the kernel releases when
/// the process ends, even by a crash. The lock distinguishes running laboratories from
/// crashed ones.
#[derive(Debug)]
pub struct Identity {
    id: String,
    run_dir: PathBuf,
    kept: AtomicBool,
    _lock: File,
}

impl Identity {
    /// Creates a laboratory's run directory under a new, random id, and locks it.
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

    /// The id: lower-case letters and digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The directory for files of this laboratory.
    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// The machine-wide name of an object that is called `name` in the laboratory.
    pub fn qualify(&self, name: &str) -> String {
        format!("{}{name}", prefix(&self.id))
    }

    /// Keeps the laboratory when its owner ends, until [`clean()`](clean::clean).
    ///
    /// # Errors
    ///
    /// Returns an error if the mark cannot be written.
    pub fn keep(&self) -> Result<()> {
        fs::write(self.run_dir.join(KEPT_FILE), "").context("failed to mark the laboratory")?;
        self.kept.store(true, Ordering::Relaxed);

        Ok(())
    }

    /// Whether [`Identity::keep`] was called.
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

/// The prefix of all names of the laboratory `id`.
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
