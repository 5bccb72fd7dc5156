//! The program `helm`, which installs and removes the chart.

mod chart;
mod release;

pub(crate) use chart::Chart;
pub(crate) use release::{Pending, Release};

use crate::cli::Global;
use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::process::Command;

/// Name of Liqo's release.
pub(crate) const RELEASE: &str = "liqo";

/// Names the program if it is not the `helm` of PATH.
const ENVIRONMENT: &str = "LIQOCTL_HELM";

/// `helm`, pointed at a cluster and a namespace.
pub(crate) struct Helm {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Helm {
    /// Finds the program.
    ///
    /// # Errors
    ///
    /// Returns an error with its cure if there is none, or if flags were given that it
    /// cannot be told.
    pub(crate) fn find(global: &Global, namespace: &str) -> Result<Self> {
        let program = match std::env::var_os(ENVIRONMENT) {
            Some(path) => PathBuf::from(path),
            None => in_path("helm", std::env::var_os("PATH").as_deref()).with_context(|| {
                format!("the program helm is not in PATH: install it (https://helm.sh/docs/intro/install) or name it in the environment variable {ENVIRONMENT}")
            })?,
        };
        Ok(Self {
            program,
            arguments: global_arguments(global, namespace)?,
        })
    }

    /// Runs it and returns what it printed.
    ///
    /// # Errors
    ///
    /// Returns an error with what it said if it fails.
    pub(crate) async fn run(&self, arguments: &[OsString]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(arguments)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .output()
            .await
            .with_context(|| format!("failed to run {}", self.program.display()))?;
        if !output.status.success() {
            let command = arguments.first().map(|word| word.to_string_lossy());
            bail!(
                "helm {} failed: {}",
                command.unwrap_or_default(),
                said(&String::from_utf8_lossy(&output.stderr))
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Returns the flags that point helm at the same cluster as the client.
fn global_arguments(global: &Global, namespace: &str) -> Result<Vec<OsString>> {
    if global.cluster.is_some() || global.user.is_some() {
        bail!(
            "helm can be told a context but no --cluster or --user: make a context with both in the kubeconfig and use --context"
        );
    }
    let mut arguments: Vec<OsString> = vec!["--namespace".into(), namespace.into()];
    if let Some(path) = &global.kubeconfig {
        arguments.extend(["--kubeconfig".into(), path.into()]);
    }
    if let Some(context) = &global.context {
        arguments.extend(["--kube-context".into(), context.into()]);
    }
    Ok(arguments)
}

/// Returns what helm said, without its warnings and on one line.
fn said(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("WARNING"))
        .collect();
    let joined = lines.join(" ");
    joined.trim_start_matches("Error: ").to_owned()
}

fn in_path(program: &str, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    std::env::split_paths(path?)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        let text = "WARNING: Kubernetes configuration file is group-readable\nError: INSTALLATION FAILED:\n  timed out\n";

        assert_eq!(said(text), "INSTALLATION FAILED: timed out");
    }

    #[test]
    fn helm_works_on_the_same_cluster() {
        let global = Global {
            kubeconfig: Some("rome.yaml".into()),
            context: Some("rome".into()),
            ..Global::default()
        };

        assert_eq!(
            global_arguments(&global, "liqo").unwrap(),
            [
                "--namespace",
                "liqo",
                "--kubeconfig",
                "rome.yaml",
                "--kube-context",
                "rome"
            ]
        );
    }

    #[test]
    fn what_helm_cannot_be_told_is_refused() {
        let global = Global {
            user: Some("admin".into()),
            ..Global::default()
        };

        assert!(global_arguments(&global, "liqo").is_err());
    }

    #[test]
    fn a_program_is_looked_for_in_path() {
        assert_eq!(in_path("no-such-program", Some("/bin".as_ref())), None);
        assert_eq!(
            in_path("sh", Some("/none:/bin".as_ref())),
            Some("/bin/sh".into())
        );
        assert_eq!(in_path("sh", None), None);
    }
}
