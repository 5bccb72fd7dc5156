//! The kubeconfig for the provider, from a mounted Secret.
//!
//! The file is read whenever Kubernetes replaces it, so that renewed credentials take effect without a restart, and without
//! a right to Secrets.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use telemetry::watch::FileWatch;
use tokio::io::AsyncReadExt as _;

/// Longest kubeconfig, in bytes. A Secret holds 1 MiB.
const LEN_MAX: u64 = 1 << 20;

/// Longest time without reading the file, in case the kernel reports no change.
const INTERVAL: Duration = Duration::from_secs(60);

/// The content of the file as last read, and the user of the credentials, which the controllers share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    content: Arc<Mutex<Option<Result<String, String>>>>,
    user: Arc<Mutex<Option<Arc<str>>>>,
}

impl Shared {
    /// Returns the content, or why it cannot be read; `None` before the first attempt.
    pub(crate) fn get(&self) -> Option<Result<String, String>> {
        locked(&self.content).clone()
    }

    /// Stores the content, and returns whether it has changed.
    pub(crate) fn set(&self, content: Result<String, String>) -> bool {
        let mut stored = locked(&self.content);
        let has_changed = stored.as_ref() != Some(&content);
        *stored = Some(content);
        has_changed
    }

    /// Returns the user as which the provider knows this process, if the certificate of the connection in use names one.
    pub(crate) fn user(&self) -> Option<Arc<str>> {
        locked(&self.user).clone()
    }

    /// Stores the user of a new connection.
    pub(crate) fn set_user(&self, user: Option<String>) {
        *locked(&self.user) = user.map(Arc::from);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the file at `path` again and again, and calls `changed` after each change. Does not return, unless the file cannot
/// be watched.
///
/// # Errors
///
/// Returns an error if the directory of the file cannot be watched.
pub(crate) async fn follow(
    path: PathBuf,
    shared: Shared,
    changed: impl Fn() + Send,
) -> Result<(), telemetry::watch::Error> {
    let mut watch = FileWatch::new(&path)?;
    loop {
        if shared.set(read(&path).await) {
            changed();
        }
        // A time-out reads the file as well.
        drop(tokio::time::timeout(INTERVAL, watch.changed()).await);
    }
}

async fn read(path: &PathBuf) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("failed to read {}: {error}", path.display());
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let mut text = String::new();
    let mut limited = file.take(LEN_MAX + 1);
    limited.read_to_string(&mut text).await.map_err(failed)?;
    if text.len() as u64 > LEN_MAX {
        return Err(format!("{} is longer than 1 MiB", path.display()));
    }

    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_replaced_file_is_read_again() {
        let folder = std::env::temp_dir().join(format!("kubeconfig-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("kubeconfig");
        let shared = Shared::default();
        let (sender, mut changes) = tokio::sync::mpsc::unbounded_channel();
        let changed = move || sender.send(()).unwrap();
        let task = tokio::spawn(follow(path.clone(), shared.clone(), changed));

        changes.recv().await.unwrap();
        assert!(
            shared
                .get()
                .unwrap()
                .unwrap_err()
                .contains("failed to read")
        );
        for text in ["a", "b"] {
            let new = folder.join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(&new, &path).unwrap();
            let wait = tokio::time::timeout(Duration::from_secs(30), changes.recv());
            wait.await.unwrap().unwrap();
            assert_eq!(shared.get().unwrap().unwrap(), text);
        }

        task.abort();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
