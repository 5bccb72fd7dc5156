//! Calls of `helm`, none of which needs a cluster or a network.

use super::{chart, name};
use crate::shell::{Shell, show};
use anyhow::{Result, anyhow};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The laboratory's cache of built programs, unless `LIQO_LAB_CACHE` names another.
const CACHE: &str = "/var/cache/liqo-lab";

/// The Kubernetes version of the renderings, so that they do not depend on helm's own.
const KUBERNETES: &str = "v1.35.0";

/// The namespace of the renderings. It differs from the release's name, so that a template
/// which confuses them is noticed.
const NAMESPACE: &str = "liqo-system";

/// The path of helm.
#[derive(Debug)]
pub(super) struct Helm(PathBuf);

impl Helm {
    /// Returns the helm that the laboratory or `cargo xtask liqoctl` built, else the installed one.
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

    /// Renders the chart; the inner error is helm's.
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

    /// Returns the warnings and errors of helm's lint.
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
            // No cluster of this machine's configuration.
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
    fn information_is_no_fault() {
        assert!(!is_fault("[INFO] Chart.yaml: icon is recommended"));
        assert!(is_fault("[WARNING] templates/: object name is wrong"));
    }
}
