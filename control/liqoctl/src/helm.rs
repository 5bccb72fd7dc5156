//! The program `helm`, which installs and removes the chart.

mod chart;
mod program;
mod release;

pub(crate) use chart::Chart;
pub(crate) use release::{Pending, Release};

use crate::global::Global;
use anyhow::{Context as _, Result, bail};
use program::Program;
use std::ffi::OsString;
use std::process::Stdio;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Name of Liqo's release.
pub(crate) const RELEASE: &str = "liqo";

/// A path at which no folder can be created; helm then works without a cache.
const NO_CACHE: &str = "/dev/null";

/// `helm` with the flags that select the cluster and the namespace.
pub(crate) struct Helm {
    program: Program,
    arguments: Vec<OsString>,
}

impl Helm {
    /// Finds the program.
    ///
    /// # Errors
    ///
    /// Returns an error with the remedy if there is none, or if flags are given that helm
    /// does not have.
    pub(crate) fn find(global: &Global, namespace: &str) -> Result<Self> {
        Ok(Self {
            program: Program::find()?,
            arguments: global_arguments(global, namespace)?,
        })
    }

    /// Runs helm and returns its output.
    ///
    /// # Errors
    ///
    /// Returns an error with helm's message if it fails.
    pub(crate) async fn run(&self, arguments: &[OsString]) -> Result<String> {
        self.run_with_input(arguments, "").await
    }

    /// Runs helm with this standard input and returns its output.
    ///
    /// # Errors
    ///
    /// Returns an error with helm's message if it fails.
    pub(crate) async fn run_with_input(
        &self,
        arguments: &[OsString],
        input: &str,
    ) -> Result<String> {
        let path = self.program.path();
        let context = || format!("failed to run helm ({})", path.display());
        let mut command = Command::new(&path);
        command
            .args(arguments)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if std::env::var_os("HOME").is_none() {
            // Without a home, helm would create its discovery cache in the current folder.
            command.env("KUBECACHEDIR", NO_CACHE);
        }
        let mut child = command.spawn().with_context(context)?;
        let stdin = child.stdin.take();
        let write = async {
            if let Some(mut stdin) = stdin {
                // A helm that fails early does not read its input. Its own message is reported.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let ((), output) = tokio::join!(write, child.wait_with_output());
        let output = output.with_context(context)?;
        if !output.status.success() {
            let command = arguments.first().map(|word| word.to_string_lossy());
            bail!(
                "helm {} failed: {}",
                command.unwrap_or_default(),
                message(&String::from_utf8_lossy(&output.stderr))
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Returns the flags with which helm uses the same cluster as the client.
fn global_arguments(global: &Global, namespace: &str) -> Result<Vec<OsString>> {
    if global.cluster.is_some() || global.user.is_some() {
        bail!(
            "helm has no flags --cluster and --user: add a context with both to the kubeconfig and use --context"
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

/// Returns helm's error message on one line, without its warnings.
fn message(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("WARNING"))
        .collect();
    let joined = lines.join(" ");
    joined.trim_start_matches("Error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        let text = "WARNING: Kubernetes configuration file is group-readable\nError: INSTALLATION FAILED:\n  timed out\n";

        assert_eq!(message(text), "INSTALLATION FAILED: timed out");
    }

    #[test]
    fn helm_gets_kubeconfig_context_and_namespace() {
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
    fn flags_that_helm_lacks_are_refused() {
        let global = Global {
            user: Some("admin".into()),
            ..Global::default()
        };

        assert!(global_arguments(&global, "liqo").is_err());
    }
}
