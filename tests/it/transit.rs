//! Tests of traffic between two clusters without a peering. A third cluster, which is peered with
//! both, forwards the traffic. Its IP objects map the addresses of the pods.

use crate::fixture::{MILAN, PARIS, ROME, SAME, SOON, eventually, gateway_drops};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use tests::lab::Lab;
use tests::lab::pod::Pod;
use tests::lab::spec::{ClusterSpec, Spec};
use tests::traffic::{ping, tcp, udp};

/// Milan and paris, which are peered with rome only. Each has a pod with the address [`SAME`]. Rome
/// has an IP object for each of the two pods.
struct Leaves {
    lab: Lab,
    milan: Pod,
    /// The address at which milan reaches paris's pod.
    paris_seen: Ipv4Addr,
    paris: Pod,
    /// The address at which paris reaches milan's pod.
    milan_seen: Ipv4Addr,
}

impl Leaves {
    fn up() -> Self {
        let spec = Spec::new()
            .cluster(ClusterSpec::new(ROME))
            .cluster(ClusterSpec::new(MILAN))
            .cluster(ClusterSpec::new(PARIS))
            .peering(MILAN, ROME)
            .peering(PARIS, ROME);
        let mut lab = Lab::build(spec).unwrap();
        lab.write_fabrics().unwrap();
        for leaf in [MILAN, PARIS] {
            let at_hub = lab.seen_from(ROME, leaf, SAME).unwrap();
            lab.map_address(ROME, &format!("{leaf}-pod"), at_hub, false)
                .unwrap();
        }
        lab.start().unwrap();
        lab.wait_until_connected(SOON * 4).unwrap();

        let seen = |viewer: &str, leaf: &str| {
            let at_hub = lab.mapped(ROME, &format!("{leaf}-pod")).unwrap();
            lab.seen_from(viewer, ROME, at_hub).unwrap()
        };
        let (paris_seen, milan_seen) = (seen(MILAN, PARIS), seen(PARIS, MILAN));
        Self {
            milan: lab.add_pod(MILAN, 1, SAME).unwrap(),
            paris: lab.add_pod(PARIS, 1, SAME).unwrap(),
            lab,
            paris_seen,
            milan_seen,
        }
    }
}

#[test]
fn pods_with_ip_objects_reach_each_other_through_a_third_cluster() {
    let leaves = Leaves::up();
    let server = tcp::Server::start(&leaves.paris.netns, SAME, 7000).unwrap();
    let echo = udp::Echo::start(&leaves.milan.netns, SAME, 7001).unwrap();

    let to_paris = SocketAddrV4::new(leaves.paris_seen, 7000);
    let to_milan = SocketAddrV4::new(leaves.milan_seen, 7001);
    tcp::transfer(&leaves.milan.netns, to_paris, 2 << 20).unwrap();
    assert!(udp::is_echoed(&leaves.paris.netns, to_milan, b"salut"));
    assert!(ping::reaches(&leaves.milan.netns, leaves.paris_seen).unwrap());

    assert_eq!(server.client_addresses(), [IpAddr::from(leaves.milan_seen)]);
    assert_eq!(echo.clients()[0].ip(), IpAddr::from(leaves.paris_seen));
}

#[test]
fn a_pod_without_ip_object_may_not_use_the_third_cluster() {
    let mut leaves = Leaves::up();
    let other = leaves.lab.add_pod(MILAN, 1, [10, 244, 1, 77]).unwrap();
    let echo = udp::Echo::start(&leaves.paris.netns, SAME, 7000).unwrap();
    let to_paris = SocketAddrV4::new(leaves.paris_seen, 7000);

    assert!(!udp::is_echoed(&other.netns, to_paris, b"salut"));

    eventually("the drop to be counted", || {
        Ok(gateway_drops(&leaves.lab, ROME, "tap_transit_refused") > 0)
    });
    assert!(echo.clients().is_empty());
    assert!(udp::is_echoed(&leaves.milan.netns, to_paris, b"salut"));
}
