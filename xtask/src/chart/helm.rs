//! Calls of `helm` that need neither a cluster nor a network.

use super::{chart, name};
use crate::shell::{Shell, show};
use anyhow::{Result, anyhow};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The Kubernetes laboratory's cache of built programs. The environment variable `LIQO_LAB_CACHE`
/// can name another folder.
const CACHE: &str = "/var/cache/liqo-lab";

/// The Kubernetes version with which charts are rendered. Otherwise the output would depend on
/// helm's default.
const KUBERNETES: &str = "v1.35.0";

/// The namespace with which charts are rendered. It differs from the release's name, so that a
/// template that confuses the two renders a manifest that differs from the golden file.
const NAMESPACE: &str = "liqo-system";

#[derive(Debug)]
pub(super) struct Helm(PathBuf);

impl Helm {
    /// Returns the helm that the Kubernetes laboratory or `cargo xtask liqoctl` has built. Falls
    /// back to an installed helm.
    pub(super) fn find() -> Option<Self> {
        let cache = env::var_os("LIQO_LAB_CACHE").filter(|it| !it.is_empty());
        let cache = cache.map_or_else(|| CACHE.into(), PathBuf::from);
        let mut built = Vec::new();
        for folder in [cache.join("parts"), cache] {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let mut found: Vec<_> = entries.map(|it| it.path().join("bin/helm")).collect();
            found.sort();
            built.extend(found);
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let installed = env::split_paths(&path).map(|folder| folder.join("helm"));

        built
            .into_iter()
            .rev()
            .chain(installed)
            .find(|program| program.is_file())
            .map(Self)
    }

    /// Renders the chart. The inner result is an error if helm refuses the values.
    ///
    /// # Errors
    ///
    /// Returns an error if helm cannot be run.
    pub(super) fn template(&self, shell: &mut Shell, values: &Path) -> Result<Result<String>> {
        let mut command = self.command("template", values);
        command
            .args(["--namespace", NAMESPACE])
            .args(["--kube-version", KUBERNETES]);
        let shown = show(&command);
        let output = shell.output(command)?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            return Ok(Err(anyhow!("`{shown}` failed: {message}")));
        }

        Ok(Ok(text(&output)))
    }

    /// Returns the warnings and errors of `helm lint`.
    ///
    /// # Errors
    ///
    /// Returns an error if helm cannot be run.
    pub(super) fn lint(&self, shell: &mut Shell, values: &Path) -> Result<Vec<String>> {
        let output = shell.output(self.command("lint", values))?;
        let listing = text(&output);
        let faults = listing.lines().filter(|line| is_fault(line));
        let mut faults: Vec<_> = faults
            .map(|line| format!("{}: {line}", name(values)))
            .collect();
        if faults.is_empty() && !output.status.success() {
            faults.push(format!("{}: helm lint failed: {listing}", name(values)));
        }

        Ok(faults)
    }

    fn command(&self, what: &str, values: &Path) -> Command {
        let mut command = Command::new(&self.0);
        command.arg(what);
        if what == "template" {
            command.arg("liqo");
        }
        command
            .args([chart().as_os_str(), OsStr::new("--values")])
            .arg(values)
            // Helm must not use a cluster of the user's kubeconfig.
            .env("KUBECONFIG", "/dev/null");

        command
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_fault(line: &str) -> bool {
    ["[WARNING]", "[ERROR]"]
        .iter()
        .any(|mark| line.starts_with(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn information_is_not_an_error() {
        assert!(!is_fault("[INFO] Chart.yaml: icon is recommended"));
        assert!(is_fault("[WARNING] templates/: object name is wrong"));
    }
}
