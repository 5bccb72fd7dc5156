//! Tests of restarts under running traffic.

use crate::fixture::{MILAN, Pair, ROME, SAME, SOON, eventually};
use std::time::Duration;
use tests::lab::{Lab, status, wait};
use tests::traffic::ping;
use tests::traffic::tcp::{Server, Stream};
use tests::traffic::udp;

const RATE: u64 = 1 << 20;

#[test]
fn a_stream_survives_the_restart_of_the_only_gateway() {
    let mut pair = Pair::small();
    let (server, stream) = stream(&pair);

    for cluster in [ROME, MILAN] {
        pair.lab.gateway(cluster, 1).restart().unwrap();
        stream.wait_for_progress(SOON * 3).unwrap();
        pair.lab.wait_until_connected(SOON * 4).unwrap();
    }
    stream.wait_for_progress(SOON).unwrap();

    stream.finish().unwrap();
    assert_eq!(server.clients().len(), 1);
}

#[test]
fn a_stream_survives_the_restart_of_gateway_and_route_agent_together() {
    let mut pair = Pair::small();
    let (server, stream) = stream(&pair);

    pair.lab.gateway(ROME, 1).kill().unwrap();
    pair.lab.agent(ROME, 1).kill().unwrap();
    pair.lab.gateway(ROME, 1).start().unwrap();
    pair.lab.agent(ROME, 1).start().unwrap();
    pair.lab.wait_until_connected(SOON * 4).unwrap();
    stream.wait_for_progress(SOON * 3).unwrap();

    stream.finish().unwrap();
    assert_eq!(server.clients().len(), 1);
}

#[test]
fn the_restart_of_a_route_agent_loses_no_packet() {
    let mut pair = Pair::small();
    let _echo = udp::Echo::start(&pair.milan.netns, SAME, 7000).unwrap();
    let interval = Duration::from_millis(2);
    let flow = udp::Flow::start(&pair.rome.netns, pair.to_milan(7000), interval).unwrap();
    eventually("the flow to run", || Ok(flow.replies() > 50));

    for cluster in [ROME, MILAN] {
        pair.lab.agent(cluster, 1).restart().unwrap();
        pair.lab.wait_until_connected(SOON * 4).unwrap();
    }

    let outcome = flow.finish();
    assert_eq!(outcome.lost(), 0, "{outcome:?}");
}

#[test]
fn traffic_continues_while_a_route_agent_is_dead() {
    let mut pair = Pair::small();

    pair.lab.agent(ROME, 1).kill().unwrap();

    let ping = ping::Ping {
        count: 100,
        interval: Some(Duration::from_millis(20)),
        ..ping::Ping::default()
    };
    let report = ping.run(&pair.rome.netns, pair.milan_seen).unwrap();
    assert!(report.is_complete(), "{}", report.text);
}

#[test]
fn a_replica_is_not_used_before_its_nodes_receive_its_replies() {
    let mut pair = Pair::together();
    let replica = pair.lab.cluster(MILAN).gateway(2).pod.name.clone();
    for node in [1, 2] {
        pair.lab.agent(MILAN, node).kill().unwrap();
    }
    pair.lab.gateway(MILAN, 2).kill().unwrap();
    eventually("rome to lose the replica and milan its agents", || {
        let status = pair.lab.gateway_status(MILAN, 1)?;
        let is_cut = status["path"]["nodes"]["cut"] == 2;
        Ok(is_cut && leaving(&pair.lab, &replica).is_empty())
    });

    pair.lab.gateway(MILAN, 2).start().unwrap();
    eventually("rome to discover the replica again", || {
        Ok(!leaving(&pair.lab, &replica).is_empty())
    });
    let sessions = leaving(&pair.lab, &replica);
    assert!(sessions.iter().all(|it| *it), "{sessions:?}");

    // The route agents of milan do not run, so milan's nodes never discover the new replica, and
    // drop its packets. After a time-out, the replica must nevertheless stop advertising itself as
    // leaving.
    wait::until(SOON * 2, "the replica to be used", || {
        let sessions = leaving(&pair.lab, &replica);
        Ok(!sessions.is_empty() && !sessions.contains(&true))
    })
    .unwrap();
}

/// Returns one value for each live session between rome and the replica. The value is true if the
/// replica advertises itself as leaving, so that rome prefers other replicas.
fn leaving(lab: &Lab, replica: &str) -> Vec<bool> {
    let status = lab.gateway_status(ROME, 1).unwrap();
    let live = status::sessions(&status).into_iter();
    live.filter(|it| it["state"] == "live" && it["replica"] == replica)
        .map(|session| session["leaving"] == true)
        .collect()
}

#[test]
fn a_gateway_never_exceeds_its_memory_limit() {
    let mut pair = Pair::small();

    for cluster in [ROME, MILAN] {
        let usage = pair.lab.gateway(cluster, 1).usage().unwrap();

        assert!(usage.peak_bytes <= PEAK_MAX, "{usage:?}");
    }
}

/// Upper bound of a gateway's resident memory in bytes.
const PEAK_MAX: u64 = 20_000_000;

#[test]
fn a_changed_file_keeps_all_sessions() {
    let mut pair = Pair::small();
    let _echo = udp::Echo::start(&pair.milan.netns, SAME, 7000).unwrap();
    let interval = Duration::from_millis(2);
    let flow = udp::Flow::start(&pair.rome.netns, pair.to_milan(7000), interval).unwrap();
    eventually("the flow to run", || Ok(flow.replies() > 50));

    for (index, cluster) in [ROME, MILAN, ROME].into_iter().enumerate() {
        let name = format!("extra-{index}");
        let address = [10, 244, 1, 100 + index as u8].into();
        pair.lab
            .map_address(cluster, &name, address, false)
            .unwrap();
        pair.lab.write_fabric(cluster).unwrap();
    }
    let added = pair.lab.add_node(MILAN).unwrap();
    pair.lab.wait_until_connected(SOON * 4).unwrap();

    assert_eq!(added, 2);
    let outcome = flow.finish();
    assert_eq!(outcome.lost(), 0, "{outcome:?}");
}

#[test]
fn pods_of_a_new_node_reach_remote_pods_at_once() {
    let mut pair = Pair::small();
    pair.lab.add_node(ROME).unwrap();
    let pod = pair.lab.add_pod(ROME, 2, [10, 244, 2, 10]).unwrap();
    let _echo = udp::Echo::start(&pair.milan.netns, SAME, 7000).unwrap();

    pair.lab.wait_until_connected(SOON * 4).unwrap();

    eventually("replies to the new node's pod", || {
        Ok(udp::is_echoed(&pod.netns, pair.to_milan(7000), b"ave"))
    });
}

#[test]
fn state_that_another_program_removes_is_restored_within_two_seconds() {
    let pair = Pair::small();
    let node = &pair.lab.cluster(ROME).node(1).netns;
    let two_seconds = Duration::from_secs(2);

    for removal in [
        "for to in $(ip route show table 27761 | grep -o '[0-9.]*/[0-9]*' | sort -u); do \
         while ip route del $to table 27761; do :; done; done 2>&1",
        "ip rule del priority 27761",
        "nft delete table inet liqo",
        "ip nexthop flush proto 108",
        "ip link del liqo-overlay",
    ] {
        node.exec("sh", &["-c", removal], "").unwrap();

        let restored = tests::lab::wait::until(two_seconds, "the path to be restored", || {
            let echo = ping::Ping {
                count: 1,
                timeout: Duration::from_secs(1),
                ..ping::Ping::default()
            };
            Ok(echo.run(&pair.rome.netns, pair.milan_seen)?.is_complete())
        });
        assert!(restored.is_ok(), "after: {removal}");
    }
}

/// Starts a TCP stream from rome's pod to milan's, and waits for its first bytes.
fn stream(pair: &Pair) -> (Server, Stream) {
    let server = Server::start(&pair.milan.netns, SAME, 7000).unwrap();
    let stream = Stream::start(&pair.rome.netns, pair.to_milan(7000), RATE).unwrap();
    stream.wait_for_progress(SOON).unwrap();

    (server, stream)
}
