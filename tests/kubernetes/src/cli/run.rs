//! The commands `exec`, `logs`, `load`, `kubectl` and `helm`.

use super::{Rest, replace_process};
use crate::cluster::Cluster;
use crate::node::Node;
use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

/// Runs a command inside a node.
#[derive(Args, Debug)]
pub(super) struct Exec {
    /// Name of the node, such as rome-worker.
    #[arg(value_name = "NODE")]
    pub(super) node: String,

    /// The program to run.
    #[arg(value_name = "CMD")]
    pub(super) program: String,

    #[command(flatten)]
    pub(super) rest: Rest,
}

impl Exec {
    pub(super) fn run(self) -> anyhow::Error {
        match Node::find(&self.node).and_then(|node| node.command(&self.program)) {
            Ok(mut command) => {
                command.args(self.rest.args);
                replace_process(command)
            }
            Err(error) => error,
        }
    }
}

/// Shows the log of a component of a node. Without a component, lists the components.
#[derive(Args, Debug)]
pub(super) struct Logs {
    /// Name of the node, such as rome-worker.
    #[arg(value_name = "NODE")]
    pub(super) node: String,

    /// Name of the component, such as kubelet or containerd. `init` is process 1.
    #[arg(value_name = "COMPONENT")]
    component: Option<String>,

    /// Follow the log.
    #[arg(long, short)]
    follow: bool,

    /// Number of earlier lines to show first.
    #[arg(long, value_name = "LINES", default_value = "200")]
    tail: u32,
}

impl Logs {
    pub(super) fn run(self) -> anyhow::Error {
        match self.command() {
            Ok(command) => replace_process(command),
            Err(error) => error,
        }
    }

    fn command(&self) -> Result<Command> {
        let node = Node::find(&self.node)?;
        let mut known: Vec<_> = fs::read_dir(node.logs())
            .context("the node has no logs")?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".log").map(str::to_owned))
            .collect();
        known.sort();
        let path = match self.component.as_deref() {
            Some("init") => node.folder().join("init.log"),
            Some(name) if known.iter().any(|known| known == name) => {
                node.logs().join(format!("{name}.log"))
            }
            other => {
                let problem =
                    other.map_or("name a component".to_owned(), |it| format!("no {it:?}"));
                return Err(anyhow!("{problem}: there are init, {}", known.join(", ")));
            }
        };
        let mut command = Command::new("tail");
        command.arg(format!("--lines={}", self.tail));
        if self.follow {
            command.arg("--follow=name");
        }
        command.arg(path);

        Ok(command)
    }
}

/// Loads an image into all nodes of a cluster.
#[derive(Args, Debug)]
pub(super) struct Load {
    /// Name of the cluster.
    #[arg(value_name = "NAME")]
    pub(super) name: String,

    /// The image, as an OCI or Docker archive such as those of `cargo xtask image`.
    #[arg(value_name = "IMAGE")]
    pub(super) archive: PathBuf,
}

impl Load {
    pub(super) fn run(&self) -> Result<()> {
        let cluster = Cluster::find(&self.name)?;
        cluster.load(&self.archive)?;
        eprintln!(
            "    {} is loaded into all nodes of {}",
            self.archive.display(),
            self.name
        );

        Ok(())
    }
}

impl Cluster {
    /// Loads the image of an OCI or Docker archive into all nodes.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is no archive, or if a node rejects the image.
    pub fn load(&self, archive: &std::path::Path) -> Result<()> {
        let nodes = self.nodes();
        let results: Vec<Result<()>> = thread::scope(|scope| {
            let threads: Vec<_> = nodes
                .iter()
                .map(|node| scope.spawn(|| load(node, archive)))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|_| Err(anyhow!("a thread has panicked")))
                })
                .collect()
        });

        results.into_iter().collect()
    }
}

fn load(node: &Node, archive: &std::path::Path) -> Result<()> {
    let file = File::open(archive)
        .with_context(|| format!("failed to open the image {}", archive.display()))?;
    let mut command = node.command("ctr")?;
    command
        .args(["--namespace", "k8s.io", "images", "import", "--local", "-"])
        .stdin(file)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let output = command.output().context("failed to start nsenter")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(anyhow!(
            "{} refused {}: {}",
            node.name(),
            archive.display(),
            said.trim()
        ));
    }

    Ok(())
}

/// Runs a program as the administrator of a cluster.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(super) struct Tool {
    /// Name of the cluster.
    #[arg(value_name = "NAME")]
    pub(super) name: String,

    #[command(flatten)]
    pub(super) rest: Rest,
}

impl Tool {
    pub(super) fn run(self, tool: &str) -> anyhow::Error {
        let cluster = match Cluster::find(&self.name) {
            Ok(cluster) => cluster,
            Err(error) => return error,
        };
        let mut command = match tool {
            "helm" => cluster.helm(),
            _ => cluster.kubectl(),
        };
        command.args::<Vec<OsString>, _>(self.rest.args);
        replace_process(command)
    }
}
