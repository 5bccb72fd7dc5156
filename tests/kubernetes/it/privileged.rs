//! Tests of the privileges of pods in the network of their node and in their own network.

mod kernel_programs;

use crate::fixture::{Clusters, Suite, parallel};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::node::Node;
use kubernetes_lab::wait::{Deadline, SOON, until};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_host_network_pod_creates_a_link_on_its_node,
        a_host_network_pod_filters_packets_of_its_node,
        a_privileged_pod_mounts_its_own_bpf_file_system,
        links_in_a_pods_network_need_privileges,
        a_tunnel_between_two_pods_carries_packets,
    );
    kernel_programs::add(suite);
}

async fn a_host_network_pod_creates_a_link_on_its_node(clusters: &'static Clusters) -> Result<()> {
    let (namespace, node) = on_host(clusters, "host-device").await?;
    let ip = namespace.get("pod/host", "{.status.hostIP}").await?;
    remove_link_after_test(&node, "it-vxlan");

    let own = namespace
        .sh("host", "hostname; ip -br -4 address show eth0")
        .await?;
    let add = "ip link add it-vxlan type vxlan id 4711 dstport 14711 dev eth0";
    namespace.sh("host", add).await?;

    ensure!(own.starts_with(&format!("{}\n", node.name())), "{own}");
    ensure!(own.contains(&format!(" {ip}/16 ")), "{own}");
    let seen = node.exec("ip", &["-d", "link", "show", "it-vxlan"])?;
    ensure!(seen.contains("vxlan id 4711 dev eth0"), "{seen}");
    // The link belongs to the node's network, so it outlives the pod.
    namespace.kubectl(&["delete", "pod", "host"]).await?;
    node.exec("ip", &["link", "show", "it-vxlan"]).map(drop)
}

async fn a_host_network_pod_filters_packets_of_its_node(clusters: &'static Clusters) -> Result<()> {
    let (namespace, node) = on_host(clusters, "host-filter").await?;
    let ping = || node.exec("busybox", &["ping", "-c", "1", "-W", "1", "127.47.11.1"]);
    let filtered = node.clone();
    cleanup::defer("table it-filter", async move || {
        let commands = "add table inet it-filter; delete table inet it-filter";
        filtered.exec("nft", &[commands]).map(drop)
    });
    ping()?;

    let rules = "table inet it-filter { chain out { type filter hook output priority 0; ip daddr 127.47.11.1 counter drop; }; }";
    namespace
        .sh("host", &format!("nft -f - <<<'{rules}'"))
        .await?;

    let lost = ping().err().context("the packet was not dropped")?;
    ensure!(format!("{lost:#}").contains("exit status: 1"), "{lost:#}");
    let listed = node.exec("nft", &["list", "table", "inet", "it-filter"])?;
    ensure!(
        listed.contains("counter packets 1 bytes 84 drop"),
        "{listed}"
    );
    namespace
        .sh("host", "nft delete table inet it-filter")
        .await?;
    ping()?;
    Ok(())
}

async fn a_privileged_pod_mounts_its_own_bpf_file_system(
    clusters: &'static Clusters,
) -> Result<()> {
    let (namespace, node) = on_host(clusters, "bpf-mount").await?;

    let mount =
        "mkdir /bpf && mount -t bpf bpf /bpf && mkdir /bpf/mine && grep ' /bpf ' /proc/mounts";
    let mounted = namespace.sh("host", mount).await?;

    ensure!(mounted.starts_with("bpf /bpf bpf rw"), "{mounted}");
    // The pod's BPF file system is a different instance from that of the node.
    let nodes = node.exec("ls", &["/sys/fs/bpf"])?;
    ensure!(!nodes.contains("mine"), "{nodes}");
    Ok(())
}

/// Registers a cleanup that removes a link of a node.
fn remove_link_after_test(node: &Node, link: &'static str) {
    let node = node.clone();
    cleanup::defer(
        format!("link {link} of {}", node.name()),
        async move || match node.exec("ip", &["link", "show", link]) {
            Ok(_) => node.exec("ip", &["link", "delete", link]).map(drop),
            Err(_) => Ok(()),
        },
    );
}

/// Starts a privileged pod in the network of its node, and returns its namespace and that node.
async fn on_host(clusters: &Clusters, name: &str) -> Result<(Namespace, Node)> {
    let namespace = clusters.namespace(name).await?;
    namespace.apply(HOST).await?;
    namespace.wait("pod/host", "Ready").await?;
    let node = namespace.get("pod/host", "{.spec.nodeName}").await?;
    let node = Node::find(&node)?;

    Ok((namespace, node))
}

const HOST: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: host
spec:
  terminationGracePeriodSeconds: 0
  hostNetwork: true
  containers:
    - name: host
      image: localhost/tools:latest
      imagePullPolicy: IfNotPresent
      command: [sleep, infinity]
      securityContext:
        privileged: true
";

async fn links_in_a_pods_network_need_privileges(clusters: &'static Clusters) -> Result<()> {
    let namespace = tun(clusters, "devices").await?;
    let make = async |pod: &str, mode: &str| {
        let add = format!("ip tuntap add it-{mode} mode {mode} && ip -br link show it-{mode}");
        namespace.sh(pod, &add).await
    };

    for pod in ["privileged", "net-admin"] {
        for mode in ["tun", "tap"] {
            let made = make(pod, mode).await?;
            ensure!(made.starts_with(&format!("it-{mode} ")), "{pod}: {made}");
        }
    }
    let refused = async |pod: &str| -> Result<String> {
        let error = make(pod, "tun")
            .await
            .err()
            .context("the link was created")?;
        Ok(format!("{error:#}"))
    };
    let without_capability = refused("device-only").await?;
    let without_device = refused("plain").await?;
    let vxlan = "ip link add it-vxlan type vxlan id 4711 dstport 14711";
    let vxlan = namespace
        .sh("plain", vxlan)
        .await
        .err()
        .context("the link was created")?;

    ensure!(
        without_capability.contains("Operation not permitted"),
        "{without_capability}"
    );
    ensure!(
        without_device.contains("open: No such file"),
        "{without_device}"
    );
    ensure!(
        format!("{vxlan:#}").contains("Operation not permitted"),
        "{vxlan:#}"
    );
    Ok(())
}

/// Each pod encapsulates the packets of a TUN device in UDP datagrams. Gateways do the same with a
/// TAP device, and also encrypt the packets.
async fn a_tunnel_between_two_pods_carries_packets(clusters: &'static Clusters) -> Result<()> {
    let namespace = tun(clusters, "tunnel").await?;
    let ip = async |pod: &str| {
        let pod = format!("pod/{pod}");
        namespace.get(&pod, "{.status.podIP}").await
    };
    let end = async |pod: &str, address: &str, other: &str| {
        let tun = format!("TUN:{address}/24,tun-name=it-tunnel,iff-no-pi,up");
        let udp = format!("UDP4-DATAGRAM:{}:7777,bind=:7777", ip(other).await?);
        namespace.spawn(&["exec", pod, "--", "socat", &tun, &udp])
    };

    let _near = end("net-admin", "192.0.2.1", "privileged").await?;
    let _far = end("privileged", "192.0.2.2", "net-admin").await?;

    until(
        Deadline::after(SOON),
        "a response through the tunnel",
        async || {
            let get = "curl -sS -m 2 http://192.0.2.2:8080/";
            let answer = namespace.sh("net-admin", get).await?;
            ensure!(answer.starts_with("client=192.0.2.1:"), "{answer}");
            Ok(())
        },
    )
    .await?;
    Ok(())
}

/// Starts four pods with different privileges.
async fn tun(clusters: &Clusters, name: &str) -> Result<Namespace> {
    let namespace = clusters.namespace(name).await?;
    namespace.apply(include_str!("manifests/tun.yaml")).await?;
    for pod in ["privileged", "net-admin", "device-only", "plain"] {
        namespace.wait(&format!("pod/{pod}"), "Ready").await?;
    }
    Ok(namespace)
}
