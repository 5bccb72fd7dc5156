//! Tells when a configuration file has changed.
//!
//! The directory is watched, not the file: editors and Kubernetes replace a file
//! by renaming another over it (a mounted ConfigMap changes the symbolic link
//! `..data`), which ends a watch on the file itself.

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long a file must be quiet before it is read again.
///
/// Long enough for a writer that truncates and then writes, short beside the
/// second within which people expect an edit to show.
const QUIET: Duration = Duration::from_millis(50);

/// A watch on one file, alive as long as this value.
pub struct FileWatch {
    path: PathBuf,
    /// Capacity 1: the message is only "something happened".
    changes: mpsc::Receiver<()>,
    /// When a change that was noticed has come to rest; outlives a dropped wait.
    at_rest_at: Option<Instant>,
    _watcher: RecommendedWatcher,
}

/// The file's directory cannot be watched.
#[derive(Debug, thiserror::Error)]
#[error("failed to watch {path} for change")]
pub struct Error {
    path: PathBuf,
    source: notify::Error,
}

impl FileWatch {
    /// Starts to watch `path`; the file itself need not exist yet.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if its directory does not exist or inotify is exhausted.
    pub fn new(path: &Path) -> Result<Self, Error> {
        let error = |source| Error {
            path: path.to_owned(),
            source,
        };
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let (sender, changes) = mpsc::channel(1);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<_>| {
            if event.is_ok_and(|event: notify::Event| changes_content(event.kind)) {
                // Full means that a change is already waiting to be noticed.
                let _ = sender.try_send(());
            }
        })
        .map_err(error)?;
        watcher
            .watch(directory, RecursiveMode::NonRecursive)
            .map_err(error)?;

        Ok(Self {
            path: path.to_owned(),
            changes,
            at_rest_at: None,
            _watcher: watcher,
        })
    }

    /// Completes when something in the file's directory has changed and come to rest.
    ///
    /// It may wake for a neighbour of the file: compare what you read. It can be
    /// dropped and called again without losing a change.
    pub async fn changed(&mut self) {
        loop {
            let change = match self.at_rest_at {
                None => self.changes.recv().await,
                Some(at) => match tokio::time::timeout_at(at, self.changes.recv()).await {
                    Ok(change) => change,
                    Err(_) => break,
                },
            };
            if change.is_none() {
                // The watcher lives as long as we do; without it nothing will ever change.
                std::future::pending::<()>().await;
            }
            self.at_rest_at = Some(Instant::now() + QUIET);
        }
        self.at_rest_at = None;
    }

    /// Returns the path that is watched.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Reading a file makes events of its own, which must not wake its reader.
fn changes_content(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const DEADLINE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_write_and_a_rename_over_the_file_are_both_seen() {
        let directory = Directory::new();
        let path = directory.0.join("fabric.yaml");
        fs::write(&path, "one").unwrap();
        let mut watch = FileWatch::new(&path).unwrap();

        fs::write(&path, "two").unwrap();
        let written = tokio::time::timeout(DEADLINE, watch.changed()).await;
        fs::write(directory.0.join("new"), "three").unwrap();
        fs::rename(directory.0.join("new"), &path).unwrap();
        let renamed = tokio::time::timeout(DEADLINE, watch.changed()).await;

        assert!(written.is_ok() && renamed.is_ok());
        assert_eq!(fs::read_to_string(watch.path()).unwrap(), "three");
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_again_and_again_loses_no_change() {
        let directory = Directory::new();
        let path = directory.0.join("fabric.yaml");
        fs::write(&path, "one").unwrap();
        let mut watch = FileWatch::new(&path).unwrap();

        fs::write(&path, "two").unwrap();
        let impatient = async {
            while tokio::time::timeout(QUIET / 10, watch.changed())
                .await
                .is_err()
            {}
        };
        let noticed = tokio::time::timeout(DEADLINE, impatient).await;

        assert!(noticed.is_ok());
    }

    #[tokio::test]
    async fn reading_the_file_wakes_nobody() {
        let directory = Directory::new();
        let path = directory.0.join("fabric.yaml");
        fs::write(&path, "one").unwrap();
        let mut watch = FileWatch::new(&path).unwrap();

        fs::read_to_string(&path).unwrap();
        let woken = tokio::time::timeout(QUIET * 4, watch.changed()).await;

        assert!(woken.is_err());
    }

    #[test]
    fn a_missing_directory_is_an_error_that_names_the_file() {
        let Err(error) = FileWatch::new(Path::new("/nonexistent/fabric.yaml")) else {
            panic!("watched a directory that does not exist");
        };

        assert!(error.to_string().contains("/nonexistent/fabric.yaml"));
    }

    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Self {
            let name = format!(
                "liqo-watch-{}-{:?}",
                std::process::id(),
                std::thread::current().id()
            );
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
