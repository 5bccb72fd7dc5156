//! The UDP ports of tunnels, found in a kernel's connection tracking.

use super::*;
use crate::gro;
use nix::sys::socket::{getsockopt, sockopt};
use std::collections::BTreeSet;
use std::net::UdpSocket;

const REPLICA: &str = "10.244.1.11";

/// Adds a flow to connection tracking: `original` and `reply` are pairs of source and destination, with the ports of
/// the original direction and of the reply.
fn add_flow(original: [&str; 2], ports: [u16; 2], reply: [&str; 2], reply_ports: [u16; 2]) {
    let [source, destination] = original;
    let [source_port, port] = ports;
    let [reply_source, reply_destination] = reply;
    let [reply_source_port, reply_port] = reply_ports;
    run(&format!(
        "conntrack --create --timeout 100 --proto udp --status ASSURED,SEEN_REPLY \
         --orig-src {source} --orig-dst {destination} --orig-port-src {source_port} --orig-port-dst {port} \
         --reply-src {reply_source} --reply-dst {reply_destination} \
         --reply-port-src {reply_source_port} --reply-port-dst {reply_port} 2>&1"
    ));
}

#[test]
fn the_kernels_flows_of_a_replica_yield_the_ports_of_its_tunnels() {
    in_netns(async || {
        let node = Node::new();
        let (peer, here) = ("192.0.2.7", "172.16.0.1");
        // A node port, the gateway as a client behind masquerading, and a flow of another pod.
        add_flow(
            [peer, here],
            [50_000, 31_820],
            [REPLICA, here],
            [51_840, 45_001],
        );
        add_flow(
            [REPLICA, peer],
            [50_002, 31_821],
            [peer, here],
            [31_821, 45_003],
        );
        add_flow(
            [peer, here],
            [50_004, 31_822],
            ["10.244.1.12", here],
            [51_840, 45_005],
        );

        let replicas = vec![ip(REPLICA)];
        let flows = node.kernel.flows(replicas.clone()).await.unwrap();

        assert_eq!(flows.len(), 2, "{flows:?}");
        let expected = BTreeSet::from([31_820, 45_001, 45_003]);
        assert_eq!(gro::ports(&flows, &replicas, 6092), expected);
        assert_eq!(crate::kernel::gro::entries(), Some(3));
    });
}

#[test]
fn each_feature_that_a_card_lacks_is_reported() {
    in_netns(async || {
        run("ip link add eth0 type veth peer name eth1");
        let mut node = Node::new();
        let devices = BTreeSet::from(["eth0".to_owned(), "missing".to_owned()]);
        let mut lacks = async || {
            let cards = node.kernel.cards(&devices).await;
            assert_eq!(cards.len(), 1, "{cards:?}");
            let lacks = cards[0].lacks.iter();
            let names = lacks.filter_map(|line| line.split_once(": "));
            names.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        };
        let all = ["rx-gro", "tx-udp-segmentation", "tx-udp_tnl-segmentation"];
        for feature in all {
            run(&format!("ethtool -K eth0 {feature} on"));
        }
        assert_eq!(lacks().await, [""; 0]);

        for feature in all {
            run(&format!("ethtool -K eth0 {feature} off"));
            assert_eq!(lacks().await, [feature]);
            run(&format!("ethtool -K eth0 {feature} on"));
        }
    });
}

#[test]
fn sockets_follow_the_ports_and_leave_a_port_in_use_alone() {
    in_netns(async || {
        let other = UdpSocket::bind("0.0.0.0:31820").unwrap();
        let mut sockets = crate::kernel::gro::Sockets::default();

        sockets.set(&BTreeSet::from([31_820, 31_821, 31_822]));
        assert_eq!(sockets.ports().collect::<Vec<_>>(), [31_821, 31_822]);
        assert_eq!(run("tail -n +2 /proc/self/net/udp | wc -l").trim(), "3");
        assert_eq!(getsockopt(&other, sockopt::UdpGroSegment), Ok(false));

        // A process that another test starts at this moment has copies of all sockets until it executes its program.
        drop(other);
        eventually("the socket of a port that is free again", async || {
            sockets.set(&BTreeSet::from([31_820, 31_822]));
            sockets.ports().eq([31_820, 31_822])
        })
        .await;
        eventually("a port without a tunnel is free again", async || {
            UdpSocket::bind("0.0.0.0:31821").is_ok()
        })
        .await;
    });
}
