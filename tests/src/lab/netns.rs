//! Named network namespaces.
//!
//! A thread is in one namespace at a time. [`Netns::run`] and [`Netns::spawn`] therefore run code
//! in a namespace on a separate thread. [`Netns::start`] starts a process on such a thread, because
//! a child process inherits the namespace of its parent thread.

use super::Identity;
use anyhow::{Context as _, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};

/// A handle of a named network namespace, which `ip netns` lists. The laboratory and its namespaces
/// exist as long as there is a handle.
#[derive(Clone, Debug)]
pub struct Netns(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    file: File,
    /// The laboratory that owns the namespace. `None` for an adopted namespace.
    _identity: Option<Arc<Identity>>,
}

impl Netns {
    /// Creates the namespace `lq-<id>-<name>` without IPv6.
    ///
    /// Sysctls that affect tests get fixed values, even if the machine has other values.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses, for example without `CAP_SYS_ADMIN`.
    pub fn create(identity: &Arc<Identity>, name: &str) -> Result<Self> {
        let _gate = pass_gate();
        let name = identity.qualify(name);
        let file = create(&name).with_context(|| format!("failed to create namespace {name}"))?;

        Ok(Self(Arc::new(Inner {
            name,
            file,
            _identity: Some(Arc::clone(identity)),
        })))
    }

    /// Wraps an open namespace that another program manages, such as the namespace of a pod. The
    /// name appears in messages only.
    pub fn adopt(name: &str, file: File) -> Self {
        Self(Arc::new(Inner {
            name: name.to_owned(),
            file,
            _identity: None,
        }))
    }

    /// Returns the name of the namespace. An adopted namespace may have no file with this name in
    /// `/run/netns`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Runs `work` in the namespace, waits for its end, and returns its result.
    ///
    /// # Panics
    ///
    /// Panics if `work` panics, or if the namespace cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.enter();
                    work()
                })
                .join()
                .unwrap_or_else(|cause| panic::resume_unwind(cause))
        })
    }

    /// Starts to run `work` in the namespace on a new thread, and returns at once.
    pub fn spawn<T, F>(&self, work: F) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let netns = self.clone();
        thread::spawn(move || {
            netns.enter();
            work()
        })
    }

    /// Starts a process in the namespace.
    ///
    /// The process gets its own process group. Ctrl-C on a terminal thus signals only the process
    /// of the laboratory, which then cleans up.
    ///
    /// # Errors
    ///
    /// Returns an error if the program cannot be started.
    pub fn start(&self, command: &mut Command) -> Result<Child> {
        let _gate = pass_gate();
        command.process_group(0);
        self.run(|| command.spawn())
            .with_context(|| format!("failed to start {:?}", command.get_program()))
    }

    /// Runs a program in the namespace with `input` on standard input, and returns the standard
    /// output.
    ///
    /// # Errors
    ///
    /// Returns an error with the program's standard error if the program fails.
    pub fn exec(&self, program: &str, args: &[&str], input: &str) -> Result<String> {
        let output = self.output(program, args, input)?;
        if !output.status.success() {
            bail!(
                "{program} {} in {} failed ({}): {}",
                args.join(" "),
                self.name(),
                output.status,
                String::from_utf8_lossy(&output.stderr).trim(),
            );
        }

        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a program in the namespace with `input` on standard input, and returns the output and
    /// the exit status. A failure of the program is not an error.
    ///
    /// # Errors
    ///
    /// Returns an error if the program cannot be started.
    pub fn output(&self, program: &str, args: &[&str], input: &str) -> Result<Output> {
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self.start(&mut command)?;
        let mut stdin = child.stdin.take().context("standard input is piped")?;

        let (fed, output) = thread::scope(|scope| {
            let feed = scope.spawn(move || stdin.write_all(input.as_bytes()));
            let output = child.wait_with_output();
            (feed.join(), output)
        });
        // A program may end before it has read its whole input, which is no error.
        if let Ok(Err(error)) = fed
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(error).with_context(|| format!("failed to write to {program}"));
        }

        output.with_context(|| format!("failed to wait for {program}"))
    }

    /// Sets a sysctl, such as `net.ipv4.ip_forward`, in the namespace.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such sysctl or the kernel refuses the value.
    pub fn sysctl(&self, key: &str, value: impl ToString) -> Result<()> {
        let path = Path::new("/proc/sys").join(key.replace('.', "/"));
        let value = value.to_string();
        self.run(|| fs::write(&path, value))
            .with_context(|| format!("failed to set {key} in {}", self.name()))
    }

    /// Kills the processes in the namespace, and removes its devices and its name.
    ///
    /// # Errors
    ///
    /// Returns an error if a process does not end, or if the name cannot be removed.
    pub fn destroy(&self) -> Result<()> {
        super::clean::kill_in(std::slice::from_ref(&self.0.name))?;
        // The kernel keeps the namespace as long as a handle is open, so remove its devices
        // explicitly.
        self.run(remove_links)?;
        delete(&self.0.name)
    }

    fn enter(&self) {
        setns(&self.0.file, CloneFlags::CLONE_NEWNET)
            .expect("an open namespace can be entered with CAP_SYS_ADMIN");
    }
}

/// Read-write lock that prevents the creation of namespaces and processes during a clean-up. A
/// thread holds the lock for reading while it creates one. A clean-up holds the lock for writing.
static GATE: RwLock<()> = RwLock::new(());

fn pass_gate() -> RwLockReadGuard<'static, ()> {
    GATE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Prevents other threads from creating namespaces and processes while the guard exists.
pub(super) fn close_gate() -> RwLockWriteGuard<'static, ()> {
    GATE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the names of all named network namespaces of this machine.
pub(super) fn list() -> Result<Vec<String>> {
    match fs::read_dir(NETNS_DIR) {
        Ok(entries) => Ok(entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("failed to list {NETNS_DIR}")),
    }
}

/// Returns the mount point of a named namespace.
pub(super) fn path(name: &str) -> PathBuf {
    Path::new(NETNS_DIR).join(name)
}

/// Removes the name of a namespace. Succeeds if the name does not exist.
pub(super) fn delete(name: &str) -> Result<()> {
    let path = path(name);
    match umount2(&path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(nix::errno::Errno::ENOENT | nix::errno::Errno::EINVAL) => {}
        Err(error) => return Err(error).with_context(|| format!("failed to unmount {path:?}")),
    }

    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to remove {path:?}"))
        }
        _ => Ok(()),
    }
}

fn create(name: &str) -> Result<File> {
    prepare_directory()?;
    let path = path(name);
    let file = File::create_new(&path).with_context(|| format!("failed to create {path:?}"))?;
    drop(file);

    let settle = || -> Result<()> {
        unshare(CloneFlags::CLONE_NEWNET).context("a network namespace needs CAP_SYS_ADMIN")?;
        mount(
            Some("/proc/thread-self/ns/net"),
            &path,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
        .context("failed to mount the namespace")?;
        for (key, value) in DEFAULTS {
            fs::write(Path::new("/proc/sys/net").join(key), value)
                .with_context(|| format!("failed to set {key}"))?;
        }
        Ok(())
    };
    let settled = thread::scope(|scope| {
        scope
            .spawn(settle)
            .join()
            .unwrap_or_else(|cause| panic::resume_unwind(cause))
    });
    if let Err(error) = settled {
        delete(name)?;
        return Err(error);
    }

    File::open(&path).with_context(|| format!("failed to open {path:?}"))
}

/// Makes the directory of named namespaces a shared mount, which `ip netns` requires.
fn prepare_directory() -> Result<()> {
    fs::create_dir_all(NETNS_DIR).with_context(|| format!("failed to create {NETNS_DIR}"))?;
    let directory = File::open(NETNS_DIR).with_context(|| format!("failed to open {NETNS_DIR}"))?;
    // `ip netns` uses the same lock, so that two processes do not mount the directory at the same
    // time.
    directory
        .lock()
        .with_context(|| format!("failed to lock {NETNS_DIR}"))?;

    let share = || {
        mount(
            None::<&str>,
            NETNS_DIR,
            None::<&str>,
            MsFlags::MS_SHARED | MsFlags::MS_REC,
            None::<&str>,
        )
    };
    if share().is_err() {
        mount(
            Some(NETNS_DIR),
            NETNS_DIR,
            None::<&str>,
            MsFlags::MS_BIND | MsFlags::MS_REC,
            None::<&str>,
        )
        .and_then(|()| share())
        .with_context(|| format!("failed to share {NETNS_DIR}"))?;
    }

    Ok(())
}

/// Removes all links in the current thread's namespace that can be removed.
fn remove_links() -> Result<()> {
    let output = Command::new("ip")
        .args(["-o", "link", "show"])
        .output()
        .context("failed to list links")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for name in text.lines().filter_map(|line| {
        let name = line.split(": ").nth(1)?;
        Some(name.split('@').next().unwrap_or(name))
    }) {
        // Errors are ignored: `lo` cannot be deleted, and deleting a veth also deletes its peer.
        Command::new("ip")
            .args(["link", "delete", name])
            .output()
            .context("failed to delete a link")?;
    }

    Ok(())
}

const NETNS_DIR: &str = "/run/netns";

/// Sysctls of each new namespace, relative to `/proc/sys/net`, and their values.
///
/// A new namespace would otherwise inherit some of these values from the machine.
const DEFAULTS: [(&str, &str); 6] = [
    // With IPv6, captures would contain packets of neighbour discovery.
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/ip_forward", "0"),
    // With a rate limit, the kernel would suppress ICMP errors that MTU tests and traceroutes
    // expect.
    ("ipv4/icmp_ratelimit", "0"),
];
