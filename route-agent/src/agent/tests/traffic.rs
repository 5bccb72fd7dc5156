//! Tests that send packets through the routes and the nft table of a running agent.

use super::*;
use crate::filter::{INNER_SOURCE, INNER_TUNNEL, OUTER_SOURCE};
use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

#[test]
fn a_pod_keeps_its_address_towards_remote_pods_although_the_cni_masquerades() {
    for rp_filter in [1, 2] {
        in_netns(async move || {
            let gateway = Gateway::new(1);
            let pod = pod(rp_filter);
            cni();
            let agent = Running::start().await;
            agent.reaches(&["gw-1"]).await;

            let remote = gateway.remote_pod(7001);
            pod.with(|| socket("10.244.1.10:7000").send_to(b"x", "10.245.1.10:7001"))
                .unwrap();

            assert_eq!(source(&remote), "10.244.1.10:7000");
        });
    }
}

#[test]
fn a_remote_pod_has_its_remapped_address_towards_pods_although_the_cni_masquerades() {
    for rp_filter in [1, 2] {
        in_netns(async move || {
            let gateway = Gateway::new(1);
            let pod = pod(rp_filter);
            cni();
            let agent = Running::start().await;
            agent.reaches(&["gw-1"]).await;

            let here = pod.with(|| socket("10.244.1.10:7000"));
            let remote = gateway.remote_pod(7001);
            remote.send_to(b"x", "10.244.1.10:7000").unwrap();
            assert_eq!(source(&here), "10.245.1.10:7001");

            here.send_to(b"x", "10.245.1.10:7001").unwrap();
            assert_eq!(source(&remote), "10.244.1.10:7000");
        });
    }
}

#[test]
fn the_node_has_its_external_address_towards_remote_pods_from_any_local_address() {
    in_netns(async || {
        let gateway = Gateway::new(1);
        cni();
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;
        let remote = gateway.remote_pod(7001);

        for (address, seen) in [
            ("0.0.0.0:7000", "10.70.0.1:7000"),
            ("172.16.0.1:7002", "10.70.0.1:7002"),
        ] {
            let here = socket(address);
            here.send_to(b"x", "10.245.1.10:7001").unwrap();
            assert_eq!(source(&remote), seen, "from {address}");

            remote.send_to(b"x", seen).unwrap();
            assert_eq!(source(&here), "10.245.1.10:7001", "to {address}");
        }
    });
}

#[test]
fn frames_from_unknown_outer_sources_are_dropped_and_counted() {
    in_netns(async || {
        // The fabric file has no gateway replica with the number 3.
        let unknown = Gateway::new(3);
        let agent = Running::start().await;
        let here = socket("10.70.0.1:7000");
        here.set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();

        unknown
            .remote_pod(7001)
            .send_to(b"x", "10.70.0.1:7000")
            .unwrap();

        agent
            .eventually("counted the frame", |it| it.drops[OUTER_SOURCE] == 1)
            .await;
        assert!(here.recv(&mut [0; 8]).is_err());
    });
}

#[test]
fn packets_from_inner_sources_of_no_remote_cluster_are_dropped_and_counted() {
    in_netns(async || {
        let gateway = Gateway::new(1);
        gateway
            .namespace
            .run("ip address add 10.99.0.1/32 dev liqo-overlay");
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;
        let here = socket("10.70.0.1:7000");
        here.set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();

        let spoofed = gateway.namespace.with(|| socket("10.99.0.1:7001"));
        spoofed.send_to(b"x", "10.70.0.1:7000").unwrap();

        agent
            .eventually("counted the packet", |it| it.drops[INNER_SOURCE] == 1)
            .await;
        assert!(here.recv(&mut [0; 8]).is_err());
    });
}

#[test]
fn packets_of_a_peer_to_a_tunnel_of_the_node_are_dropped_and_counted() {
    in_netns(async || {
        let gateway = Gateway::new(1);
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;
        let here = [4789, 6081, 8472].map(|port| socket(&format!("0.0.0.0:{port}")));
        let control = socket("10.70.0.1:7000");
        let remote = gateway.remote_pod(7001);

        for port in [4789, 6081, 6091, 8472, 7000] {
            remote.send_to(b"x", ("10.70.0.1", port)).unwrap();
        }

        assert_eq!(source(&control), "10.245.1.10:7001");
        agent
            .eventually("counted the packets", |it| it.drops[INNER_TUNNEL] == 4)
            .await;
        for socket in here {
            socket.set_nonblocking(true).unwrap();
            assert!(socket.recv(&mut [0; 8]).is_err());
        }
    });
}

#[test]
fn a_mapped_address_leads_to_an_external_host_whose_replies_return_through_the_node() {
    in_netns(async || {
        let gateway = Gateway::new(1);
        let outside = Namespace::new();
        outside.connect("out");
        run("ip address add 192.0.2.1/24 dev out; sysctl -qw net.ipv4.ip_forward=1");
        outside.run("ip address add 192.0.2.9/24 dev eth0");
        let agent = Running::start_with(Directory::new(&with_mapped("192.0.2.9"))).await;
        agent.reaches(&["gw-1"]).await;

        let there = outside.with(|| socket("192.0.2.9:53"));
        let remote = gateway.remote_pod(7001);
        remote.send_to(b"x", "10.70.0.9:53").unwrap();
        let seen = source(&there);
        assert!(seen.starts_with("192.0.2.1:"), "{seen}");

        there.send_to(b"x", seen).unwrap();
        assert_eq!(source(&remote), "10.70.0.9:53");
    });
}

#[test]
fn replies_of_a_pod_come_from_the_address_of_the_request_be_it_its_own_or_mapped() {
    in_netns(async || {
        let gateway = Gateway::new(1);
        let pod = pod(1);
        let agent = Running::start_with(Directory::new(&with_mapped("10.244.1.10"))).await;
        agent.reaches(&["gw-1"]).await;
        let here = pod.with(|| socket("10.244.1.10:53"));
        let remote = gateway.remote_pod(7001);

        for address in ["10.70.0.9:53", "10.244.1.10:53", "10.70.0.9:53"] {
            remote.send_to(b"x", address).unwrap();
            let seen = source(&here);
            assert!(seen.starts_with("10.245.1.10:"), "{seen}");

            here.send_to(b"x", seen).unwrap();
            assert_eq!(source(&remote), address);
        }
    });
}

#[test]
fn an_overlay_frame_keeps_its_outer_source_although_the_cni_masquerades() {
    in_netns(async || {
        let gateway = Gateway::new(1);
        run("nft -f - <<END
table ip cni {
  chain post {
    type nat hook postrouting priority srcnat; policy accept;
    ip daddr 172.16.0.0/24 masquerade
  }
}
END
             ip address add 172.16.0.77 dev gw1; ip route replace 172.16.0.11 dev gw1 src 172.16.0.77");
        // The gateway accepts overlay frames only if the outer source is the node's InternalIP.
        gateway.namespace.run(
            "nft -f - <<END
table inet strict {
  chain input {
    type filter hook input priority 0; policy accept;
    udp dport 6091 ip saddr != 172.16.0.1 drop
  }
}
END",
        );

        let agent = Running::start().await;

        agent.reaches(&["gw-1"]).await;
    });
}

#[test]
fn a_crash_and_a_restart_lose_no_packet() {
    in_netns(async || {
        let gateways = [Gateway::new(1), Gateway::new(2)];
        let pod = pod(1);
        let agent = Running::start_patient().await;
        agent.reaches(&["gw-1", "gw-2"]).await;
        let stream = Stream::start(&pod, &gateways);

        let agent = agent.restart().await;
        agent
            .eventually("probed again", |it| {
                it.replicas.iter().all(|it| it.answered > 2)
            })
            .await;

        let (sent, received) = stream.stop();
        assert_eq!(received, sent);
        assert_eq!(agent.status.read().reapplies, 0);
    });
}

#[test]
fn a_leaving_replica_loses_no_packet() {
    in_netns(async || {
        let gateways = [Gateway::new(1), Gateway::new(2)];
        let pod = pod(1);
        let agent = Running::start_patient().await;
        agent.reaches(&["gw-1", "gw-2"]).await;
        let stream = Stream::start(&pod, &gateways);

        for (leaving, staying) in [(0, "gw-2"), (1, "gw-1")] {
            gateways[leaving].behave(|it| it.leaving = true);
            agent.reaches(&[staying]).await;
            gateways[leaving].behave(|it| it.leaving = false);
            agent.reaches(&["gw-1", "gw-2"]).await;
        }

        let (sent, received) = stream.stop();
        assert_eq!(received, sent);
    });
}

/// A stream of one datagram per millisecond from a pod to a remote pod.
struct Stream {
    stop: mpsc::Sender<()>,
    sender: JoinHandle<usize>,
    receivers: Vec<JoinHandle<usize>>,
}

impl Stream {
    fn start(pod: &Namespace, gateways: &[Gateway]) -> Self {
        let remotes = gateways.iter().map(|it| it.remote_pod(7001));
        let receivers = remotes.map(count).collect();
        let socket = pod.with(|| socket("10.244.1.10:7000"));
        let (stop, stopped) = mpsc::channel();
        let sender = thread::spawn(move || {
            let mut sent = 0;
            while stopped.recv_timeout(Duration::from_millis(1)).is_err() {
                socket.send_to(b"x", "10.245.1.10:7001").unwrap();
                sent += 1;
            }
            sent
        });

        Self {
            stop,
            sender,
            receivers,
        }
    }

    /// Returns the numbers of sent and received datagrams.
    fn stop(self) -> (usize, usize) {
        self.stop.send(()).unwrap();
        let sent = self.sender.join().unwrap();
        let received = self.receivers.into_iter().map(|it| it.join().unwrap());

        (sent, received.sum())
    }
}

/// Counts received datagrams until none arrives within the read time-out.
fn count(socket: UdpSocket) -> JoinHandle<usize> {
    thread::spawn(move || {
        let mut received = 0;
        while socket.recv(&mut [0; 8]).is_ok() {
            received += 1;
        }
        received
    })
}

/// Opens a UDP socket with a read time-out.
fn socket(address: &str) -> UdpSocket {
    crate::testing::gateway::listening(address)
}

/// Receives a datagram, and returns its source address and port.
fn source(socket: &UdpSocket) -> String {
    let (_, from) = socket.recv_from(&mut [0; 8]).expect("nothing arrived");
    from.to_string()
}

/// Creates a pod with the address 10.244.1.10 on the node rome-1.
fn pod(rp_filter: u8) -> Namespace {
    let pod = Namespace::new();
    pod.connect("pod1");
    run(&format!(
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter={rp_filter}
         sysctl -qw net.ipv4.conf.default.rp_filter={rp_filter}
         ip address add 169.254.1.1/32 dev pod1; ip route add 10.244.1.10 dev pod1"
    ));
    pod.run(
        "ip address add 10.244.1.10/32 dev eth0
         ip route add 169.254.1.1 dev eth0; ip route add default via 169.254.1.1",
    );

    pod
}

/// Adds nft rules that masquerade traffic between pods and external hosts in both directions, as
/// some CNIs do.
fn cni() {
    run("nft -f - <<END
table ip cni {
  chain post {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade
    ip saddr != 10.244.0.0/16 ip daddr 10.244.0.0/16 masquerade
  }
}
END");
}

/// Returns the fabric file with an additional IP object, which maps `address` to 10.70.0.9.
fn with_mapped(address: &str) -> String {
    format!(
        "{}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {{name: mapped}}
spec: {{ip: {address}}}
status: {{ip: 10.70.0.9, cidr: 10.70.0.0/16}}
",
        fabric_file().trim_end()
    )
}
