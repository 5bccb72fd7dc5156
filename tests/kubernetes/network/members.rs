//! Tests of nodes that join and leave a connected cluster.

use crate::converged::{AGENT, gateways, liqo};
use crate::deletion::reaches;
use crate::fixture::{Peering, SOON, Suite, Web, load_images, remapped, serial};
use crate::removal::kubectl;
use anyhow::{Context as _, Result, bail, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::pod;
use kubernetes_lab::spec::NodeSpec;
use kubernetes_lab::underlay::node_netns;
use kubernetes_lab::wait::{Deadline, until};
use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tests::lab::netns::Netns;
use tests::traffic::capture::{Capture, Frame};
use tests::traffic::udp;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_node_that_joins_the_server_is_reached_and_removed_after_it_leaves,
        a_node_that_joins_the_client_is_reached_and_removed_after_it_leaves,
    );
}

/// The limit within which pods of a new node reach the other cluster. The limit applies from the
/// moment when the node has a pod network and a ready route agent.
const REACHED: Duration = Duration::from_secs(2);

const UDP_PORT: u16 = 7002;

/// The time-out of a single echo.
const ECHO_TIMEOUT: Duration = Duration::from_millis(200);

async fn a_node_that_joins_the_server_is_reached_and_removed_after_it_leaves(
    peering: &'static Peering,
) -> Result<()> {
    joins_and_leaves(&peering.milan, &peering.rome, "joins-server").await
}

async fn a_node_that_joins_the_client_is_reached_and_removed_after_it_leaves(
    peering: &'static Peering,
) -> Result<()> {
    joins_and_leaves(&peering.rome, &peering.milan, "joins-client").await
}

async fn joins_and_leaves(at: &Cluster, other: &Cluster, name: &str) -> Result<()> {
    let abroad = Web::up(other, name).await?;
    let before = restarts(at).await?;

    let shared = at.clone();
    let third = cleanup::defer(format!("third node of {}", at.name()), async move || {
        let now = Cluster::find(shared.name())?;
        if now.spec.nodes > shared.spec.nodes {
            now.remove_node().await?;
        }
        Ok(())
    });
    let grown = at.add_node().await?;
    let joined = grown.node_specs()?.pop().context("no node")?;
    let pod = reached(&grown, &joined, other, &abroad, name).await?;
    let target = remapped(other, at.name(), pod).await?;
    let source = abroad.pods.first().context("no pod")?;
    let source = pod::netns(&abroad.namespace, &source.name).await?;
    // The capture must contain packets while the node exists, because the same capture must be
    // empty after the node has left.
    let frames = frames_to(at, joined.ip, &source, target)?;
    ensure!(frames > 0, "no packet is forwarded to the node");

    third.run().await?;
    removed(at, &joined, &source, target).await?;
    let after = restarts(at).await?;
    ensure!(after == before, "{after:?}, and before {before:?}");

    Ok(())
}

/// Asserts that pods of the new node and pods of the other cluster reach each other within
/// [`REACHED`]. Returns the address of a pod on the new node.
async fn reached(
    at: &Cluster,
    node: &NodeSpec,
    other: &Cluster,
    abroad: &Web,
    name: &str,
) -> Result<Ipv4Addr> {
    // The route agent starts after its image is loaded. The pods start earlier, so that the echoes
    // show the delay after the start of the agent.
    let home = Web::on_node(at, name, &node.name).await?;
    let pod = home.pods.first().context("no pod")?.clone();
    let netns = pod::netns(&home.namespace, &pod.name).await?;
    let _echo = udp::Echo::start(&netns, pod.address, UDP_PORT)?;
    let mut first_echoes = Vec::new();
    let mut echoes = Vec::new();
    for peer in &abroad.pods {
        let peer_netns = pod::netns(&abroad.namespace, &peer.name).await?;
        echoes.push(udp::Echo::start(&peer_netns, peer.address, UDP_PORT)?);
        let there = remapped(at, other.name(), peer.address).await?;
        let here = remapped(other, at.name(), pod.address).await?;
        first_echoes.push(("to the new node", first_echo(peer_netns, here)));
        first_echoes.push(("from the new node", first_echo(netns.clone(), there)));
    }

    load_images(at)?;
    let agent = restarted_agent(at, node).await?;
    let liqo = liqo(at).await?;
    liqo.wait(&format!("pod/{agent}"), "Ready").await?;
    let ready = Instant::now();
    for (direction, echo) in first_echoes {
        let echo = echo.join().ok().context("a thread has panicked")??;
        let late = echo.saturating_duration_since(ready);
        let early = ready.saturating_duration_since(echo);
        eprintln!(
            "{}: {direction}: {:.2} s after its agent was ready",
            node.name,
            late.as_secs_f64() - early.as_secs_f64()
        );
        ensure!(late <= REACHED, "{direction}: {late:?}");
    }
    reaches(at, &home, other.name(), abroad).await?;
    reaches(other, abroad, at.name(), &home).await?;
    home.namespace.delete().await?;

    Ok(pod.address)
}

/// Sends datagrams in a thread until one is echoed. The thread returns the time of the first echo.
fn first_echo(from: Netns, to: Ipv4Addr) -> JoinHandle<Result<Instant>> {
    let to = SocketAddrV4::new(to, UDP_PORT);
    thread::spawn(move || {
        let end = Instant::now() + SOON;
        while Instant::now() < end {
            match udp::exchange(&from, to, b"first", ECHO_TIMEOUT) {
                Ok(_) => return Ok(Instant::now()),
                // A pause limits the rate of retries, since some errors return at once.
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
        bail!("{} received no echo of {to}", from.name())
    })
}

/// Replaces the route agent's pod on a node after the image was loaded, and returns the new pod's
/// name. The kubelet would retry the missing image with backoff.
async fn restarted_agent(at: &Cluster, node: &NodeSpec) -> Result<String> {
    let liqo = liqo(at).await?;
    let old = agent(&liqo, node).await?;
    liqo.kubectl(&["delete", "pod", &old, "--grace-period=0", "--force"])
        .await?;
    until(Deadline::after(SOON), "another agent", async || {
        let new = agent(&liqo, node).await?;
        ensure!(new != old, "{old} is still there");
        Ok(new)
    })
    .await
}

async fn agent(liqo: &Namespace, node: &NodeSpec) -> Result<String> {
    let field = format!("spec.nodeName={}", node.name);
    let words = ["get", "pods", "-l", AGENT, "--field-selector", &field, "-o"];
    let words = [words.as_slice(), &["jsonpath={.items[*].metadata.name}"]].concat();
    let names = liqo.kubectl(&words).await?;
    let mut names = names.split_whitespace();
    let name = names.next().context("no agent")?.to_owned();
    ensure!(names.next().is_none(), "several agents");

    Ok(name)
}

/// Waits until the node's objects are deleted, and no other node forwards packets to the node.
async fn removed(at: &Cluster, left: &NodeSpec, from: &Netns, to: Ipv4Addr) -> Result<()> {
    let liqo = liqo(at).await?;
    // Kubernetes would delete the pods of the node only after a minute.
    let field = format!("spec.nodeName={}", left.name);
    let words = [
        "delete",
        "pods",
        "-A",
        "--force",
        "--field-selector",
        &field,
    ];
    kubectl(at, &words)?;
    until(
        Deadline::after(SOON),
        "the objects of the node to be deleted",
        async || {
            let ips = liqo.kubectl(&["get", "ips.ipam.liqo.io", "-o", "name"]);
            let ips = ips.await?;
            ensure!(!ips.contains(&left.name), "{ips}");
            let pods = ["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"];
            let pods = liqo.kubectl(&pods).await?;
            ensure!(!pods.contains(&left.name), "{pods}");
            Ok(())
        },
    )
    .await?;
    until(
        Deadline::after(SOON),
        "gateways to stop forwarding to the node",
        async || {
            let frames = frames_to(at, left.ip, from, to)?;
            ensure!(frames == 0, "{frames} frames were sent to the node");
            Ok(())
        },
    )
    .await
}

/// Returns the restart count of each gateway by the pod's name.
async fn restarts(at: &Cluster) -> Result<BTreeMap<String, u32>> {
    let gateways = gateways(at).await?.into_iter();
    Ok(gateways.map(|it| (it.name, it.restarts)).collect())
}

/// Sends datagrams. Returns the number of frames and ARP requests that other nodes send for the
/// address `node`.
fn frames_to(at: &Cluster, node: Ipv4Addr, from: &Netns, to: Ipv4Addr) -> Result<usize> {
    const DATAGRAMS: usize = 5;
    const ARP: [u8; 2] = [0x08, 0x06];

    let is_to_node = move |frame: &Frame| match frame.ipv4() {
        Some(packet) => packet.destination() == node && packet.udp().is_some(),
        None => {
            frame.bytes.get(12..14) == Some(&ARP) && frame.bytes.get(38..42) == Some(&node.octets())
        }
    };
    let mut captures = Vec::new();
    for other in at.nodes() {
        let name = node_netns(other.name());
        let file = File::open(Path::new("/run/netns").join(&name))
            .with_context(|| format!("no namespace {name}"))?;
        let netns = Netns::adopt(&name, file);
        captures.push(Capture::start(&netns, "eth0", is_to_node)?);
    }
    for _ in 0..DATAGRAMS {
        let to = SocketAddrV4::new(to, UDP_PORT);
        // Only the captures are evaluated, so a missing echo is not an error.
        let _ = udp::exchange(from, to, b"path", ECHO_TIMEOUT);
    }
    let mut frames = 0;
    for capture in captures {
        frames += capture.finish()?.len();
    }

    Ok(frames)
}
