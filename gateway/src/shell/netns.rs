//! Creates, enters and removes the gateway's network namespace.
//!
//! A persistent namespace has a name, as with `ip netns`. Any other namespace ends with its last
//! descriptor, socket or thread.

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::thread;

/// Directory with the mount points of named namespaces, which `ip netns` also uses.
const DIRECTORY: &str = "/run/netns";

/// Path of the calling thread's network namespace.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// A network namespace. A namespace without a name ends with its last descriptor, socket or thread.
#[derive(Debug)]
pub(crate) struct Namespace {
    file: File,
    /// Mount point of a named namespace; `None` for a namespace without a name.
    path: Option<PathBuf>,
}

/// The reason why a network namespace cannot be created, entered or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The process lacks a capability for the action.
    #[error(
        "failed to {action} the network namespace {namespace}: it needs CAP_SYS_ADMIN during set-up"
    )]
    Privilege {
        /// A verb such as "create".
        action: &'static str,
        /// Path of the mount point, or of the descriptor of a namespace without a name.
        namespace: PathBuf,
    },

    /// The kernel rejected the action for another reason.
    #[error("failed to {action} the network namespace {namespace}")]
    Io {
        /// A verb such as "create".
        action: &'static str,
        /// Path of the mount point, or of the descriptor of a namespace without a name.
        namespace: PathBuf,
        source: io::Error,
    },
}

impl Namespace {
    /// Opens the namespace `name`; returns `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the mount point cannot be opened.
    pub(crate) fn open(name: &str) -> Result<Option<Self>, Error> {
        let path = Path::new(DIRECTORY).join(name);
        match File::open(&path) {
            Ok(file) if is_namespace(&file) => Ok(Some(Self {
                file,
                path: Some(path),
            })),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failure("open", &path, source)),
        }
    }

    /// Opens the namespace `name`; creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if a capability is missing or the kernel rejects the request.
    pub(crate) fn open_or_create(name: &str) -> Result<Self, Error> {
        if let Some(existing) = Self::open(name)? {
            return Ok(existing);
        }
        let path = Path::new(DIRECTORY).join(name);
        let creating = |source| failure("create", &path, source);
        share_directory().map_err(creating)?;
        // A plain file may remain at the path if the mount has ended without `Namespace::remove`.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(creating(error)),
            _ => {}
        }
        File::create_new(&path).map_err(creating)?;
        let made = on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            mount(
                Some(CURRENT),
                &path,
                None::<&str>,
                MsFlags::MS_BIND,
                None::<&str>,
            )
        });
        if let Err(error) = made {
            let _ = fs::remove_file(&path);
            return Err(creating(error.into()));
        }

        Self::open(name)?.ok_or_else(|| creating(io::Error::other("another process removed it")))
    }

    /// Creates a namespace without a name, which requires no mount.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if a capability is missing or the kernel rejects the request.
    pub(crate) fn create_unnamed() -> Result<Self, Error> {
        let file = on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            current()
        });

        Ok(Self {
            file: file.map_err(|source| failure("create", Path::new("without a name"), source))?,
            path: None,
        })
    }

    /// Runs `work` inside the namespace, on a new thread.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the thread cannot enter the namespace.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_thread(|| {
            setns(&self.file, CloneFlags::CLONE_NEWNET)
                .map_err(|errno| failure("enter", &self.location(), errno.into()))?;
            Ok(work())
        })
    }

    /// Returns the name for `ip netns`.
    ///
    /// If the namespace has no name, returns the path of its descriptor for `nsenter --net`.
    pub(crate) fn name(&self) -> String {
        let name = self.path.as_deref().and_then(Path::file_name);
        name.map_or_else(
            || self.location().display().to_string(),
            |name| name.display().to_string(),
        )
    }

    /// Returns the mount point, or the path of the descriptor if the namespace has no name.
    fn location(&self) -> PathBuf {
        self.path.clone().unwrap_or_else(|| {
            let (process, descriptor) = (std::process::id(), self.file.as_raw_fd());
            PathBuf::from(format!("/proc/{process}/fd/{descriptor}"))
        })
    }

    /// Removes the name, so that the namespace ends with its last descriptor, socket or thread.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the kernel rejects the request.
    pub(crate) fn remove(self) -> Result<(), Error> {
        let Some(path) = self.path else {
            return Ok(());
        };
        let removing = |source| failure("remove", &path, source);
        umount2(&path, MntFlags::MNT_DETACH).map_err(|errno| removing(errno.into()))?;
        fs::remove_file(&path).map_err(removing)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens the network namespace of the calling thread.
///
/// # Errors
///
/// Returns an error if `/proc` is not mounted.
pub(crate) fn current() -> io::Result<File> {
    File::open(CURRENT)
}

fn failure(action: &'static str, namespace: &Path, source: io::Error) -> Error {
    let namespace = namespace.to_owned();
    if source.raw_os_error() == Some(Errno::EPERM as i32) {
        return Error::Privilege { action, namespace };
    }
    Error::Io {
        action,
        namespace,
        source,
    }
}

/// Returns whether a network namespace is mounted at the file; after an unmount, a plain file
/// remains.
fn is_namespace(file: &File) -> bool {
    fstatfs(file).is_ok_and(|stat| stat.filesystem_type() == NSFS_MAGIC)
}

/// Runs `work` on a new thread, so that the calling thread stays in its own network namespace.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Makes [`DIRECTORY`] a shared mount, which propagates to other mount namespaces, as `ip netns
/// add` does.
fn share_directory() -> io::Result<()> {
    fs::create_dir_all(DIRECTORY)?;
    let shared = || {
        mount(
            None::<&str>,
            DIRECTORY,
            None::<&str>,
            MsFlags::MS_SHARED | MsFlags::MS_REC,
            None::<&str>,
        )
    };
    match shared() {
        Err(Errno::EINVAL) => {} // The directory is not a mount point yet.
        done => return Ok(done?),
    }
    mount(
        Some(DIRECTORY),
        DIRECTORY,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )?;
    Ok(shared()?)
}
