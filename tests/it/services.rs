//! Tests of Services whose ClusterIP has an IP object, with the forwarding rules of kube-proxy in
//! both modes.

use crate::fixture::{MILAN, ROME, SAME, SOON};
use crate::sizes::DISCOVERY;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use tests::lab::netns::Netns;
use tests::lab::pod::Pod;
use tests::lab::spec::{ClusterSpec, Spec};
use tests::lab::{Lab, wait};
use tests::traffic::capture::Capture;
use tests::traffic::{tcp, udp};

/// Milan's Service with an endpoint on each node.
const WEB: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

/// Milan's Service whose endpoint is a server on the first node, as of `kubernetes.default`.
const API: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// The port of each Service, for TCP and UDP.
pub(crate) const PORT: u16 = 443;

/// The port of each endpoint.
pub(crate) const TARGET: u16 = 7000;

/// The address of the endpoint on the second node. The endpoint on the first node has [`SAME`].
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 244, 2, 10);

/// The mode in which kube-proxy forwards the traffic of Services.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KubeProxy {
    Nftables,
    Iptables,
}

/// Rome and milan with two nodes and two gateways each. Milan has the Services.
struct Services {
    lab: Lab,
    /// A pod on each node of rome.
    clients: [Pod; 2],
    /// The endpoints of [`WEB`].
    endpoints: [Pod; 2],
}

impl Services {
    fn up(mode: KubeProxy) -> Self {
        Self::with(mode, |cluster| cluster)
    }

    fn with(mode: KubeProxy, set: fn(ClusterSpec) -> ClusterSpec) -> Self {
        let cluster = |name| set(ClusterSpec::new(name).nodes(2).replicas(2));
        let spec = Spec::new()
            .cluster(cluster(ROME))
            .cluster(cluster(MILAN))
            .peering(ROME, MILAN);
        let mut lab = Lab::build(spec).unwrap();
        for (name, address) in [("web", WEB), ("api", API)] {
            lab.map_address(MILAN, name, address, false).unwrap();
        }
        let api = lab.cluster(MILAN).node(1).internal_ip;
        for node in &lab.cluster(MILAN).nodes {
            install(mode, &node.netns, WEB, &[SAME, OTHER]);
            install(mode, &node.netns, API, &[api]);
        }
        lab.start().unwrap();
        lab.wait_until_connected(SOON * 4).unwrap();

        Self {
            clients: [
                lab.add_pod(ROME, 1, SAME).unwrap(),
                lab.add_pod(ROME, 2, OTHER).unwrap(),
            ],
            endpoints: [
                lab.add_pod(MILAN, 1, SAME).unwrap(),
                lab.add_pod(MILAN, 2, OTHER).unwrap(),
            ],
            lab,
        }
    }

    /// Returns the address and port at which rome reaches a Service of milan.
    fn seen(&self, name: &str) -> SocketAddrV4 {
        let mapped = self.lab.mapped(MILAN, name).unwrap();
        let seen = self.lab.seen_from(ROME, MILAN, mapped).unwrap();
        SocketAddrV4::new(seen, PORT)
    }

    /// Starts a TCP server on each endpoint of [`WEB`].
    fn servers(&self) -> [tcp::Server; 2] {
        self.endpoints
            .each_ref()
            .map(|pod| tcp::Server::start(&pod.netns, pod.address, TARGET).unwrap())
    }
}

#[test]
fn a_service_is_reached_with_kube_proxy_in_nftables_mode() {
    a_service_is_reached(KubeProxy::Nftables);
}

#[test]
fn a_service_is_reached_with_kube_proxy_in_iptables_mode() {
    a_service_is_reached(KubeProxy::Iptables);
}

/// Every node of rome reaches both endpoints over TCP and UDP. An endpoint sees the address of the
/// node that selected it.
fn a_service_is_reached(mode: KubeProxy) {
    let services = Services::up(mode);
    let servers = services.servers();
    let echoes = services
        .endpoints
        .each_ref()
        .map(|pod| udp::Echo::start(&pod.netns, pod.address, TARGET).unwrap());
    let fragmented = [7; 4000];

    for client in &services.clients {
        for _ in 0..12 {
            tcp::transfer(&client.netns, services.seen("web"), 100_000).unwrap();
        }
        for payload in [&b"ave"[..], &fragmented] {
            assert!(udp::is_echoed(&client.netns, services.seen("web"), payload));
        }
    }

    assert_eq!(echoes.iter().map(|it| it.clients().len()).sum::<usize>(), 4);
    let pods: BTreeSet<IpAddr> = [SAME, OTHER]
        .into_iter()
        .map(|pod| services.lab.seen_from(MILAN, ROME, pod).unwrap().into())
        .collect();
    for server in servers {
        let clients = server.client_addresses();
        assert!(!clients.is_empty(), "an endpoint was never selected");
        assert!(clients.iter().all(|it| !pods.contains(it)), "{clients:?}");
    }
}

#[test]
fn a_server_on_a_node_is_reached_with_kube_proxy_in_nftables_mode() {
    a_server_on_a_node_is_reached(KubeProxy::Nftables);
}

#[test]
fn a_server_on_a_node_is_reached_with_kube_proxy_in_iptables_mode() {
    a_server_on_a_node_is_reached(KubeProxy::Iptables);
}

/// Clients on both nodes of rome reach the API server of milan, whichever node of milan forwards
/// their packets: the node of the server, or the other one.
fn a_server_on_a_node_is_reached(mode: KubeProxy) {
    let mut services = Services::up(mode);
    let node = services.lab.cluster(MILAN).node(1);
    let server = tcp::Server::start(&node.netns, node.internal_ip, TARGET).unwrap();
    // Their addresses select both nodes of milan.
    let more = (20..28).map(|last| services.lab.add_pod(ROME, 1, [10, 244, 1, last]).unwrap());
    let more: Vec<_> = more.collect();

    for client in services.clients.iter().chain(&more) {
        tcp::transfer(&client.netns, services.seen("api"), 100_000).unwrap();
    }

    let clients: BTreeSet<_> = server.client_addresses().into_iter().collect();
    let other = services.lab.cluster(MILAN).node(2).internal_ip.into();
    assert!(clients.contains(&other), "{clients:?}");
    assert!(clients.len() > 1, "{clients:?}");
}

#[test]
fn streams_to_a_service_survive_the_loss_of_a_gateway_in_nftables_mode() {
    streams_survive(KubeProxy::Nftables);
}

#[test]
fn streams_to_a_service_survive_the_loss_of_a_gateway_in_iptables_mode() {
    streams_survive(KubeProxy::Iptables);
}

fn streams_survive(mode: KubeProxy) {
    let mut services = Services::up(mode);
    let servers = services.servers();
    let to = services.seen("web");
    let clients = services.clients.iter().cycle().take(8);
    let streams: Vec<_> = clients
        .map(|client| tcp::Stream::start(&client.netns, to, 250_000).unwrap())
        .collect();

    for number in [1, 2] {
        services.lab.gateway(MILAN, number).kill().unwrap();
        for stream in &streams {
            stream.wait_for_progress(SOON).unwrap();
        }
        for client in &services.clients {
            tcp::transfer(&client.netns, to, 100_000).unwrap();
        }
        services.lab.gateway(MILAN, number).start().unwrap();
        services.lab.wait_until_connected(SOON * 4).unwrap();
    }

    for stream in streams {
        stream.finish().unwrap();
    }
    let connections: usize = servers.iter().map(|it| it.clients().len()).sum();
    assert_eq!(connections, 8 + 4, "a stream has reconnected");
}

/// The gateway of milan reports the path MTU to the endpoint, and the node translates the error.
#[test]
fn replies_of_a_service_adapt_to_the_path_mtu() {
    let services = Services::with(KubeProxy::Nftables, |cluster| cluster.uplink_mtu(1280));
    let _echoes = services
        .endpoints
        .each_ref()
        .map(|pod| udp::Echo::start(&pod.netns, pod.address, TARGET).unwrap());
    let [client, _] = &services.clients;
    let payload = [7; 1300];

    let core = services.lab.underlay().core();

    // Routers fragment the gateways' datagrams until the gateways have discovered the path MTU. Then
    // the endpoint fragments its replies.
    wait::until(DISCOVERY, "an echo without outer fragments", || {
        let fragments = Capture::packets(core, "to-milan", |packet| packet.is_fragment())?;
        let is_echoed = udp::is_echoed(&client.netns, services.seen("web"), &payload);
        Ok(fragments.finish()?.is_empty() && is_echoed)
    })
    .unwrap();
}

/// Installs rules as of kube-proxy, which distribute new connections to `service` over `endpoints`.
/// The rules do not masquerade.
pub(crate) fn install(mode: KubeProxy, node: &Netns, service: Ipv4Addr, endpoints: &[Ipv4Addr]) {
    match mode {
        KubeProxy::Nftables => {
            let table = format!("kube-proxy-{}", service.octets()[3]);
            let count = endpoints.len();
            let mut map = String::new();
            for (index, endpoint) in endpoints.iter().enumerate() {
                write!(map, "{index} : {endpoint}, ").unwrap();
            }
            let rules = format!(
                "table ip {table} {{
                    chain services {{
                        type nat hook prerouting priority dstnat; policy accept;
                        ip daddr {service} meta l4proto {{ tcp, udp }} th dport {PORT} \
                            dnat to numgen random mod {count} map {{ {map} }} : {TARGET}
                    }}
                }}
                "
            );
            node.exec("nft", &["-f", "-"], &rules).unwrap();
        }
        KubeProxy::Iptables => {
            for (protocol, (index, endpoint)) in ["tcp", "udp"]
                .into_iter()
                .flat_map(|it| endpoints.iter().enumerate().map(move |end| (it, end)))
            {
                let left = endpoints.len() - index;
                let odds = format!("{:.5}", 1.0 / left as f64);
                let (to, service) = (format!("{endpoint}:{TARGET}"), service.to_string());
                let port = PORT.to_string();
                let mut rule = vec!["-t", "nat", "-A", "PREROUTING", "-d", &service];
                rule.extend(["-p", protocol, "--dport", &port]);
                if left > 1 {
                    rule.extend([
                        "-m",
                        "statistic",
                        "--mode",
                        "random",
                        "--probability",
                        &odds,
                    ]);
                }
                rule.extend(["-j", "DNAT", "--to-destination", &to]);
                node.exec("iptables", &rule, "").unwrap();
            }
        }
    }
}
