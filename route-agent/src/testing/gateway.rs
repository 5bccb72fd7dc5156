//! A simulated gateway replica, which replies to probes and has sockets with a remote pod's
//! address.
//!
//! The overlay device of nodes has ARP disabled. The inner destination MAC address of a node's
//! frames is thus that of the node itself. The eBPF program of a real gateway ignores this address.
//! In the simulated gateway, an nft rule accepts the frames as if they had the gateway's address.

use crate::testing::Namespace;
use ebpf_common::probe::{Heartbeat, LEN, Probe, digest};
use ebpf_common::settings::{
    GATEWAY_MAC, NODE_MAC, OVERLAY_DEVICE, OVERLAY_PORT, OVERLAY_VNI, PROBE_PORT,
};
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Content of the probe replies of a simulated gateway.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    pub(crate) replies: bool,
    pub(crate) leaving: bool,
    pub(crate) clusters: Vec<String>,
    pub(crate) up: Vec<bool>,
}

/// A simulated replica in its own network namespace. Replica number N has the address 172.16.0.1N.
pub(crate) struct Gateway {
    pub(crate) namespace: Namespace,
    pub(crate) behaviour: Arc<Mutex<Behaviour>>,
}

impl Gateway {
    /// Creates a replica with this number, for a cluster whose only peer is milan. The test's
    /// network namespace is the node rome-1, to which the replica is connected.
    pub(crate) fn new(number: u8) -> Self {
        let namespace = Namespace::new();
        let here = format!("gw{number}");
        namespace.connect(&here);
        let [mac, node_mac] =
            [GATEWAY_MAC, NODE_MAC].map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        crate::testing::run(&format!(
            "ip addr add 172.16.0.1 peer 172.16.0.1{number} dev {here}"
        ));
        namespace.run(&format!(
            "ip addr add 172.16.0.1{number} peer 172.16.0.1 dev eth0
             ip link add {OVERLAY_DEVICE} type vxlan external dstport {OVERLAY_PORT}
             ip link set {OVERLAY_DEVICE} address {mac} arp off up
             for slot in 1 2 3 4; do ip addr add 169.254.19.$slot/32 dev {OVERLAY_DEVICE}; done
             ip addr add 10.245.1.10/32 dev {OVERLAY_DEVICE}
             for net in 10.70.0.0/16 10.244.0.0/16; do
               ip route add $net encap ip id {OVERLAY_VNI} \\
                 src 172.16.0.1{number} dst 172.16.0.1 dev {OVERLAY_DEVICE}
             done
             for address in 10.70.0.1 10.70.0.9 10.244.1.10; do
               ip neigh add $address lladdr {node_mac} dev {OVERLAY_DEVICE} nud permanent
             done
             nft -f - <<END
table netdev receive {{
  chain frames {{
    type filter hook ingress device \"{OVERLAY_DEVICE}\" priority 0; policy accept;
    meta pkttype set host
  }}
}}
END"
        ));

        let gateway = Self {
            namespace,
            behaviour: Arc::new(Mutex::new(Behaviour {
                replies: true,
                leaving: false,
                clusters: vec!["milan".into()],
                up: vec![true],
            })),
        };
        for slot in 1..=4 {
            let behaviour = Arc::clone(&gateway.behaviour);
            let address = SocketAddr::from(([169, 254, 19, slot], PROBE_PORT));
            gateway.namespace.with(move || {
                let socket = UdpSocket::bind(address).unwrap();
                thread::spawn(move || reply(&socket, &behaviour));
            });
        }

        gateway
    }

    pub(crate) fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock().unwrap());
    }

    /// Opens a UDP socket with the address of a remote pod, 10.245.1.10.
    pub(crate) fn remote_pod(&self, port: u16) -> UdpSocket {
        self.namespace
            .with(move || listening(&format!("10.245.1.10:{port}")))
    }
}

/// Opens a UDP socket with a read time-out of five seconds.
pub(crate) fn listening(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    socket
}

fn reply(socket: &UdpSocket, behaviour: &Mutex<Behaviour>) {
    let mut datagram = [0; LEN];
    loop {
        let (len, from) = socket.recv_from(&mut datagram).unwrap();
        let behaviour = behaviour.lock().unwrap().clone();
        let Some(mut probe) = Probe::parse(&datagram[..len]).filter(|_| behaviour.replies) else {
            continue;
        };
        let digest = digest(behaviour.clusters.iter().map(String::as_str));
        probe.body = Heartbeat::new(behaviour.leaving, digest, behaviour.up).body;
        socket.send_to(&probe.encode(), from).unwrap();
    }
}
