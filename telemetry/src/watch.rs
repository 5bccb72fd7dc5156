//! Reports changes of a configuration file.
//!
//! The module watches the directory of the file. A watch on the file itself would end when an
//! editor or Kubernetes replaces the file by a rename. (For a mounted ConfigMap, Kubernetes renames
//! the symbolic link `..data`.) If the directory is removed or moved, the module watches its path
//! again as soon as the path exists.

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Time without further changes after which a change is reported.
///
/// A writer that truncates a file and then writes it usually finishes both steps within this time.
/// The delay is short enough for users, who expect an edit to take effect within a second.
const QUIET: Duration = Duration::from_millis(50);

/// Longest time from a change to its report, if further changes follow without a pause.
const DEBOUNCE_MAX: Duration = Duration::from_secs(1);

/// Time between attempts to watch a directory that does not exist.
const RETRY: Duration = Duration::from_secs(1);

/// The symbolic link by which Kubernetes replaces all files of a mounted ConfigMap atomically.
const CONFIG_MAP_LINK: &str = "..data";

/// A watch on one file, which ends when the value is dropped.
pub struct FileWatch {
    path: PathBuf,
    /// Absolute path of the file's directory, for comparison with the absolute paths in events.
    directory: PathBuf,
    /// A channel with capacity 1. A message only means that the file may have changed.
    changes: mpsc::Receiver<()>,
    /// The unreported change, if any. The field outlives the future of [`FileWatch::changed`], so
    /// that a dropped future loses no change.
    pending: Option<Debounce>,
    /// Whether the directory was removed or moved after the last attempt to watch it.
    is_gone: Arc<AtomicBool>,
    /// Time of the next attempt to watch the directory; `None` while it is watched.
    retry_at: Option<Instant>,
    watcher: RecommendedWatcher,
}

/// The directory of the file cannot be watched.
#[derive(Debug, thiserror::Error)]
#[error("failed to watch {path} for changes")]
pub struct Error {
    path: PathBuf,
    source: notify::Error,
}

impl FileWatch {
    /// Starts to watch the file `path`, which may not exist yet.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the directory of the file does not exist, or if the limit of inotify
    /// watches is reached.
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

    /// Waits until the file has changed and then stayed unchanged for 50 ms.
    ///
    /// If the file changes continuously, the method returns once a second. It may also return
    /// without a change, so the caller must compare the content. The method is cancel safe: no
    /// change is lost if its future is dropped.
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
            // This check is also necessary after a change: if changes arrive continuously, the wait
            // never times out.
            if self.pending.is_some_and(|it| it.ends_at <= Instant::now()) {
                self.pending = None;
                return;
            }
        }
    }

    /// Returns the path of the watched file, as given to [`FileWatch::new`].
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Watches the path of the directory again if the directory was removed or moved.
    fn rewatch_directory(&mut self) {
        let now = Instant::now();
        if self.is_gone.swap(false, Ordering::Relaxed) {
            // The call fails if the kernel removed the watch together with the directory.
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
                // The file in the new directory may have been written before the watch began.
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

/// The debounce period, in which several changes are combined into one report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Debounce {
    began_at: Instant,
    ends_at: Instant,
}

impl Debounce {
    /// Starts a debounce period for a change at `now`, or extends the current period `pending`.
    fn extend(pending: Option<Self>, now: Instant) -> Self {
        let began_at = pending.map_or(now, |it| it.began_at);
        Self {
            began_at,
            ends_at: (now + QUIET).min(began_at + DEBOUNCE_MAX),
        }
    }
}

/// A filter for the events that affect the file. It runs on the thread of the watcher.
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
        // An error may mean that an event was lost, so an error counts as a change. If the channel
        // is full, a change is already queued.
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

/// Returns whether an event may change the content of a file.
///
/// Access events do not change the content. The process itself causes such events when it reads the
/// file.
fn changes_content(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_)
    )
}

#[cfg(test)]
mod tests;
