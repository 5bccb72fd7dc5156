//! A Kubernetes namespace that a test has for itself.

use crate::cluster::Cluster;
use crate::wait::{self, Deadline};
use crate::{host, manifest};
use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1;
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde_json::json;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// How long what was applied may take to be ready.
const PATIENCE: &str = "--timeout=90s";

/// How long a namespace of an earlier test may take to be gone.
const CLEARANCE: Duration = Duration::from_secs(90);

/// A namespace of a cluster, and shorthands for what one does in it.
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
    /// Makes the namespace `name`, in which privileged pods may run. One of that name,
    /// as a test that failed leaves it, is removed first.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server refuses it.
    pub async fn create(cluster: &Cluster, name: &str) -> Result<Self> {
        let client = cluster.client().await?;
        clear(&client, name).await?;
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        manifest::apply(&client, &[object], None).await?;

        Ok(Self {
            cluster: cluster.clone(),
            client,
            name: name.to_owned(),
        })
    }

    /// Takes the namespace `name`, which something else has made.
    ///
    /// # Errors
    ///
    /// Returns an error if the cluster's kubeconfig is no use.
    pub async fn existing(cluster: &Cluster, name: &str) -> Result<Self> {
        Ok(Self {
            cluster: cluster.clone(),
            client: cluster.client().await?,
            name: name.to_owned(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cluster that it is in.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A client of the cluster.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Applies the objects of a YAML text in it.
    ///
    /// # Errors
    ///
    /// Returns an error that names the object that was refused.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        manifest::apply(&self.client, &manifest::parse(yaml)?, Some(&self.name)).await
    }

    /// A call of `kubectl` in it, to be run or spawned.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.cluster.kubectl();
        command.args(["--namespace", &self.name]).args(args);
        command
    }

    /// Runs `kubectl` in it, and returns what it printed.
    ///
    /// # Errors
    ///
    /// Returns an error with what `kubectl` said if it fails.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with(args, "").await
    }

    /// Runs `kubectl` with an input.
    ///
    /// # Errors
    ///
    /// As [`Namespace::kubectl`].
    pub async fn kubectl_with(&self, args: &[&str], input: &str) -> Result<String> {
        let mut command = self.command(args);
        let input = input.to_owned();
        tokio::task::spawn_blocking(move || host::checked(&mut command, &input))
            .await
            .context("kubectl's thread has panicked")?
    }

    /// Runs a shell command in a pod, and returns what it printed.
    ///
    /// # Errors
    ///
    /// Returns an error with what the command said if it fails.
    pub async fn sh(&self, pod: &str, script: &str) -> Result<String> {
        self.kubectl(&["exec", pod, "--", "sh", "-c", script]).await
    }

    /// Starts `kubectl` and goes on; it ends when the result is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be started.
    pub fn spawn(&self, args: &[&str]) -> Result<Running> {
        Running::start(&mut self.command(args))
    }

    /// Waits until a Deployment, StatefulSet or DaemonSet is rolled out; `what` is as in
    /// `deployment/web`.
    ///
    /// # Errors
    ///
    /// Returns an error if that takes longer than a minute and a half.
    pub async fn rolled_out(&self, what: &str) -> Result<()> {
        self.kubectl(&["rollout", "status", what, PATIENCE])
            .await
            .map(drop)
    }

    /// Waits for a condition of an object, as in `Ready` of `pod/host`, or for anything
    /// else that `kubectl wait --for` knows, as in `jsonpath={.status.phase}=Failed`.
    ///
    /// # Errors
    ///
    /// Returns an error if that takes longer than a minute and a half.
    pub async fn wait(&self, what: &str, condition: &str) -> Result<()> {
        let condition = match condition.contains('=') {
            true => format!("--for={condition}"),
            false => format!("--for=condition={condition}"),
        };
        self.kubectl(&["wait", what, &condition, PATIENCE])
            .await
            .map(drop)
    }

    /// Reads a field of an object, by a JSONPath such as `{.status.podIP}`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such object.
    pub async fn get(&self, what: &str, path: &str) -> Result<String> {
        let path = format!("jsonpath={path}");
        self.kubectl(&["get", what, "-o", &path]).await
    }

    /// The names of the pods with a label such as `app=web`, in order.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server does not answer.
    pub async fn pods(&self, label: &str) -> Result<Vec<String>> {
        let path = "jsonpath={.items[*].metadata.name}";
        let names = self
            .kubectl(&["get", "pods", "-l", label, "-o", path])
            .await?;

        Ok(names.split_whitespace().map(str::to_owned).collect())
    }

    /// Removes the namespace, without waiting until it is gone.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server refuses.
    pub async fn delete(&self) -> Result<()> {
        self.kubectl(&["delete", "namespace", &self.name, "--wait=false"])
            .await
            .map(drop)
    }
}

/// Removes a namespace, and waits until it is gone.
async fn clear(client: &Client, name: &str) -> Result<()> {
    let api: Api<v1::Namespace> = Api::all(client.clone());
    let Some(namespace) = api.get_opt(name).await? else {
        return Ok(());
    };
    if namespace.metadata.deletion_timestamp.is_none() {
        api.delete(name, &DeleteParams::default()).await?;
    }
    let what = format!("the old namespace {name} to be gone");
    wait::until(Deadline::after(CLEARANCE), &what, async || {
        let namespace = api.get_opt(name).await?;
        ensure!(namespace.is_none(), "it is there");
        Ok(())
    })
    .await
}

/// A `kubectl` that runs; it ends when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// What it says, line by line.
    lines: UnboundedReceiver<String>,
}

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("failed to start kubectl")?;
        let (said, lines) = mpsc::unbounded_channel();
        let out = child.stdout.take().context("standard output is piped")?;
        let err = child.stderr.take().context("standard error is piped")?;
        // To the end, whoever listens: a pipe that nobody reads ends who writes to it.
        let other = said.clone();
        thread::spawn(move || pass_on(out, &said));
        thread::spawn(move || pass_on(err, &other));

        Ok(Self { child, lines })
    }

    /// Waits until it says a line that contains `text`, on its standard output or its
    /// standard error, and returns the line. Lines that were looked at are gone.
    ///
    /// # Errors
    ///
    /// Returns an error with all that it said if it ends before, or after `limit`.
    pub async fn line_with(&mut self, text: &str, limit: Duration) -> Result<String> {
        let mut seen = String::new();
        let look = async {
            while let Some(line) = self.lines.recv().await {
                if line.contains(text) {
                    return Some(line);
                }
                seen += &format!("{line}\n");
            }
            None
        };
        match tokio::time::timeout(limit, look).await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => bail!("kubectl ended without {text:?}; it said: {seen}"),
            Err(_) => {
                let seconds = limit.as_secs();
                bail!("kubectl did not say {text:?} within {seconds} s; it said: {seen}")
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pass_on(from: impl Read, to: &UnboundedSender<String>) {
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        // Nobody may listen any more.
        let _ = to.send(String::from_utf8_lossy(&line).into_owned());
    }
}
