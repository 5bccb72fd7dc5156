//! Finds kernel state and files that runs of this project have left on the machine.
//!
//! The names and numbers in `docs/settings.md` identify this project's state in the kernel. A
//! laboratory consists of clusters, nodes and pods in network namespaces. The state of a laboratory
//! that is running or that a user keeps is not a leftover.

use crate::shell::Shell;
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for the kernel to remove namespaces and devices. The kernel removes them in the
/// background.
const SETTLE: Duration = Duration::from_secs(10);

/// Removes the state of crashed laboratories, and returns the ids of these laboratories.
///
/// # Errors
///
/// Returns an error that names the state that cannot be removed.
pub(crate) fn remove_crashed() -> Result<Vec<String>> {
    ::tests::lab::clean_crashed().context("failed to remove the state of a crashed laboratory")
}

/// Returns all state of this project that belongs to no running or kept laboratory.
///
/// # Errors
///
/// Returns an error if `ip` or `nft` cannot be run.
pub(crate) fn observe(shell: &mut Shell) -> Result<BTreeSet<String>> {
    let running = running_laboratories();
    let namespaces = names_in("/run/netns");
    let mut found = BTreeSet::new();

    for name in namespaces.iter().filter(|name| is_ours(name)) {
        found.insert(format!("namespace {name}"));
    }
    for name in names_in("/sys/class/net")
        .iter()
        .filter(|name| is_ours(name))
    {
        found.insert(format!("device {name}"));
    }
    for name in names_in("/sys/fs/bpf/liqo") {
        found.insert(format!("pinned programs /sys/fs/bpf/liqo/{name}"));
    }
    for name in names_in("/run/liqo-lab") {
        found.insert(format!("laboratory files /run/liqo-lab/{name}"));
    }
    for (kind, program, arguments) in TABLES {
        let mut command = Command::new(program);
        command.args(arguments);
        let output = shell.output(command)?;
        let text = String::from_utf8_lossy(&output.stdout);
        found.extend(ours(kind, &text));
    }
    found.extend(processes(&namespaces));

    found.retain(|thing| !running.iter().any(|id| mentions(thing, id)));
    Ok(found)
}

/// Waits until the machine has no more state of this project than `before`. Returns the additional
/// state if it still exists after [`SETTLE`].
///
/// # Errors
///
/// Returns the errors of [`observe`].
pub(crate) fn since(shell: &mut Shell, before: &BTreeSet<String>) -> Result<Vec<String>> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let left: Vec<_> = observe(shell)?.difference(before).cloned().collect();
        if left.is_empty() || Instant::now() > deadline {
            return Ok(left);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The commands that list the state in the network namespace of this process, which contains the
/// machine's own devices.
const TABLES: [(Kind, &str, &[&str]); 4] = [
    (Kind::Rule, "ip", &["rule", "show"]),
    (Kind::Route, "ip", &["route", "show", "table", "all"]),
    (Kind::Nexthop, "ip", &["nexthop", "show"]),
    (Kind::Filter, "nft", &["list", "tables"]),
];

#[derive(Clone, Copy, Debug)]
enum Kind {
    Rule,
    Route,
    Nexthop,
    Filter,
}

/// Returns the lines of a listing that describe state of this project.
fn ours(kind: Kind, listing: &str) -> Vec<String> {
    let (name, mark): (_, fn(&str) -> bool) = match kind {
        Kind::Rule => ("rule", |line| {
            line.starts_with("27761:") || line.ends_with("lookup 27761")
        }),
        Kind::Route => ("route", |line| {
            format!("{line} ").contains(" table 27761 ") || line.contains(" dev liqo")
        }),
        Kind::Nexthop => ("nexthop", |line| {
            format!("{line} ").contains(" proto 108 ") || line.contains(" dev liqo")
        }),
        Kind::Filter => ("filter", |line| {
            line.split_whitespace()
                .nth(2)
                .is_some_and(|table| table.starts_with("liqo"))
        }),
    };

    listing
        .lines()
        .map(str::trim)
        .filter(|line| mark(line))
        .map(|line| format!("{name} {line}"))
        .collect()
}

/// Returns whether a name has a prefix of this project. Clusters of the Kubernetes laboratory are
/// excluded, because a user may keep them.
fn is_ours(name: &str) -> bool {
    let ours = ["lq-", "liqo-"].iter().any(|mark| name.starts_with(mark));
    ours && !name.starts_with("liqo-lab")
}

/// Returns whether a description contains a laboratory's id as a whole word.
fn mentions(thing: &str, id: &str) -> bool {
    thing
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| word == id)
}

/// Returns a description of each process that runs in one of the namespaces.
fn processes(namespaces: &[String]) -> Vec<String> {
    let inodes: Vec<(u64, &String)> = namespaces
        .iter()
        .filter(|name| is_ours(name))
        .filter_map(|name| {
            let metadata = fs::metadata(Path::new("/run/netns").join(name)).ok()?;
            Some((metadata.ino(), name))
        })
        .collect();

    names_in("/proc")
        .into_iter()
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|pid| {
            let inode = fs::metadata(format!("/proc/{pid}/ns/net")).ok()?.ino();
            let (_, namespace) = inodes.iter().find(|(ours, _)| *ours == inode)?;
            let program = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            Some(format!("process {pid} {} in {namespace}", program.trim()))
        })
        .collect()
}

/// Returns the ids of laboratories that are kept, or whose owner process holds the laboratory's
/// lock.
fn running_laboratories() -> Vec<String> {
    let folder = Path::new("/run/liqo-lab");
    names_in(folder)
        .into_iter()
        .filter(|id| {
            let locked = File::open(folder.join(id).join("lock"))
                .is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
            locked || folder.join(id).join("kept").exists()
        })
        .collect()
}

fn names_in(folder: impl AsRef<Path>) -> Vec<String> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_rule_is_recognized_by_its_priority_or_table() {
        let listing = "0:\tfrom all lookup local\n\
            27761:\tfrom all to 10.245.0.0/16 lookup 27761\n\
            32766:\tfrom all lookup main\n";

        assert_eq!(
            ours(Kind::Rule, listing),
            ["rule 27761:\tfrom all to 10.245.0.0/16 lookup 27761"]
        );
    }

    #[test]
    fn routes_without_our_mark_are_ignored() {
        let listing = "default via 10.0.2.2 dev eth0\n\
            10.108.0.0/16 dev eth0 proto kernel table 277610\n\
            unreachable 10.245.0.0/16 table 27761 proto 108 metric 4294967295\n";

        assert_eq!(ours(Kind::Route, listing).len(), 1);
    }

    #[test]
    fn the_table_of_a_cni_is_ignored() {
        let listing = "table ip nat\ntable inet cni-liqo\ntable inet liqo\n";

        assert_eq!(ours(Kind::Filter, listing), ["filter table inet liqo"]);
    }

    #[test]
    fn the_id_of_a_laboratory_is_a_whole_word() {
        assert!(mentions("namespace liqo-lq-abcde-rome", "abcde"));
        assert!(!mentions("namespace lq-abcdef-rome", "abcde"));
    }
}
