//! Tools of Kubernetes and Liqo with offloaded pods: `kubectl top`, `kubectl debug`, `kubectl drain`, HorizontalPodAutoscalers and
//! `liqoctl info pod`, and pods that return.

mod autoscaler;
mod drain;
mod info;
mod top;
mod unplaced;

use super::{is_gone, is_offloaded, peered};
use crate::ROME;
use crate::fixture::{Peering, Suite, liqoctl, serial};
use crate::peering::unpeer;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};

pub(super) fn add(suite: &mut Suite) {
    serial!(suite, kubectl_debug_adds_a_container_at_the_provider);
    top::add(suite);
    autoscaler::add(suite);
    drain::add(suite);
    info::add(suite);
    unplaced::add(suite);
}

/// The name of the container of each pod of [`pod`].
const CONTAINER: &str = "main";

/// A namespace of the consumer whose pods run at the provider.
pub(super) struct Offloaded {
    pub(super) rome: &'static Cluster,
    pub(super) milan: &'static Cluster,
    pub(super) home: Namespace,
    pub(super) remote: Namespace,
}

impl Offloaded {
    /// Creates the namespace `name`, and offloads it. The clusters are peered.
    pub(super) async fn namespace(clusters: [&'static Cluster; 2], name: &str) -> Result<Self> {
        Self::with_strategy(clusters, name, "--pod-offloading-strategy=Remote").await
    }

    /// Does the same with a flag of `liqoctl offload namespace`.
    pub(super) async fn with_strategy(
        [rome, milan]: [&'static Cluster; 2],
        name: &str,
        strategy: &str,
    ) -> Result<Self> {
        let home = Namespace::create(rome, name).await?;
        liqoctl(rome, &["offload", "namespace", name, strategy])?;
        let remote = Namespace::existing(milan, &format!("{name}-{ROME}")).await?;

        Ok(Self {
            rome,
            milan,
            home,
            remote,
        })
    }

    /// Ends the offloading and the peering.
    pub(super) async fn end(self) -> Result<()> {
        let name = self.home.name();
        liqoctl(
            self.rome,
            &["unoffload", "namespace", name, "--skip-confirm"],
        )?;
        is_gone(self.milan, self.remote.name())?;
        self.home
            .kubectl(&["delete", "pods", "--all", "--wait"])
            .await?;

        unpeer([self.rome, self.milan], &[]).await
    }
}

/// Returns a pod that runs a command.
pub(super) fn pod(name: &str, command: &[&str]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": CONTAINER,
                "image": "localhost/tools:latest",
                "imagePullPolicy": "IfNotPresent",
                "command": command,
            }],
        },
    })
}

/// The debugging container shares the process namespace of the container that is its target, whose process it shows.
async fn kubectl_debug_adds_a_container_at_the_provider(peering: &'static Peering) -> Result<()> {
    let offloaded = Offloaded::namespace(peered(peering).await?, "debug").await?;
    let Offloaded { home, remote, .. } = &offloaded;
    let target = pod("target", &["sleep", "4242"]);
    home.apply(&target.to_string()).await?;
    home.wait("pod/target", "Ready").await?;

    let (target, name) = (format!("--target={CONTAINER}"), "--container=debugger");
    let words = ["debug", "target", "-i", "--quiet", &target, name];
    // The default profile adds a capability that the provider's policy `baseline` does not permit.
    let options = [
        "--image=localhost/tools:latest",
        "--image-pull-policy=IfNotPresent",
        "--profile=baseline",
        "--",
        "sh",
    ];
    let words = [&words[..], &options].concat();
    let script = "tr '\\0' ' ' </proc/1/cmdline; hostname; exit\n";
    let shown = typed(&mut home.command(&words), script)?;
    let expected = "sleep 4242 target\n";
    ensure!(shown == expected, "{shown:?}");
    let ended =
        "jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.reason}=Completed";
    home.wait("pod/target", ended).await?;
    let log = home.kubectl(&["logs", "target", "-c", "debugger"]).await?;
    ensure!(log == expected, "{log:?}");

    // The container is of the pod in the provider's containerd, whose other container goes on.
    let path = "{.status.ephemeralContainerStatuses[0].containerID}";
    let here = home.get("pod/target", path).await?;
    let there = remote.get("pod/target", path).await?;
    ensure!(!here.is_empty() && here == there, "{here} and {there}");
    is_offloaded(home, offloaded.milan, "target").await?;
    let path = "{.status.containerStatuses[0].restartCount}";
    let restarts = home.get("pod/target", path).await?;
    ensure!(restarts == "0", "{restarts} restarts");

    offloaded.end().await
}

/// Returns the output of a command. Its input stays open, because `kubectl` does not wait for the output after its end.
fn typed(command: &mut Command, input: &str) -> Result<String> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context("failed to start kubectl")?;
    let mut stdin = child.stdin.take().context("standard input is piped")?;
    stdin.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    drop(stdin);
    ensure!(output.status.success(), "{output:?}");

    Ok(String::from_utf8(output.stdout)?)
}
