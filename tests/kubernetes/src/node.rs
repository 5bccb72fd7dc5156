//! A node is a set of Linux namespaces with a small root directory.
//!
//! ```text
//! up -> start -> `node-start`: joins the cgroups and the network namespace,
//!                unshares the other namespaces, starts `node-init` and ends
//!                   -> `node-init`, process 1: mounts, pivot_root, settings,
//!                      then runs and restarts containerd, kubelet and so on
//! ```

pub mod components;
pub mod control;

mod config;
mod init;
mod root;
mod start;
mod supervise;

pub use init::run as run_init;
pub use start::run as run_start;

use crate::cgroup::Layout;
use crate::spec::{NodeSpec, Spec};
use crate::{host, place, underlay};
use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The time within which the kernel must end all processes of a node.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// The time within which process 1 must set up a node.
const SETUP_TIMEOUT: Duration = Duration::from_secs(20);

/// The input of process 1 of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The spec of the cluster that contains the node.
    pub spec: Spec,
    /// The spec of the node itself.
    pub node: NodeSpec,
    /// The specs of all nodes in the cluster. The control plane is the first.
    pub nodes: Vec<NodeSpec>,
    /// The folder of the programs, as a path on the machine.
    pub artifacts: PathBuf,
    /// The folder of the node, as a path on the machine.
    pub folder: PathBuf,
    /// The control socket of process 1, as a path on the machine.
    pub socket: PathBuf,
    /// The first three octets of the addresses that load balancers get.
    pub load_balancers: [u8; 3],
}

impl Plan {
    /// Returns the node's root directory, as a path on the machine.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }
}

/// A handle of a node. The node need not run.
#[derive(Clone, Debug)]
pub struct Node {
    name: String,
    folder: PathBuf,
}

impl Node {
    /// Returns the handle of the node `name` in `cluster`.
    pub fn of(cluster: &str, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            folder: place::clusters().join(cluster).join("nodes").join(name),
        }
    }

    /// Finds the node `name` of any cluster.
    ///
    /// # Errors
    ///
    /// Returns an error that lists the existing nodes.
    pub fn find(name: &str) -> Result<Self> {
        let mut known = Vec::new();
        for cluster in crate::cluster::names()? {
            for node in Self::all(&cluster)? {
                if node.name == name {
                    return Ok(node);
                }
                known.push(node.name);
            }
        }
        if known.is_empty() {
            bail!("no node {name:?}: no cluster is up");
        }
        bail!("no node {name:?}: there are {}", known.join(", "))
    }

    /// Returns all nodes of `cluster` that have a folder, sorted by name.
    ///
    /// # Errors
    ///
    /// Returns an error if the cluster's folder cannot be read.
    pub fn all(cluster: &str) -> Result<Vec<Self>> {
        let folder = place::clusters().join(cluster).join("nodes");
        let mut nodes: Vec<_> = match fs::read_dir(&folder) {
            Ok(entries) => entries
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .map(|name| Self::of(cluster, &name))
                .collect(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("failed to read {}", folder.display()));
            }
        };
        nodes.sort_by(|a, b| a.name.cmp(&b.name));

        Ok(nodes)
    }

    /// Returns the node's name, which is also its host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder of the node's state, as a path on the machine.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the node's root directory, as a path on the machine.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// Returns the folder with the logs of the node's components, as a path on the machine.
    pub fn logs(&self) -> PathBuf {
        self.root().join("var/log/lab")
    }

    /// Returns the plan that the node was last started with.
    ///
    /// # Errors
    ///
    /// Returns an error if the node was never started.
    pub fn plan(&self) -> Result<Plan> {
        let path = self.folder.join("plan.json");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    /// Returns the id of process 1 on the machine. Returns `None` if the node does not run.
    pub fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.folder.join("pid")).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        let pid: i32 = pid.parse().ok()?;
        // After the node has ended, another process may have the same id.
        (started_at(pid)? == started).then_some(Pid::from_raw(pid))
    }

    /// Starts the node if it does not run, and returns whether it was started.
    ///
    /// # Errors
    ///
    /// Returns an error with the log of process 1.
    pub fn start(&self, plan: &Plan) -> Result<bool> {
        if self.pid().is_some() {
            // The node's device may have been created again, and other nodes may have joined. In
            // both cases, routes are missing.
            host::ip(
                Some(&underlay::node_netns(&self.name)),
                &config::routes(plan),
            )?;
            self.write_plan(plan)?;
            return Ok(false);
        }
        // The kubelet fails if empty cgroups of an earlier run exist.
        Layout::detect()?.remove(&self.name);
        root::prepare(plan)?;
        self.write_plan(plan)?;

        let mut command = Command::new(place::program());
        command.arg("node-start").arg(&self.folder);
        let pid = host::checked(&mut command, "")
            .with_context(|| format!("node {} does not start", self.name))?;
        let pid: i32 = pid
            .trim()
            .parse()
            .context("`node-start` printed no number")?;
        let started = started_at(pid).with_context(|| {
            let log = fs::read_to_string(self.folder.join("init.log")).unwrap_or_default();
            format!("process 1 of {} ended at once: {}", self.name, log.trim())
        })?;
        fs::write(self.folder.join("pid"), format!("{pid} {started}\n"))
            .context("failed to write a node's process id")?;

        Ok(true)
    }

    /// Removes the routes to a node that has left the cluster, from the running node and from its
    /// plan.
    ///
    /// # Errors
    ///
    /// Returns an error if the node does not run.
    pub fn remove_routes_to(&self, left: &NodeSpec) -> Result<()> {
        let mut plan = self.plan()?;
        plan.nodes.retain(|node| node.name != left.name);
        self.write_plan(&plan)?;
        let v6 = left.pod_cidr_v6.map(|cidr| format!("route delete {cidr}"));
        let v4 = format!("route delete {}", left.pod_cidr);
        let routes: Vec<_> = [v4].into_iter().chain(v6).collect();

        host::ip(Some(&underlay::node_netns(&self.name)), &routes)
    }

    /// Writes the plan, which process 1 reads at the next start.
    fn write_plan(&self, plan: &Plan) -> Result<()> {
        let text = serde_json::to_string_pretty(plan).context("a plan is JSON")?;
        fs::write(self.folder.join("plan.json"), text).context("failed to write a node's plan")
    }

    /// Starts the node again, with its data, after [`Node::kill`] or [`Node::stop`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Node::start`].
    pub fn restart(&self) -> Result<()> {
        let plan = self.plan()?;
        let number = plan.node.ip.octets()[2];
        if let Some(underlay) = underlay::Underlay::existing()? {
            underlay.attach_node(number, &plan.node)?;
        }
        self.start(&plan)?;
        self.wait_until_set_up()
    }

    /// Waits until process 1 has set up the node and has begun to start components.
    ///
    /// # Errors
    ///
    /// Returns an error with the log of process 1 if it ends or times out.
    pub fn wait_until_set_up(&self) -> Result<()> {
        let deadline = Instant::now() + SETUP_TIMEOUT;
        loop {
            let Err(error) = control::send(&self.name, &control::Request::Status) else {
                return Ok(());
            };
            if self.pid().is_none() || Instant::now() > deadline {
                let log = fs::read_to_string(self.folder.join("init.log")).unwrap_or_default();
                return Err(error.context(format!("{} is not set up: {}", self.name, log.trim())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the node like a power failure, and waits until its processes are gone.
    ///
    /// # Errors
    ///
    /// Returns an error if a process of the node does not end.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::SIGKILL)
    }

    /// Shuts the node down, and waits until its processes are gone. The shutdown stops the
    /// components in order.
    ///
    /// # Errors
    ///
    /// Returns an error if a process of the node does not end.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Sends a signal to process 1. When process 1 ends, the kernel kills all processes of its PID
    /// namespace.
    fn signal(&self, signal: Signal) -> Result<()> {
        let Some(pid) = self.pid() else {
            return Ok(());
        };
        kill(pid, signal).with_context(|| format!("failed to end {}", self.name))?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self.pid().is_some() {
            if Instant::now() > deadline {
                bail!("process {pid}, node {}, does not end", self.name);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // Removing the network namespace also removes its devices.
        underlay::remove_netns(&underlay::node_netns(&self.name))
    }

    /// Kills the node, and removes its folder and its network namespace.
    ///
    /// # Errors
    ///
    /// Returns an error that names the part that could not be removed.
    pub fn remove(&self) -> Result<()> {
        self.kill()?;
        underlay::remove_netns(&underlay::node_netns(&self.name))?;
        Layout::detect()?.remove(&self.name);
        // The control socket does not exist if the node never started.
        let _ = fs::remove_file(control::socket(&self.name));
        if self.folder.exists() {
            // The option keeps `rm` from following mounts.
            let folder = self.folder.as_os_str();
            let options = ["-rf", "--one-file-system", "--"].map(std::ffi::OsStr::new);
            host::run("rm", &[options.as_slice(), &[folder]].concat())?;
        }

        Ok(())
    }

    /// Returns a command that runs inside the node.
    ///
    /// # Errors
    ///
    /// Returns an error if the node does not run.
    pub fn command(&self, program: &str) -> Result<Command> {
        let Some(pid) = self.pid() else {
            bail!("node {} does not run", self.name);
        };
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &pid.to_string()])
            .args([
                "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--root", "--wd",
            ])
            .args(["env", "--ignore-environment", "HOME=/root"])
            .arg(format!("PATH={}", root::PATH))
            .arg(format!(
                "TERM={}",
                std::env::var("TERM").unwrap_or_default()
            ))
            .arg("CONTAINERD_NAMESPACE=k8s.io")
            .arg("KUBECONFIG=/etc/kubernetes/pki/admin.conf")
            .arg(program);

        Ok(command)
    }

    /// Runs a program inside the node, and returns the standard output.
    ///
    /// # Errors
    ///
    /// Returns an error with the standard error if the program fails.
    pub fn exec(&self, program: &str, args: &[&str]) -> Result<String> {
        host::checked(self.command(program)?.args(args), "")
    }
}

/// Returns the start time of a process. Returns `None` if the process is gone or a zombie.
fn started_at(pid: i32) -> Option<String> {
    start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Returns the start time of a process in clock ticks since boot, which is field 22 of
/// `/proc/PID/stat` (`man 5 proc`). Returns `None` if the process is a zombie.
pub(crate) fn start_time(stat: &str) -> Option<String> {
    // The second field is the process name, which may contain spaces and parentheses.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }

    fields.nth(18).map(str::to_owned)
}
