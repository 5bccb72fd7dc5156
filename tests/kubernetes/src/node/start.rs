//! The command `node-start`, which creates the namespaces of a node and starts its process 1.
//!
//! The command runs as a separate process because it moves itself into cgroups and a network
//! namespace, and out of the terminal's session.

use super::Plan;
use crate::cgroup::Layout;
use crate::underlay::node_netns;
use anyhow::{Context as _, Result};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::setsid;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

/// Starts the node with the folder `folder`, and prints the id of its process 1.
///
/// # Errors
///
/// Returns an error that names the namespace that could not be entered or created.
pub fn run(folder: &Path) -> Result<()> {
    let plan = fs::read_to_string(folder.join("plan.json")).context("failed to read the plan")?;
    let plan: Plan = serde_json::from_str(&plan).context("the plan is damaged")?;

    // The call fails only if this process already leads a process group (`man 2 setsid`).
    let _ = setsid();
    Layout::detect()?.join(&plan.node.name)?;
    let netns = format!("/run/netns/{}", node_netns(&plan.node.name));
    let netns = File::open(&netns).with_context(|| format!("failed to open {netns}"))?;
    setns(netns, CloneFlags::CLONE_NEWNET).context("failed to enter the network namespace")?;
    unshare(
        CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWCGROUP,
    )
    .context("failed to create namespaces: that needs CAP_SYS_ADMIN")?;

    let log = File::create(folder.join("init.log")).context("failed to create init.log")?;
    let errors = log.try_clone().context("failed to share init.log")?;
    let init = Command::new("/proc/self/exe")
        .arg("node-init")
        .arg(folder)
        .env_clear()
        .env("PATH", super::root::PATH)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .context("failed to start process 1")?;
    println!("{}", init.id());

    Ok(())
}
