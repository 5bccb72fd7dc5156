//! Finds laboratories by the names of their objects, and removes them.

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

/// Removes every laboratory whose process has ended, and returns their ids.
///
/// Laboratories that were kept by [`Lab::keep`](super::Lab::keep) are removed, too. Objects whose
/// name does not contain the id of such a laboratory are not changed.
///
/// # Errors
///
/// Returns an error that names all laboratories that could not be removed.
pub fn clean() -> Result<Vec<String>> {
    clean_where(|_| true)
}

/// Removes every laboratory whose process has crashed, and returns their ids.
///
/// # Errors
///
/// Returns an error that names all laboratories that could not be removed.
pub fn clean_crashed() -> Result<Vec<String>> {
    clean_where(|run_dir| !run_dir.join(KEPT_FILE).exists())
}

/// Installs handlers for SIGINT, SIGTERM and SIGHUP.
///
/// The first of these signals removes the laboratories of this process. Then the process exits with
/// the code 128 + signal, as in a shell.
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
        // With the gate closed, other threads cannot create namespaces or processes that would
        // survive the clean-up.
        let _gate = netns::close_gate();
        if let Err(error) = remove_own() {
            eprintln!("failed to clean up: {error:#}");
        }
        std::process::exit(128 + kind.as_raw_value());
    });

    Ok(())
}

/// Removes all objects of a laboratory: processes, namespaces, pinned eBPF objects and files.
///
/// Continues after an error, and returns all errors in one error.
pub(super) fn remove(id: &str) -> Result<()> {
    let mut errors = Vec::new();

    if let Err(error) = kill_in(&namespaces_of(id)?) {
        errors.push(error);
    }
    // A gateway may have created a namespace before it was killed, so list the namespaces again.
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
    // After an error the run directory stays, so that a later clean-up finds the laboratory.
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

/// Kills the processes in the named namespaces, and waits until they have ended.
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

/// Returns the processes in the namespaces with these inodes, except for this process. Zombie
/// processes have no namespace, so they are not included.
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
            continue; // The laboratory's process has removed the directory in the meantime.
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

/// Returns the ids of laboratories of which only a gateway's own namespace is left. A gateway that
/// survives the removal of its laboratory leaves such a namespace.
fn orphans() -> Result<BTreeSet<String>> {
    let run_dirs: BTreeSet<String> = run_dirs().into_iter().map(|(id, _)| id).collect();

    Ok(netns::list()?
        .iter()
        .filter_map(|name| name.strip_prefix("liqo-lq-")?.split('-').next())
        .filter(|id| !run_dirs.contains(*id))
        .map(str::to_owned)
        .collect())
}

/// Returns the names of a laboratory's namespaces, including the namespaces that gateways created.
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

/// Returns the paths of the sockets that killed processes of `wireguard-go` have left.
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

/// Directory in which gateways pin eBPF programs and maps. Each instance has a subdirectory.
const PIN_DIR: &str = "/sys/fs/bpf/liqo";

/// Time-out until killed processes have ended. A busy machine may schedule a killed process late.
const KILL_DEADLINE: Duration = Duration::from_secs(10);
