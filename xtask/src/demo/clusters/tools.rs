//! Calls of the programs that the demo runs: the Kubernetes laboratory, `liqoctl` and `kubectl`.

use super::{MILAN, ROME, build};
use crate::shell::{Shell, show};
use crate::{cluster, console, workspace};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug)]
pub(super) struct Tools {
    /// The program of the Kubernetes laboratory.
    cluster: PathBuf,
    liqoctl: PathBuf,
    helm: PathBuf,
}

impl Tools {
    /// Finds the programs. Builds the laboratory's program and `liqoctl` first unless `was_built`
    /// is true.
    ///
    /// # Errors
    ///
    /// Returns an error if a program is missing or does not build.
    pub(super) fn new(shell: &mut Shell, was_built: bool) -> Result<Self> {
        let debug = workspace::target().join("debug");
        let cluster = if was_built {
            debug.join("cluster")
        } else {
            build(shell)?
        };
        let artifacts = cluster::artifacts(shell, &cluster, &[])?;

        Ok(Self {
            cluster,
            liqoctl: debug.join("liqoctl"),
            helm: artifacts.join("bin/helm"),
        })
    }

    /// Returns the versions of the kernel and of `liqoctl`, by name.
    ///
    /// # Errors
    ///
    /// Returns an error if a program does not start.
    pub(super) fn versions(&self, shell: &mut Shell) -> Result<BTreeMap<String, String>> {
        let mut version = self.liqoctl(&["version", "--client"]);
        version.env_remove("KUBECONFIG");
        let mut kernel = Command::new("uname");
        kernel.arg("-r");

        [("liqoctl", version), ("kernel", kernel)]
            .into_iter()
            .map(|(name, command)| Ok((name.to_owned(), text(shell, command)?.trim().to_owned())))
            .collect()
    }

    /// Returns a call of the Kubernetes laboratory's program.
    pub(super) fn laboratory(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.cluster);
        command.args(words);
        command
    }

    /// Returns a call of `liqoctl` that uses helm from the laboratory's cache.
    pub(super) fn liqoctl(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.liqoctl);
        command.args(words).env("LIQOCTL_HELM", &self.helm);
        command
    }

    /// Returns the path of a cluster's kubeconfig.
    ///
    /// # Errors
    ///
    /// Returns an error if the cluster does not exist.
    pub(super) fn kubeconfig(&self, shell: &mut Shell, name: &str) -> Result<String> {
        let path = text(shell, self.laboratory(&["kubeconfig", name]))?;

        Ok(path.trim().to_owned())
    }

    /// Runs `kubectl` with the kubeconfig of the cluster `name`, and returns its standard output.
    ///
    /// # Errors
    ///
    /// Returns an error with the standard error of `kubectl` if `kubectl` fails.
    pub(super) fn kubectl(&self, shell: &mut Shell, name: &str, words: &[&str]) -> Result<String> {
        let words = [&["kubectl", name], words].concat();

        text(shell, self.laboratory(&words))
    }

    /// Prints a command as a user would type it, runs the command, and prints its output.
    ///
    /// # Errors
    ///
    /// Returns an error if the command fails. The command's standard error is already on the
    /// terminal.
    pub(super) fn show(&self, shell: &mut Shell, mut command: Command) -> Result<String> {
        let shown = self.typed(&command);
        console::note(format_args!("$ {shown}"));
        command.env("NO_COLOR", "1");
        let output = shell.capture(command)?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        for line in printed.lines() {
            console::note(line.trim_end());
        }
        if !output.status.success() {
            bail!("`{shown}` failed: {}", output.status);
        }

        Ok(printed)
    }

    /// Formats a command as a user would type it in the checkout.
    fn typed(&self, command: &Command) -> String {
        let program = if command.get_program() == self.cluster {
            "cargo xtask cluster".to_owned()
        } else {
            relative(Path::new(command.get_program()))
        };
        let words = command.get_args().map(|word| word.to_string_lossy());

        words.fold(program, |typed, word| typed + " " + &word)
    }

    /// Prints commands with which a user can inspect the kept clusters.
    ///
    /// # Errors
    ///
    /// Returns an error if a cluster does not exist.
    pub(super) fn suggest_commands(&self, shell: &mut Shell) -> Result<()> {
        let rome = self.kubeconfig(shell, ROME)?;
        let milan = self.kubeconfig(shell, MILAN)?;
        let liqoctl = relative(&self.liqoctl);

        console::step("The clusters stay up; try");
        for line in [
            format!("{liqoctl} info --kubeconfig {rome}"),
            format!("{liqoctl} info peer --kubeconfig {rome}"),
            format!("{liqoctl} test network --kubeconfig {rome} --remote-kubeconfigs {milan} --rm"),
            format!("cargo xtask cluster kubectl {ROME} get configurations,connections -A"),
            format!("cargo xtask cluster kubectl {MILAN} -n liqo get pods -o wide"),
            format!("cargo xtask cluster exec {ROME}-worker ip route show table 27761"),
            "cargo xtask demo --clean      # removes the clusters".to_owned(),
        ] {
            console::note(line);
        }

        Ok(())
    }
}

/// Returns a path relative to the checkout if the path is inside of the checkout.
fn relative(path: &Path) -> String {
    let short = path.strip_prefix(workspace::root()).unwrap_or(path);

    short.display().to_string()
}

/// Runs a command and returns its standard output. Fails if the command fails.
fn text(shell: &mut Shell, command: Command) -> Result<String> {
    let shown = show(&command);
    let output = shell.output(command)?;
    if !output.status.success() {
        bail!(
            "`{shown}` failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }

    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` printed no text"))
}
