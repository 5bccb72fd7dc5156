//! Named network namespaces.
//!
//! A namespace belongs to a thread, so code in a namespace runs on a thread of its
//! own: [`Netns::run`] and [`Netns::spawn`]. A child process inherits the namespace of
//! the thread that starts it: [`Netns::start`].

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

/// A network namespace that `ip netns` knows by name. It is removed with its
/// laboratory, which lives as long as any handle.
#[derive(Clone, Debug)]
pub struct Netns(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    file: File,
    /// `None` for an adopted namespace.
    _identity: Option<Arc<Identity>>,
}

impl Netns {
    /// Creates the namespace `lq-<id>-<name>`, with `lo` up, without IPv6, and
    /// with the kernel's defaults instead of the machine's settings.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses, as it does without `CAP_SYS_ADMIN`.
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

    /// Wraps an open namespace that another program created and removes, such as a pod's;
    /// the name is for messages.
    pub fn adopt(name: &str, file: File) -> Self {
        Self(Arc::new(Inner {
            name: name.to_owned(),
            file,
            _identity: None,
        }))
    }

    /// Its name under `/run/netns`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Runs `work` in the namespace, and returns its result.
    ///
    /// # Panics
    ///
    /// Panics if `work` panics or if the namespace cannot be entered.
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

    /// Runs `work` in the namespace concurrently with the caller.
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

    /// Starts a process in the namespace. It has a process group of its own, so that
    /// Ctrl-C on a terminal signals only the laboratory, which then cleans up.
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

    /// Runs a program in the namespace with `input` on standard input, and returns its
    /// output.
    ///
    /// # Errors
    ///
    /// Returns an error with the program's standard error if it fails.
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

    /// Runs a program in the namespace with `input` on standard input; the result
    /// includes a failure of the program itself.
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
        // A program may end before it has read all of its input.
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

    /// Removes the namespace now, with the processes and devices in it.
    ///
    /// # Errors
    ///
    /// Returns an error if a process does not end or the name cannot be removed.
    pub fn destroy(&self) -> Result<()> {
        super::clean::kill_in(std::slice::from_ref(&self.0.name))?;
        // Open handles keep the namespace alive, so its devices are removed explicitly.
        self.run(remove_links)?;
        delete(&self.0.name)
    }

    fn enter(&self) {
        setns(&self.0.file, CloneFlags::CLONE_NEWNET)
            .expect("an open namespace can be entered with CAP_SYS_ADMIN");
    }
}

/// Held shared while a thread creates an object that a clean-up must remove.
static GATE: RwLock<()> = RwLock::new(());

fn pass_gate() -> RwLockReadGuard<'static, ()> {
    GATE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks all other threads before they create their next namespace or process.
pub(super) fn close_gate() -> RwLockWriteGuard<'static, ()> {
    GATE.write().unwrap_or_else(PoisonError::into_inner)
}

/// The names of all namespaces of this machine.
pub(super) fn list() -> Result<Vec<String>> {
    match fs::read_dir(NETNS_DIR) {
        Ok(entries) => Ok(entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("failed to list {NETNS_DIR}")),
    }
}

/// The mount point of a namespace.
pub(super) fn path(name: &str) -> PathBuf {
    Path::new(NETNS_DIR).join(name)
}

/// Removes the name of a namespace, if it exists.
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

/// Makes the directory a shared mount, as `ip netns` does and expects.
fn prepare_directory() -> Result<()> {
    fs::create_dir_all(NETNS_DIR).with_context(|| format!("failed to create {NETNS_DIR}"))?;
    let directory = File::open(NETNS_DIR).with_context(|| format!("failed to open {NETNS_DIR}"))?;
    // Prevents that two processes mount it at the same time; `ip netns` takes this lock too.
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

/// Removes the links of the current namespace that can be removed.
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
        // `lo` cannot be deleted, and a veth may be gone together with its peer.
        Command::new("ip")
            .args(["link", "delete", name])
            .output()
            .context("failed to delete a link")?;
    }

    Ok(())
}

const NETNS_DIR: &str = "/run/netns";

/// Settings of every namespace, below `/proc/sys/net`.
///
/// Without them, a new namespace would inherit the values of the machine's.
const DEFAULTS: [(&str, &str); 6] = [
    // Otherwise captures would contain neighbour discovery.
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/ip_forward", "0"),
    // Otherwise the kernel would suppress ICMP errors that MTU tests and traceroutes expect.
    ("ipv4/icmp_ratelimit", "0"),
];
