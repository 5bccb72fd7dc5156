//! Removal of laboratories, found by name.

use super::identity::{KEPT_FILE, LOCK_FILE, RUN_DIR, prefix};
use super::netns;
use super::wait;
use crate::wireguard;
use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Removes every laboratory whose owner has ended, including kept ones, and returns
/// their ids.
///
/// Changes nothing whose name lacks the id of such a laboratory.
///
/// # Errors
///
/// Returns an error that names all laboratories that could not be removed.
pub fn clean() -> Result<Vec<String>> {
    clean_where(|_| true)
}

/// Removes every laboratory whose owner crashed, and returns their ids.
///
/// # Errors
///
/// Returns an error that names all laboratories that could not be removed.
pub fn clean_crashed() -> Result<Vec<String>> {
    clean_where(|run_dir| !run_dir.join(KEPT_FILE).exists())
}

/// Installs handlers: the first SIGINT, SIGTERM or SIGHUP removes the laboratories of
/// this process and ends it with the exit code of a shell, 128 + signal.
///
/// # Errors
///
/// Returns an error if the signal handlers cannot be installed.
pub fn clean_on_signal() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("failed to start the signal runtime")?;
    let (interrupt, terminate, hang_up) = {
        let _guard = runtime.enter();
        let open = |kind| signal(kind).context("failed to install a signal handler");
        (
            open(SignalKind::interrupt())?,
            open(SignalKind::terminate())?,
            open(SignalKind::hangup())?,
        )
    };

    let wait = async move {
        let (mut interrupt, mut terminate, mut hang_up) = (interrupt, terminate, hang_up);
        tokio::select! {
            _ = interrupt.recv() => SignalKind::interrupt(),
            _ = terminate.recv() => SignalKind::terminate(),
            _ = hang_up.recv() => SignalKind::hangup(),
        }
    };
    std::thread::spawn(move || {
        let kind = runtime.block_on(wait);
        // Held to the end, so that other threads create no namespace or process any more.
        let _gate = netns::close_gate();
        if let Err(error) = remove_own() {
            eprintln!("failed to clean up: {error:#}");
        }
        std::process::exit(128 + kind.as_raw_value());
    });

    Ok(())
}

/// Removes everything whose name has the id: processes, namespaces, pins, files.
///
/// Continues after an error and returns all errors.
pub(super) fn remove(id: &str) -> Result<()> {
    let mut errors = Vec::new();

    if let Err(error) = kill_in(&namespaces_of(id)?) {
        errors.push(error);
    }
    // Listed again: a gateway may have created its own namespace before it was killed.
    for name in &namespaces_of(id)? {
        if let Err(error) = netns::delete(name) {
            errors.push(error);
        }
    }
    for path in pins_of(id) {
        if let Err(error) = fs::remove_dir_all(&path) {
            errors.push(anyhow::Error::new(error).context(format!("failed to remove {path:?}")));
        }
    }
    for path in sockets_of(id) {
        if let Err(error) = fs::remove_file(&path) {
            errors.push(anyhow::Error::new(error).context(format!("failed to remove {path:?}")));
        }
    }
    // Last, and only without errors: a later clean-up finds the laboratory by its run directory.
    if errors.is_empty() {
        let run_dir = Path::new(RUN_DIR).join(id);
        return match fs::remove_dir_all(&run_dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("failed to remove {run_dir:?}"))
            }
            _ => Ok(()),
        };
    }

    let list: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
    bail!("laboratory {id}: {}", list.join("; "))
}

/// Kills the processes inside the named namespaces, and waits for their end.
pub(super) fn kill_in(namespaces: &[String]) -> Result<()> {
    let inodes: BTreeSet<u64> = namespaces
        .iter()
        .filter_map(|name| Some(fs::metadata(netns::path(name)).ok()?.ino()))
        .collect();

    wait::until(KILL_DEADLINE, "killed processes to end", || {
        let pids = processes_in(&inodes);
        for &pid in &pids {
            match kill(pid, Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error).with_context(|| format!("failed to kill {pid}")),
            }
        }
        Ok(pids.is_empty())
    })
}

/// Processes in one of the namespaces, except this one. Zombies hold no namespace and
/// are not included.
fn processes_in(inodes: &BTreeSet<u64>) -> Vec<Pid> {
    let own = std::process::id();
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&pid| pid.cast_unsigned() != own)
        .filter(|pid| {
            fs::metadata(format!("/proc/{pid}/ns/net"))
                .is_ok_and(|metadata| inodes.contains(&metadata.ino()))
        })
        .map(Pid::from_raw)
        .collect()
}

fn clean_where(wanted: impl Fn(&Path) -> bool) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    let mut errors = Vec::new();

    for (id, run_dir) in run_dirs().into_iter().filter(|(_, dir)| wanted(dir)) {
        let Ok(lock) = File::create(run_dir.join(LOCK_FILE)) else {
            continue; // Its owner removed it in the meantime.
        };
        if lock.try_lock().is_err() {
            continue;
        }
        match remove(&id) {
            Ok(()) => removed.push(id),
            Err(error) => errors.push(format!("{error:#}")),
        }
    }
    for id in orphans()? {
        match remove(&id) {
            Ok(()) => removed.push(id),
            Err(error) => errors.push(format!("{error:#}")),
        }
    }
    if !errors.is_empty() {
        bail!("{}", errors.join("; "));
    }

    Ok(removed)
}

/// Removes the laboratories whose lock this process holds.
fn remove_own() -> Result<()> {
    let own: BTreeSet<(u64, u64)> = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| fs::metadata(entry.ok()?.path()).ok())
        .map(|metadata| (metadata.dev(), metadata.ino()))
        .collect();

    for (id, run_dir) in run_dirs() {
        let is_own = fs::metadata(run_dir.join(LOCK_FILE))
            .is_ok_and(|metadata| own.contains(&(metadata.dev(), metadata.ino())));
        if is_own && !run_dir.join(KEPT_FILE).exists() {
            remove(&id)?;
        }
    }

    Ok(())
}

fn run_dirs() -> Vec<(String, PathBuf)> {
    fs::read_dir(RUN_DIR)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().into_string().ok()?, entry.path()))
        })
        .collect()
}

/// The ids of laboratories of which only a gateway's namespace is left, because the
/// gateway survived the removal of its laboratory.
fn orphans() -> Result<BTreeSet<String>> {
    let run_dirs: BTreeSet<String> = run_dirs().into_iter().map(|(id, _)| id).collect();

    Ok(netns::list()?
        .iter()
        .filter_map(|name| name.strip_prefix("liqo-lq-")?.split('-').next())
        .filter(|id| !run_dirs.contains(*id))
        .map(str::to_owned)
        .collect())
}

/// The namespaces of a laboratory, and those that its gateways created.
fn namespaces_of(id: &str) -> Result<Vec<String>> {
    let own = prefix(id);
    let of_gateways = format!("liqo-{own}");

    Ok(netns::list()?
        .into_iter()
        .filter(|name| name.starts_with(&own) || name.starts_with(&of_gateways))
        .collect())
}

fn pins_of(id: &str) -> Vec<PathBuf> {
    entries(PIN_DIR, &prefix(id))
}

/// The sockets that killed processes of `wireguard-go` left.
fn sockets_of(id: &str) -> Vec<PathBuf> {
    entries(wireguard::SOCKET_DIR, &wireguard::device_prefix(id))
}

fn entries(directory: &str, prefix: &str) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let matches = entry.file_name().to_str()?.starts_with(prefix);
            matches.then(|| entry.path())
        })
        .collect()
}

/// The directory in which gateways pin programs and maps, one subdirectory per instance.
const PIN_DIR: &str = "/sys/fs/bpf/liqo";

/// A killed process ends as soon as it is scheduled; a busy machine may take longer.
const KILL_DEADLINE: Duration = Duration::from_secs(10);
