//! The gateway's own network namespace, known by name as `ip netns` does it.

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;

/// Where named namespaces are, for us and for `ip netns`.
const DIRECTORY: &str = "/run/netns";

/// A named network namespace.
pub(crate) struct Namespace {
    path: PathBuf,
    file: File,
}

/// The namespace cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A right is missing.
    #[error("{action} the network namespace {path} needs CAP_SYS_ADMIN, until it is set up")]
    Privilege {
        /// Creating or entering.
        action: &'static str,
        /// The namespace's name in the file system.
        path: PathBuf,
    },

    /// Anything else.
    #[error("failed at {action} the network namespace {path}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// The namespace's name in the file system.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl Namespace {
    /// Returns where the namespace of that name is, or would be.
    pub(crate) fn path(name: &str) -> PathBuf {
        Path::new(DIRECTORY).join(name)
    }

    /// Opens the namespace of that name; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if it cannot be opened.
    pub(crate) fn open(name: &str) -> Result<Option<Self>, Error> {
        let path = Self::path(name);
        match File::open(&path) {
            Ok(file) if is_namespace(&file) => Ok(Some(Self { path, file })),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failure("opening", &path, source)),
        }
    }

    /// Opens the namespace of that name, or creates it.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if a right is missing or the kernel refuses.
    pub(crate) fn open_or_create(name: &str) -> Result<Self, Error> {
        if let Some(existing) = Self::open(name)? {
            return Ok(existing);
        }
        let path = Self::path(name);
        let creating = |source| failure("creating", &path, source);
        share_directory().map_err(creating)?;
        // What remains of one whose mount did not survive.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(creating(error)),
            _ => {}
        }
        File::create_new(&path).map_err(creating)?;
        let made = on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            mount(
                Some("/proc/thread-self/ns/net"),
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

        Self::open(name)?.ok_or_else(|| creating(io::Error::other("it vanished at once")))
    }

    /// Runs `work` on a thread of its own inside the namespace.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the thread may not enter.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_thread(|| {
            setns(&self.file, CloneFlags::CLONE_NEWNET)
                .map_err(|errno| failure("entering", &self.path, errno.into()))?;
            Ok(work())
        })
    }

    /// Takes the namespace's name away; it ends when nobody uses it any more.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the kernel refuses.
    pub(crate) fn remove(self) -> Result<(), Error> {
        let removing = |source| failure("removing", &self.path, source);
        umount2(&self.path, MntFlags::MNT_DETACH).map_err(|errno| removing(errno.into()))?;
        fs::remove_file(&self.path).map_err(removing)
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
/// Returns an error if `/proc` is not there.
pub(crate) fn current() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

fn failure(action: &'static str, path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    if source.raw_os_error() == Some(Errno::EPERM as i32) {
        return Error::Privilege { action, path };
    }
    Error::Io {
        action,
        path,
        source,
    }
}

/// A plain file of that name is what an unmounted namespace leaves behind.
fn is_namespace(file: &File) -> bool {
    fstatfs(file).is_ok_and(|stat| stat.filesystem_type() == NSFS_MAGIC)
}

/// A namespace belongs to a thread: what changes it must not be the caller.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Lets mounts below the directory appear in other mount namespaces, as `ip netns add` does.
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
        Err(Errno::EINVAL) => {} // Not a mount point yet.
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
