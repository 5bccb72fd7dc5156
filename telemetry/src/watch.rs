//! Tells when a configuration file has changed.
//!
//! The directory is watched, not the file: editors and Kubernetes replace a file
//! by renaming another over it (a mounted ConfigMap changes the symbolic link
//! `..data`), which ends a watch on the file itself. A directory that is itself
//! removed or moved is watched again as soon as another takes its place.

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long a file must be quiet before it is read again.
///
/// Long enough for a writer that truncates and then writes, short beside the
/// second within which people expect an edit to show.
const QUIET: Duration = Duration::from_millis(50);

/// How long a file that is never quiet goes unread: that second.
const UNREST_MAX: Duration = Duration::from_secs(1);

/// How often to look for a directory that is gone.
const RETRY: Duration = Duration::from_secs(1);

/// The symbolic link by which Kubernetes changes all files of a mounted ConfigMap at once.
const CONFIG_MAP_LINK: &str = "..data";

/// A watch on one file, alive as long as this value.
pub struct FileWatch {
    path: PathBuf,
    /// Absolute, as the watcher's events name it.
    directory: PathBuf,
    /// Capacity 1: the message is only "something happened".
    changes: mpsc::Receiver<()>,
    /// A change that was noticed and is yet to rest; outlives a dropped wait.
    unrest: Option<Unrest>,
    /// The directory was removed or moved since it was last looked for.
    is_gone: Arc<AtomicBool>,
    /// When to look for the directory; `None` while it is watched.
    retry_at: Option<Instant>,
    watcher: RecommendedWatcher,
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
        let directory = std::path::absolute(directory).map_err(|it| error(it.into()))?;
        let (sender, changes) = mpsc::channel(1);
        let is_gone = Arc::new(AtomicBool::new(false));
        let filter = Filter {
            directory: directory.clone(),
            name: path.file_name().unwrap_or_default().to_owned(),
            is_gone: Arc::clone(&is_gone),
            sender,
        };
        let mut watcher =
            notify::recommended_watcher(move |event| filter.handle(&event)).map_err(error)?;
        watcher
            .watch(&directory, RecursiveMode::NonRecursive)
            .map_err(error)?;

        Ok(Self {
            path: path.to_owned(),
            directory,
            changes,
            unrest: None,
            is_gone,
            retry_at: None,
            watcher,
        })
    }

    /// Completes when the file may have changed and has come to rest.
    ///
    /// One that finds no rest is told of once a second. It may wake for nothing:
    /// compare what you read. It can be dropped and called again without losing a change.
    pub async fn changed(&mut self) {
        loop {
            self.find_directory();
            let rest_at = self.unrest.map(|it| it.ends_at);
            let changes = self.changes.recv();
            let change = match rest_at.into_iter().chain(self.retry_at).min() {
                None => changes.await,
                Some(at) => tokio::time::timeout_at(at, changes)
                    .await
                    .unwrap_or_default(),
            };
            if change.is_some() {
                self.note_change();
            }
            // Not only where the wait has timed out: a flood of changes never lets it.
            if self.unrest.is_some_and(|it| it.ends_at <= Instant::now()) {
                self.unrest = None;
                return;
            }
        }
    }

    /// Returns the path that is watched.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Watches the directory again if it is gone, until another takes its place.
    fn find_directory(&mut self) {
        let now = Instant::now();
        if self.is_gone.swap(false, Ordering::Relaxed) {
            // Fails where the watch has ended together with the directory.
            let _ = self.watcher.unwatch(&self.directory);
            self.retry_at = Some(now);
        }
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        let watched = self
            .watcher
            .watch(&self.directory, RecursiveMode::NonRecursive);
        self.retry_at = match watched {
            Ok(()) => {
                // It holds another file, which may have been there before the watch.
                self.note_change();
                None
            }
            Err(error) => {
                tracing::debug!(%error, "the watched directory is gone");
                Some(now + RETRY)
            }
        };
    }

    fn note_change(&mut self) {
        self.unrest = Some(Unrest::new(self.unrest, Instant::now()));
    }
}

/// The time from the first of several changes until they are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unrest {
    began_at: Instant,
    ends_at: Instant,
}

impl Unrest {
    /// What `unrest` becomes by a change at `now`.
    fn new(unrest: Option<Self>, now: Instant) -> Self {
        let began_at = unrest.map_or(now, |it| it.began_at);
        Self {
            began_at,
            ends_at: (now + QUIET).min(began_at + UNREST_MAX),
        }
    }
}

/// Runs on the watcher's thread: passes on what concerns the file.
struct Filter {
    directory: PathBuf,
    name: OsString,
    is_gone: Arc<AtomicBool>,
    sender: mpsc::Sender<()>,
}

impl Filter {
    fn handle(&self, event: &notify::Result<Event>) {
        if let Ok(event) = event {
            if self.takes_the_directory(event) {
                self.is_gone.store(true, Ordering::Relaxed);
            } else if !self.concerns_the_file(event) {
                return;
            }
        }
        // After an error, nobody knows what was missed. Full means that a change is
        // already waiting to be noticed.
        let _ = self.sender.try_send(());
    }

    fn concerns_the_file(&self, event: &Event) -> bool {
        let names = [self.name.as_os_str(), OsStr::new(CONFIG_MAP_LINK)];
        let mut paths = event.paths.iter().filter_map(|path| path.file_name());

        event.need_rescan() || changes_content(event.kind) && paths.any(|it| names.contains(&it))
    }

    fn takes_the_directory(&self, event: &Event) -> bool {
        use notify::event::ModifyKind::Name;
        let takes = matches!(
            event.kind,
            EventKind::Remove(_) | EventKind::Modify(Name(_))
        );

        takes && event.paths.contains(&self.directory)
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
mod tests;
