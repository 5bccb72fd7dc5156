//! Tests of the gateway's eBPF programs in a pod. An image of this test contains the loader.

use super::remove_link_after_test;
use crate::fixture::{Clusters, Suite, parallel};
use anyhow::{Context as _, Result, bail, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::image::{self, Image, Platform, Tree};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::node::Node;
use kubernetes_lab::wait::{Deadline, SOON, until};
use serde_json::json;
use std::env;
use std::path::{Path, PathBuf};

pub(super) fn add(suite: &mut Suite) {
    parallel!(suite, ebpf_programs_outlive_the_pod_that_attached_them);
}

/// The environment variable with the folder of guest programs. `cargo xtask test --kubernetes` sets
/// it.
const GUESTS: &str = "LIQO_LAB_GUESTS";

/// The name of the image that this test builds.
const IMAGE: &str = "localhost/it-bpf:1";

/// The folder of pinned maps and links in a node's BPF file system.
const PINS: &str = "/sys/fs/bpf/it-lab";

/// The programs drop packets without tunnel metadata. The VXLAN device of this test has a fixed VNI
/// and adds no metadata, so a ping succeeds only if the programs are not attached.
async fn ebpf_programs_outlive_the_pod_that_attached_them(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = clusters.namespace("kernel-programs").await?;
    let [far, near] = [clusters.rome.node(0), clusters.rome.node(1)];
    clear_after_test(&near, &far);
    load(clusters)?;
    connect(clusters, &near, &far)?;
    until(
        Deadline::after(SOON),
        "a path through the VXLAN",
        async || ping(&far),
    )
    .await?;

    let attach = ["/bpf", "attach", "it-overlay", "it-tap", PINS];
    let first = run(&namespace, "first", &near, &attach).await?;
    ensure!(first == "attached to it-overlay and it-tap\n", "{first}");
    ensure!(ping(&far).is_err(), "packets are not dropped");
    let pins = near.exec("find", &[PINS, "-type", "f", "-printf", "%f "])?;
    for pin in ["overlay", "tap", "COUNTERS"] {
        ensure!(pins.split(' ').any(|it| it == pin), "{pins}");
    }

    // The second pod replaces the programs. The counters include the packet that was dropped while
    // no pod existed.
    let second = run(&namespace, "second", &near, &attach).await?;
    ensure!(second.contains("\noverlay_no_tunnel_key 1\n"), "{second}");

    run(&namespace, "third", &near, &["/bpf", "detach", PINS]).await?;
    ping(&far).context("packets are dropped after detaching")?;
    ensure!(near.exec("ls", &[PINS]).is_err(), "pins are left");
    Ok(())
}

/// Builds an image with the guest program `bpf`, and loads it into all nodes.
fn load(clusters: &Clusters) -> Result<()> {
    let guests = env::var_os(GUESTS)
        .with_context(|| format!("{GUESTS} is not set: run `cargo xtask test --kubernetes`"))?;
    let mut tree = Tree::new();
    tree.file("/bpf", &PathBuf::from(guests).join("bpf"))?;
    let image = Image::new(Platform::machine()?, tree, &[]);
    let archive = Path::new(env!("CARGO_TARGET_TMPDIR")).join("it-bpf.tar");
    image::write(&archive, &[IMAGE.to_owned()], &[image])?;

    clusters.rome.load(&archive)?;

    for node in clusters.rome.nodes() {
        let names = node.exec("ctr", &["images", "list", "--quiet"])?;
        ensure!(names.lines().any(|name| name == IMAGE), "{names}");
    }
    std::fs::remove_file(&archive).context("failed to remove the archive")
}

/// Connects both nodes by VXLAN devices, and adds a TAP device to the near node.
fn connect(clusters: &Clusters, near: &Node, far: &Node) -> Result<()> {
    let specs = clusters.rome.node_specs()?;
    let ip = |node: &Node| {
        specs
            .iter()
            .find(|it| it.name == node.name())
            .map(|it| it.ip)
    };
    for (node, other, address) in [(near, far, NEAR), (far, near, FAR)] {
        let remote = ip(other).context("it is a node of rome")?;
        let script = format!(
            "ip link add it-overlay type vxlan id 4712 dstport 14712 remote {remote}
             ip address add {address}/24 dev it-overlay
             ip link set it-overlay up"
        );
        node.exec("sh", &["-ec", &script])?;
    }
    near.exec("ip", &["tuntap", "add", "it-tap", "mode", "tap"])?;

    Ok(())
}

const NEAR: &str = "192.0.2.1";
const FAR: &str = "192.0.2.2";

/// Sends an ICMP echo request through the VXLAN to the near node, and waits for the reply.
fn ping(from: &Node) -> Result<()> {
    let words = ["ping", "-c", "1", "-W", "1", NEAR];
    from.exec("busybox", &words).map(drop)
}

/// Registers cleanups that remove links, the image and pinned objects from both nodes.
fn clear_after_test(near: &Node, far: &Node) {
    for node in [near, far] {
        remove_link_after_test(node, "it-overlay");
        let node = node.clone();
        cleanup::defer(
            format!("image {IMAGE} of {}", node.name()),
            async move || node.exec("ctr", &["images", "remove", IMAGE]).map(drop),
        );
    }
    remove_link_after_test(near, "it-tap");
    let near = near.clone();
    cleanup::defer(format!("pins of {}", near.name()), async move || {
        near.exec("rm", &["-rf", PINS]).map(drop)
    });
}

/// Runs a command of the image in a pod on `node`, and returns the command's output.
async fn run(namespace: &Namespace, name: &str, node: &Node, command: &[&str]) -> Result<String> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": node.name(),
        "hostNetwork": true,
        "restartPolicy": "Never",
        "containers": [{
            "name": "bpf",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": command,
            "securityContext": {"privileged": true},
            "volumeMounts": [{"name": "bpf", "mountPath": "/sys/fs/bpf"}],
        }],
        "volumes": [{"name": "bpf", "hostPath": {"path": "/sys/fs/bpf", "type": "Directory"}}],
    }});
    namespace.apply(&pod.to_string()).await?;
    let what = format!("pod/{name}");
    let phase = until(Deadline::after(SOON), "the pod to end", async || {
        let phase = namespace.get(&what, "{.status.phase}").await?;
        match phase.as_str() {
            "Succeeded" | "Failed" => Ok(phase),
            other => bail!("its phase is {other}"),
        }
    })
    .await?;
    let output = namespace.kubectl(&["logs", name]).await?;
    ensure!(phase == "Succeeded", "{name} has failed: {output}");
    namespace.kubectl(&["delete", "pod", name]).await?;

    Ok(output)
}
