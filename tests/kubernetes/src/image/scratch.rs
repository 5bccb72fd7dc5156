//! Temporary folders for tests.

use std::env;
use std::fs::{self, Permissions};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder that is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);

        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("liqo-image-{}-{count}", process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();

        Self(folder.canonicalize().unwrap())
    }

    /// Adds a file with these permissions, and its parent folders.
    pub(super) fn file(&self, path: &str, content: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();

        path
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
