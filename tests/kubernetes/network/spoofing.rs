//! Tests of pods with CAP_NET_RAW on every node that spoof the outer addresses of nodes and
//! gateways.

use crate::MILAN;
use crate::converged::{AGENT, GATEWAY, liqo, status};
use crate::fixture::{Peering, SOON, Suite, remapped, serial};
use anyhow::{Context as _, Result, ensure};
use ebpf_common::settings::{GATEWAY_MAC, NODE_MAC, OVERLAY_PORT, OVERLAY_VNI};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::pod;
use kubernetes_lab::wait::{Deadline, until};
use std::net::{Ipv4Addr, SocketAddrV4};
use tests::lab::key::base64;
use tests::traffic::frame::{udp_frame, udp_packet, vxlan_header};
use tests::traffic::{ping, udp};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        pods_cannot_send_to_nodes_as_gateways,
        pods_cannot_send_to_gateways_as_nodes,
    );
}

/// A DaemonSet of pods with CAP_NET_RAW.
const RAW: &str = include_str!("manifests/raw.yaml");

/// The UDP port of the pod that is the target of the spoofed packets.
const PORT: u16 = 7000;

async fn pods_cannot_send_to_nodes_as_gateways(peering: &'static Peering) -> Result<()> {
    let [rome, milan] = peering.web("spoofed-gateway").await?;
    let attackers = Attackers::start(&peering.rome, "spoofed-gateway-raw").await?;
    let target = &rome.pods[0];
    let target_netns = pod::netns(&rome.namespace, &target.name).await?;
    let echo = udp::Echo::start(&target_netns, target.address, PORT)?;
    let remote = remapped(&peering.rome, MILAN, milan.pods[0].address).await?;
    let inner = udp_frame(
        [GATEWAY_MAC, NODE_MAC],
        SocketAddrV4::new(remote, PORT),
        SocketAddrV4::new(target.address, PORT),
        b"forged",
    );

    let (gateways, nodes) = addresses(&peering.rome).await?;
    let before = attackers.drops().await?;
    let sent = attackers.send(&gateways, &nodes, &inner).await?;

    attackers.until_dropped(before + sent, &echo).await?;
    let reaches = ping::reaches(&target_netns, remote)?;
    ensure!(reaches, "{remote} is unreachable");
    Ok(())
}

async fn pods_cannot_send_to_gateways_as_nodes(peering: &'static Peering) -> Result<()> {
    let [rome, milan] = peering.web("spoofed-node").await?;
    let attackers = Attackers::start(&peering.rome, "spoofed-node-raw").await?;
    let target = &milan.pods[0];
    let target_netns = pod::netns(&milan.namespace, &target.name).await?;
    let echo = udp::Echo::start(&target_netns, target.address, PORT)?;
    let remote = remapped(&peering.rome, MILAN, target.address).await?;
    let inner = udp_frame(
        [NODE_MAC, GATEWAY_MAC],
        SocketAddrV4::new(rome.pods[0].address, PORT),
        SocketAddrV4::new(remote, PORT),
        b"forged",
    );

    let (gateways, nodes) = addresses(&peering.rome).await?;
    let before = attackers.drops().await?;
    let sent = attackers.send(&nodes, &gateways, &inner).await?;

    attackers.until_dropped(before + sent, &echo).await?;
    let source = pod::netns(&rome.namespace, &rome.pods[0].name).await?;
    let is_echoed = udp::is_echoed(&source, SocketAddrV4::new(remote, PORT), b"genuine");
    ensure!(is_echoed, "{remote} does not reply");
    Ok(())
}

/// A pod with CAP_NET_RAW on each node.
struct Attackers {
    namespace: Namespace,
    pods: Vec<String>,
    liqo: Namespace,
}

impl Attackers {
    async fn start(cluster: &Cluster, name: &str) -> Result<Self> {
        let namespace = Namespace::create(cluster, name).await?;
        namespace.apply(RAW).await?;
        namespace.rolled_out("daemonset/raw").await?;
        let pods = namespace.pods("app=raw").await?;
        ensure!(pods.len() == cluster.nodes().len(), "{pods:?}");

        Ok(Self {
            namespace,
            pods,
            liqo: liqo(cluster).await?,
        })
    }

    /// Sends a frame from each pod with each outer address of `sources` to each of `destinations`.
    /// Returns the number of frames.
    async fn send(
        &self,
        sources: &[Ipv4Addr],
        destinations: &[Ipv4Addr],
        inner: &[u8],
    ) -> Result<u64> {
        let payload = [&vxlan_header(OVERLAY_VNI)[..], inner].concat();
        let mut sent = 0;
        for pod in &self.pods {
            for source in sources {
                for destination in destinations {
                    let [from, to] =
                        [source, destination].map(|it| SocketAddrV4::new(*it, OVERLAY_PORT));
                    let packet = base64(&udp_packet(from, to, &payload));
                    // With protocol 255 (IPPROTO_RAW, `man 7 raw`), the packet begins with its own
                    // IP header.
                    let send = format!(
                        "echo {packet} | base64 -d | socat -u STDIN IP4-SENDTO:{destination}:255,hdrincl=1"
                    );
                    self.namespace.sh(pod, &send).await?;
                    sent += 1;
                }
            }
        }

        Ok(sent)
    }

    /// Returns the number of frames that the reverse path check of all nodes has dropped.
    async fn drops(&self) -> Result<u64> {
        let mut sum = 0;
        for agent in self.liqo.pods(AGENT).await? {
            let status = status(&self.liqo, &agent, "route-agent").await?;
            let drops = status["drops"]["outer-reverse-path"].as_u64();
            sum += drops.with_context(|| format!("{agent} has no counter"))?;
        }

        Ok(sum)
    }

    /// Waits until nodes have dropped at least `count` frames. Fails if a frame arrives at
    /// `target`.
    async fn until_dropped(&self, count: u64, target: &udp::Echo) -> Result<()> {
        let what = format!("{count} frames to be dropped");
        until(Deadline::after(SOON), &what, async || {
            let drops = self.drops().await?;
            ensure!(drops >= count, "{drops} were dropped");
            Ok(())
        })
        .await?;
        let arrived = target.clients();
        ensure!(arrived.is_empty(), "spoofed packets arrived: {arrived:?}");

        Ok(())
    }
}

/// Returns the addresses of a cluster's gateways, and those of its nodes.
async fn addresses(cluster: &Cluster) -> Result<(Vec<Ipv4Addr>, Vec<Ipv4Addr>)> {
    let liqo = liqo(cluster).await?;
    let pods = ["get", "pods", "-l", GATEWAY, "-o"];
    let gateways = [&pods[..], &["jsonpath={.items[*].status.podIP}"]].concat();
    let nodes = [
        "get",
        "nodes",
        "-o",
        "jsonpath={.items[*].status.addresses[?(@.type=='InternalIP')].address}",
    ];
    let parse = |text: String| -> Result<Vec<Ipv4Addr>> {
        let words = text.split_whitespace();
        let all = words.map(|it| {
            it.parse()
                .with_context(|| format!("{it:?} is no IPv4 address"))
        });
        all.collect()
    };

    Ok((
        parse(liqo.kubectl(&gateways).await?)?,
        parse(liqo.kubectl(&nodes).await?)?,
    ))
}
