//! Tests that the agent's nft table drops overlay frames with a spoofed outer source.

use super::*;
use crate::filter::REVERSE_PATH;
use crate::testing::gateway::listening;
use std::net::UdpSocket;

#[test]
fn a_pod_cannot_send_as_a_gateway() {
    in_netns(async || {
        let gateway = Gateway::new(1);
        let pod = pod();
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;

        pod.with(|| UdpSocket::bind("172.16.0.11:6091"))
            .unwrap()
            .send_to(b"forged", "172.16.0.1:6091")
            .unwrap();

        agent.eventually("counted the frame", dropped(1)).await;
        assert_received(&gateway);
    });
}

#[test]
fn a_frame_may_arrive_on_another_interface_of_the_underlay_than_the_reverse_path() {
    in_netns(async || {
        // Replica 2 is on the node rome-2. The route to rome-2 makes gw2 an underlay interface.
        let gateway = Gateway::new(2);
        route_elsewhere("172.16.0.12");
        run("ip route add 172.16.0.2 dev gw2");

        let agent = Running::start().await;

        assert_received(&gateway);
        assert!(dropped(0)(&agent.status.read()));
    });
}

#[test]
fn a_frame_is_not_checked_on_a_trusted_interface() {
    for (trusted, drops) in [("eni*", 1), ("gw*", 0)] {
        in_netns(async move || {
            let gateway = Gateway::new(1);
            route_elsewhere("172.16.0.11");
            let directory = Directory::new(&fabric_file());
            let mut options = options(&directory);
            options.settings.trusted_interfaces = vec![trusted.into()];
            let status = Shared::default();
            let mut agent = Agent::start(options, status.clone()).await.unwrap();
            let task = tokio::spawn(async move { agent.run().await });
            let running = Running {
                directory,
                status,
                task,
            };

            if drops == 0 {
                assert_received(&gateway);
            } else {
                send(&gateway);
            }

            running.eventually("counted", dropped(drops)).await;
        });
    }
}

/// Returns a condition that holds if the reverse path check has dropped `count` frames.
fn dropped(count: u64) -> impl Fn(&Status) -> bool {
    move |status| status.drops.get(REVERSE_PATH).copied().unwrap_or_default() == count
}

/// Routes `address` to an interface on which no packets from `address` arrive. A CNI with its own
/// overlay network may create such an asymmetric route.
fn route_elsewhere(address: &str) {
    run(&format!(
        "ip link add tunnel type veth peer name beyond; ip link set tunnel up; ip link set beyond up
         ip route replace {address} dev tunnel"
    ));
}

/// Sends a packet from a remote pod to the node, and asserts that the packet arrives.
fn assert_received(gateway: &Gateway) {
    let here = listening("10.70.0.1:7000");
    send(gateway);

    let (_, from) = here.recv_from(&mut [0; 8]).expect("nothing arrived");
    assert_eq!(from.to_string(), "10.245.1.10:7001");
}

fn send(gateway: &Gateway) {
    let remote = gateway.remote_pod(7001);
    remote.send_to(b"x", "10.70.0.1:7000").unwrap();
}

/// Creates a pod whose loopback interface has the address of a gateway.
fn pod() -> Namespace {
    let pod = Namespace::new();
    pod.connect("pod1");
    run("ip address add 169.254.1.1/32 dev pod1; ip route add 10.244.1.10 dev pod1");
    pod.run(
        "ip address add 10.244.1.10/32 dev eth0; ip address add 172.16.0.11/32 dev lo
         ip route add 169.254.1.1 dev eth0; ip route add default via 169.254.1.1",
    );

    pod
}
