//! Writes the state of a laboratory to files after a failure.

use super::Lab;
use super::binaries::target_dir;
use super::netns::Netns;
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

impl Lab {
    /// Writes a diagnosis, and adds the path of its directory to `error`.
    pub(super) fn diagnosed(&self, error: anyhow::Error) -> anyhow::Error {
        match self.diagnose() {
            Ok(directory) => error.context(format!("diagnosis in {}", directory.display())),
            Err(failure) => error.context(format!("and diagnosis failed: {failure:#}")),
        }
    }

    /// Writes statuses, kernel state and logs to the directory `target/lab/<id>`, and returns the
    /// directory's path.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be written.
    pub fn diagnose(&self) -> Result<PathBuf> {
        let directory = target_dir().join("lab").join(self.identity.id());
        fs::create_dir_all(&directory)
            .with_context(|| format!("failed to create {directory:?}"))?;

        copy_tree(&self.log_dir(), &directory)?;
        for cluster in self.clusters.values() {
            let name = cluster.name();
            let fabric = self.fabric_path(name);
            if fabric.exists() {
                fs::copy(fabric, directory.join(format!("{name}-fabric.yaml")))
                    .context("failed to copy a fabric file")?;
            }

            let mut report = describe(&cluster.edge);
            for (index, node) in cluster.nodes.iter().enumerate() {
                report += &describe(&node.netns);
                report += &result("route-agent status", self.agent_status(name, index + 1));
            }
            for (index, gateway) in cluster.gateways.iter().enumerate() {
                report += &describe(&gateway.pod.netns);
                report += &self.describe_inner(&self.gateway_instance(name, index + 1));
                report += &result("gateway status", self.gateway_status(name, index + 1));
            }
            for pod in &cluster.pods {
                report += &describe(&pod.netns);
            }
            fs::write(directory.join(format!("{name}.txt")), report)
                .context("failed to write a diagnosis")?;
        }

        Ok(directory)
    }

    /// Returns the links and addresses in the namespace that a gateway has created for its
    /// datapath.
    fn describe_inner(&self, instance: &str) -> String {
        let path = format!("/run/netns/liqo-{instance}");
        let mut report = format!("\n##### {path}\n");
        for command in ["-d -s link show", "addr show"] {
            let output = std::process::Command::new("ip")
                .args(["-n", &format!("liqo-{instance}")])
                .args(command.split(' '))
                .output();
            let text = output.map_or_else(
                |error| error.to_string(),
                |output| String::from_utf8_lossy(&output.stdout).into_owned(),
            );
            let _ = writeln!(report, "$ ip {command}\n{text}");
        }

        report
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        match self.diagnose() {
            Ok(directory) => eprintln!("diagnosis in {}", directory.display()),
            Err(error) => eprintln!("failed to write a diagnosis: {error:#}"),
        }
    }
}

fn describe(netns: &Netns) -> String {
    let mut report = format!("\n##### {}\n", netns.name());
    for command in COMMANDS {
        let mut words = command.split(' ');
        let program = words.next().unwrap_or_default();
        let args: Vec<&str> = words.collect();
        let text = match netns.output(program, &args, "") {
            Ok(output) => {
                let [out, err] = [output.stdout, output.stderr];
                String::from_utf8_lossy(&[out, err].concat()).into_owned()
            }
            Err(error) => format!("{error:#}\n"),
        };
        if !text.trim().is_empty() {
            let _ = writeln!(report, "$ {command}\n{text}");
        }
    }

    report
}

fn result(title: &str, outcome: Result<serde_json::Value>) -> String {
    let text = match outcome {
        Ok(status) => format!("{status:#}"),
        Err(error) => format!("{error:#}"),
    };
    format!("$ {title}\n{text}\n")
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("failed to list {from:?}"))? {
        let entry = entry.context("failed to list")?;
        if entry.path().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).context("failed to copy a log")?;
        }
    }

    Ok(())
}

/// Commands that print the state of a namespace.
const COMMANDS: [&str; 9] = [
    "ip -s link show",
    "ip addr show",
    "ip rule show",
    "ip route show table all",
    "ip nexthop show",
    "ip neigh show",
    "nft list ruleset",
    "nstat -as",
    "cat /proc/net/nf_conntrack",
];
