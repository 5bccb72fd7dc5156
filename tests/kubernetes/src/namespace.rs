//! A Kubernetes namespace for a test.

use crate::cleanup;
use crate::cluster::Cluster;
use crate::wait::{self, Deadline};
use crate::{host, manifest};
use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1;
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde_json::json;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// The value of [`wait::SOON`] as a flag of `kubectl`.
const TIMEOUT: &str = "--timeout=120s";

/// A namespace of a cluster, with methods that run `kubectl` in this namespace.
#[derive(Clone)]
pub struct Namespace {
    cluster: Cluster,
    client: Client,
    name: String,
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster.name(), self.name)
    }
}

impl Namespace {
    /// Creates the namespace `name`, in which privileged pods may run. The namespace is deleted
    /// after the test. A namespace of this name that an earlier test has left is removed first.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server refuses the namespace.
    ///
    /// # Panics
    ///
    /// Panics outside of a test's body, like [`cleanup::defer`].
    pub async fn create(cluster: &Cluster, name: &str) -> Result<Self> {
        let namespace = Self::existing(cluster, name).await?;
        clear(&namespace.client, name).await?;
        let created = namespace.clone();
        let what = format!("namespace {name} of {}", cluster.name());
        cleanup::defer(what, async move || created.delete().await);
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        manifest::apply(&namespace.client, &[object], None).await?;

        Ok(namespace)
    }

    /// Returns the namespace `name`, which the test did not create.
    ///
    /// # Errors
    ///
    /// Returns an error if the cluster's kubeconfig is unusable.
    pub async fn existing(cluster: &Cluster, name: &str) -> Result<Self> {
        Ok(Self {
            cluster: cluster.clone(),
            client: cluster.client().await?,
            name: name.to_owned(),
        })
    }

    /// Returns the name of the namespace, without the cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the cluster of the namespace.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns a client with all rights in the cluster.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Applies the objects of a YAML text in this namespace.
    ///
    /// # Errors
    ///
    /// Returns an error that names the object that the API server refused.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        manifest::apply(&self.client, &manifest::parse(yaml)?, Some(&self.name)).await
    }

    /// Returns a `kubectl` command for this namespace.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.cluster.kubectl();
        command.args(["--namespace", &self.name]).args(args);
        command
    }

    /// Runs `kubectl` in this namespace, and returns the standard output.
    ///
    /// # Errors
    ///
    /// Returns an error with the standard error if `kubectl` fails.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with(args, "").await
    }

    /// Runs `kubectl` with the standard input `input`, and returns the standard output.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Namespace::kubectl`].
    pub async fn kubectl_with(&self, args: &[&str], input: &str) -> Result<String> {
        let mut command = self.command(args);
        let input = input.to_owned();
        tokio::task::spawn_blocking(move || host::checked(&mut command, &input))
            .await
            .context("kubectl's thread has panicked")?
    }

    /// Runs a shell command in a pod, and returns the standard output.
    ///
    /// # Errors
    ///
    /// Returns an error with the standard error if the command fails.
    pub async fn sh(&self, pod: &str, script: &str) -> Result<String> {
        self.kubectl(&["exec", pod, "--", "sh", "-c", script]).await
    }

    /// Starts `kubectl` in the background. Dropping the result kills the process.
    ///
    /// # Errors
    ///
    /// Returns an error if `kubectl` cannot be started.
    pub fn spawn(&self, args: &[&str]) -> Result<Running> {
        Running::start(self.command(args).stdin(Stdio::null()))
    }

    /// Waits until a Deployment, StatefulSet or DaemonSet such as `deployment/web` is rolled out.
    ///
    /// # Errors
    ///
    /// Returns an error if the rollout takes longer than [`wait::SOON`].
    pub async fn rolled_out(&self, what: &str) -> Result<()> {
        self.kubectl(&["rollout", "status", what, TIMEOUT])
            .await
            .map(drop)
    }

    /// Waits for a condition of an object, such as `Ready` of `pod/host`. `condition` may also be
    /// another argument of `kubectl wait --for`, such as `jsonpath={.status.phase}=Failed`.
    ///
    /// # Errors
    ///
    /// Returns an error if the wait takes longer than [`wait::SOON`].
    pub async fn wait(&self, what: &str, condition: &str) -> Result<()> {
        let condition = match condition.contains('=') {
            true => format!("--for={condition}"),
            false => format!("--for=condition={condition}"),
        };
        self.kubectl(&["wait", what, &condition, TIMEOUT])
            .await
            .map(drop)
    }

    /// Returns a field of an object. `path` is a JSONPath such as `{.status.podIP}`.
    ///
    /// # Errors
    ///
    /// Returns an error if the object does not exist.
    pub async fn get(&self, what: &str, path: &str) -> Result<String> {
        let path = format!("jsonpath={path}");
        self.kubectl(&["get", what, "-o", &path]).await
    }

    /// Returns the sorted names of the pods with a label such as `app=web`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Namespace::kubectl`].
    pub async fn pods(&self, label: &str) -> Result<Vec<String>> {
        let path = "jsonpath={.items[*].metadata.name}";
        let names = self
            .kubectl(&["get", "pods", "-l", label, "-o", path])
            .await?;

        Ok(names.split_whitespace().map(str::to_owned).collect())
    }

    /// Deletes the namespace if it exists. Does not wait until the namespace is gone.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server refuses the deletion.
    pub async fn delete(&self) -> Result<()> {
        let options = ["--wait=false", "--ignore-not-found"];
        let words = [["delete", "namespace", &self.name].as_slice(), &options].concat();
        self.kubectl(&words).await.map(drop)
    }
}

/// Deletes a namespace if it exists, and waits until the namespace is gone.
async fn clear(client: &Client, name: &str) -> Result<()> {
    let api: Api<v1::Namespace> = Api::all(client.clone());
    let Some(namespace) = api.get_opt(name).await? else {
        return Ok(());
    };
    if namespace.metadata.deletion_timestamp.is_none() {
        api.delete(name, &DeleteParams::default()).await?;
    }
    let what = format!("the old namespace {name} to be gone");
    wait::until(Deadline::after(wait::SOON), &what, async || {
        let namespace = api.get_opt(name).await?;
        ensure!(namespace.is_none(), "it exists");
        Ok(())
    })
    .await
}

/// A running `kubectl`, or a program that runs `kubectl`. Dropping this value kills the process.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// The lines of the process's standard output and standard error.
    lines: UnboundedReceiver<String>,
}

impl Running {
    /// Starts a command. Its standard input is that of `command`.
    ///
    /// # Errors
    ///
    /// Returns an error if the program cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_owned();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start {}", program.display()))?;
        let (sender, lines) = mpsc::unbounded_channel();
        let out = child.stdout.take().context("standard output is piped")?;
        let err = child.stderr.take().context("standard error is piped")?;
        // Threads read both pipes to their end, since a full pipe would block `kubectl`.
        let other = sender.clone();
        thread::spawn(move || pass_on(out, &sender));
        thread::spawn(move || pass_on(err, &other));

        Ok(Self { child, lines })
    }

    /// Waits for a line of the standard output or standard error that contains `text`, and returns
    /// the line. Discards earlier lines.
    ///
    /// # Errors
    ///
    /// Returns an error with the discarded lines if the process ends first, or if the wait exceeds
    /// `limit`.
    pub async fn line_with(&mut self, text: &str, limit: Duration) -> Result<String> {
        let mut seen = String::new();
        let found = async {
            while let Some(line) = self.lines.recv().await {
                if line.contains(text) {
                    return Some(line);
                }
                seen += &format!("{line}\n");
            }
            None
        };
        match tokio::time::timeout(limit, found).await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => bail!("kubectl ended without printing {text:?}; it printed: {seen}"),
            Err(_) => {
                let seconds = limit.as_secs();
                bail!("kubectl did not print {text:?} within {seconds} s; it printed: {seen}")
            }
        }
    }

    /// Writes to the standard input, which must be piped.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has closed its standard input.
    pub fn write(&mut self, text: &str) -> Result<()> {
        let input = self.child.stdin.as_mut();
        let input = input.context("standard input is not piped")?;
        input.write_all(text.as_bytes())?;

        Ok(())
    }

    /// Waits until the process has ended, and returns its exit status.
    ///
    /// # Errors
    ///
    /// Returns an error if the wait exceeds `limit`.
    pub async fn ended(&mut self, limit: Duration) -> Result<ExitStatus> {
        wait::until(Deadline::after(limit), "a process to end", async || {
            self.child.try_wait()?.context("it runs")
        })
        .await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pass_on(from: impl Read, to: &UnboundedSender<String>) {
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        // The receiver may already be dropped.
        let _ = to.send(String::from_utf8_lossy(&line).into_owned());
    }
}
