//! Reports changes of a configuration file.
//!
//! The watch is on the directory: editors and Kubernetes replace a file by renaming
//! another over it (a mounted ConfigMap changes the symbolic link `..data`), which ends
//! a watch on the file itself. If the directory is removed or moved, its path is
//! watched again as soon as it exists.

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Time without a change after which a change is reported.
///
/// Long enough for a writer that truncates and then writes, short compared with the
/// second within which users expect an edit to take effect.
const QUIET: Duration = Duration::from_millis(50);

/// Until a change is reported although further ones follow without a pause.
const DEBOUNCE_MAX: Duration = Duration::from_secs(1);

/// Between attempts to watch a directory that does not exist.
const RETRY: Duration = Duration::from_secs(1);

/// The symbolic link through which Kubernetes replaces all files of a mounted ConfigMap atomically.
const CONFIG_MAP_LINK: &str = "..data";

/// A watch on one file; dropping it ends the watch.
pub struct FileWatch {
    path: PathBuf,
    /// Absolute, as in the watcher's events.
    directory: PathBuf,
    /// Capacity 1: a message says only that something changed.
    changes: mpsc::Receiver<()>,
    /// A change that is not reported yet; survives a dropped call of [`FileWatch::changed`].
    pending: Option<Debounce>,
    /// The directory was removed or moved since the last attempt to watch it.
    is_gone: Arc<AtomicBool>,
    /// The next attempt to watch the directory; `None` while it is watched.
    retry_at: Option<Instant>,
    watcher: RecommendedWatcher,
}

/// The file's directory cannot be watched.
#[derive(Debug, thiserror::Error)]
#[error("failed to watch {path} for changes")]
pub struct Error {
    path: PathBuf,
    source: notify::Error,
}

impl FileWatch {
    /// Starts to watch `path`; the file itself need not exist yet.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if its directory does not exist or the limit of inotify watches is reached.
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
            pending: None,
            is_gone,
            retry_at: None,
            watcher,
        })
    }

    /// Completes when the file may have changed and then stayed unchanged for 50 ms.
    ///
    /// A file that changes all the time is reported once a second. Spurious reports are
    /// possible, so compare the content. Cancel safe: a dropped call loses no change.
    pub async fn changed(&mut self) {
        loop {
            self.rewatch_directory();
            let report_at = self.pending.map(|it| it.ends_at);
            let changes = self.changes.recv();
            let change = match report_at.into_iter().chain(self.retry_at).min() {
                None => changes.await,
                Some(at) => tokio::time::timeout_at(at, changes)
                    .await
                    .unwrap_or_default(),
            };
            if change.is_some() {
                self.note_change();
            }
            // Also after a change: under a flood of changes the wait never times out.
            if self.pending.is_some_and(|it| it.ends_at <= Instant::now()) {
                self.pending = None;
                return;
            }
        }
    }

    /// The watched file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Watches the directory's path again if the watched directory is gone.
    fn rewatch_directory(&mut self) {
        let now = Instant::now();
        if self.is_gone.swap(false, Ordering::Relaxed) {
            // Fails if the watch ended together with the directory.
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
                // The new directory's file may have been written before the watch began.
                self.note_change();
                None
            }
            Err(error) => {
                tracing::debug!(%error, "the watched directory does not exist");
                Some(now + RETRY)
            }
        };
    }

    fn note_change(&mut self) {
        self.pending = Some(Debounce::extend(self.pending, Instant::now()));
    }
}

/// The time from the first of several changes until all of them are reported as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Debounce {
    began_at: Instant,
    ends_at: Instant,
}

impl Debounce {
    /// Starts one, or extends `pending`, for a change at `now`.
    fn extend(pending: Option<Self>, now: Instant) -> Self {
        let began_at = pending.map_or(now, |it| it.began_at);
        Self {
            began_at,
            ends_at: (now + QUIET).min(began_at + DEBOUNCE_MAX),
        }
    }
}

/// Selects the events that affect the file; runs on the watcher's thread.
struct Filter {
    directory: PathBuf,
    name: OsString,
    is_gone: Arc<AtomicBool>,
    sender: mpsc::Sender<()>,
}

impl Filter {
    fn handle(&self, event: &notify::Result<Event>) {
        if let Ok(event) = event {
            if self.removes_directory(event) {
                self.is_gone.store(true, Ordering::Relaxed);
            } else if !self.affects_file(event) {
                return;
            }
        }
        // An error may stand for a lost change. The channel is full if a change is
        // already queued.
        let _ = self.sender.try_send(());
    }

    fn affects_file(&self, event: &Event) -> bool {
        let names = [self.name.as_os_str(), OsStr::new(CONFIG_MAP_LINK)];
        let mut paths = event.paths.iter().filter_map(|path| path.file_name());

        event.need_rescan() || changes_content(event.kind) && paths.any(|it| names.contains(&it))
    }

    fn removes_directory(&self, event: &Event) -> bool {
        use notify::event::ModifyKind::Name;
        let removes = matches!(
            event.kind,
            EventKind::Remove(_) | EventKind::Modify(Name(_))
        );

        removes && event.paths.contains(&self.directory)
    }
}

/// Excludes access events, which the reader of the file causes itself.
fn changes_content(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_)
    )
}

#[cfg(test)]
mod tests;
