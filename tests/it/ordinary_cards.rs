//! Tests over cards without UDP segmentation, which deliver each datagram of a tunnel by itself.

use crate::fixture::{MILAN, Pair, ROME, SAME, SOON, two};
use tests::lab::link::{End, without_segmentation};
use tests::lab::spec::Spec;
use tests::lab::{Lab, wait};
use tests::traffic::tcp;

/// The payload of a transfer: 25,000 datagrams of the tunnel.
const BYTES: u64 = 32 << 20;

/// Datagrams of 1,500 bytes in [`BYTES`], at least.
const DATAGRAMS: u64 = BYTES / 1500;

#[test]
fn the_kernel_joins_datagrams_on_their_way_to_gateways() {
    let pair = ordinary(two(1, 1));
    let features = features(&pair.lab);
    wait_for_tunnel_ports(&pair.lab);

    let [to_milan, to_rome] = packets_of_transfers(&pair);

    // Acknowledgements and overlay frames of the other direction are packets, too.
    assert!(to_milan < DATAGRAMS / 4, "milan's gateway: {to_milan}");
    assert!(to_rome < DATAGRAMS / 4, "rome's gateway: {to_rome}");
    assert_eq!(self::features(&pair.lab), features, "no card was changed");
}

#[test]
fn without_the_sockets_each_datagram_reaches_the_gateway_by_itself() {
    let mut pair = ordinary(two(1, 1));
    for cluster in [ROME, MILAN] {
        let agent = pair.lab.agent(cluster, 1);
        agent.push_arg("--tunnel-gro=false");
        agent.restart().unwrap();
    }
    pair.lab.wait_until_connected(SOON * 4).unwrap();

    let counts = packets_of_transfers(&pair);

    assert!(counts.iter().all(|it| *it > DATAGRAMS), "{counts:?}");
    for cluster in [ROME, MILAN] {
        let status = pair.lab.agent_status(cluster, 1).unwrap();
        assert_eq!(status["tunnelPorts"], serde_json::json!([]));
    }
}

/// Starts clusters whose nodes have cards without segmentation and with GRO.
fn ordinary(spec: Spec) -> Pair {
    let lab = Lab::up(spec).unwrap();
    for cluster in lab.clusters() {
        for (number, node) in (1..).zip(&cluster.nodes) {
            let ends = [
                (&node.netns, "eth0".to_owned()),
                (&cluster.edge, format!("node-{number}")),
            ];
            for (netns, device) in ends {
                let device = device.as_str();
                without_segmentation(End { netns, device }).unwrap();
            }
        }
    }

    Pair::of(lab)
}

fn wait_for_tunnel_ports(lab: &Lab) {
    wait::until(SOON * 4, "the agents to find the ports of tunnels", || {
        for cluster in [ROME, MILAN] {
            let status = lab.agent_status(cluster, 1)?;
            let ports = status["tunnelPorts"].as_array();
            if ports.is_none_or(Vec::is_empty) {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .unwrap();
}

/// Returns the number of packets that each gateway's pod has received during a transfer to the pod of its cluster: milan's, rome's.
fn packets_of_transfers(pair: &Pair) -> [u64; 2] {
    let server = tcp::Server::start(&pair.milan.netns, SAME, 7000).unwrap();
    let before = received(&pair.lab, MILAN);
    let outcome = tcp::transfer(&pair.rome.netns, pair.to_milan(7000), BYTES).unwrap();
    assert_eq!(outcome.bytes, BYTES);
    let to_milan = received(&pair.lab, MILAN) - before;
    drop(server);

    let _server = tcp::Server::start(&pair.rome.netns, SAME, 7000).unwrap();
    let before = received(&pair.lab, ROME);
    let outcome = tcp::transfer(&pair.milan.netns, pair.to_rome(7000), BYTES).unwrap();
    assert_eq!(outcome.bytes, BYTES);

    [to_milan, received(&pair.lab, ROME) - before]
}

/// Returns the number of packets that the pod of a cluster's only gateway has received.
fn received(lab: &Lab, cluster: &str) -> u64 {
    let pod = &lab.cluster(cluster).gateway(1).pod;
    let arguments = ["-json", "-statistics", "link", "show", "dev", "eth0"];
    let links = pod.netns.exec("ip", &arguments, "").unwrap();
    let links: serde_json::Value = serde_json::from_str(&links).unwrap();

    links[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

fn features(lab: &Lab) -> String {
    let nodes = lab.clusters().flat_map(|cluster| &cluster.nodes);
    let features = nodes.map(|node| node.netns.exec("ethtool", &["-k", "eth0"], "").unwrap());

    features.collect()
}
