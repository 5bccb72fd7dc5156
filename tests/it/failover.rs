//! Tests that connections survive the loss of gateways.
//!
//! Most tests stop gateways one after the other while TCP and UDP flows send data. Every TCP flow
//! must keep its connection and transfer every byte correctly. The outage must not exceed one
//! second. UDP flows with a datagram every 10 ms measure the outage, because TCP's backoff prolongs
//! the pause of a TCP flow.

use crate::fixture::{MILAN, Pair, ROME, SOON, eventually};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tests::lab::wait;
use tests::traffic::tcp::{Server, Stream};
use tests::traffic::udp;

/// The longest outage that the loss of a replica may cause.
const GAP_MAX: Duration = Duration::from_secs(1);

/// The longest pause of a TCP connection, which is twice [`GAP_MAX`]. TCP doubles the time between
/// retransmissions.
const TCP_GAP_MAX: Duration = Duration::from_secs(2);

const FLOWS: usize = 8;

/// The interval between two datagrams of a flow.
const SAMPLE: Duration = Duration::from_millis(10);

/// Bytes per second of each flow. The rate is high enough to show a gap, and too low to load the
/// machine.
const RATE: u64 = 500_000;

/// The limit within which a restarted gateway must restore its sessions. One or two seconds are
/// usual. A gateway that waits for WireGuard's timers exceeds the limit.
const RECOVERY: Duration = Duration::from_secs(8);

#[test]
fn flows_survive_seven_kills_of_server_side_processes() {
    let _alone = alone();
    survive_process_kills(Pair::redundant(), MILAN, 7);
}

#[test]
fn flows_survive_seven_kills_of_client_side_processes() {
    let _alone = alone();
    survive_process_kills(Pair::redundant(), ROME, 7);
}

#[test]
fn flows_survive_kills_of_the_gateways_on_the_pods_nodes() {
    let _alone = alone();
    survive_process_kills(Pair::together(), MILAN, 3);
    survive_process_kills(Pair::together(), ROME, 3);
}

fn survive_process_kills(mut pair: Pair, cluster: &str, kills: usize) {
    let mut load = Load::start(&pair);

    for kill in 0..kills {
        let number = kill % 2 + 1;
        pair.lab.gateway(cluster, number).kill().unwrap();
        load.note(format!("kill of {cluster} {number}"));
        pair.lab.gateway(cluster, number).start().unwrap();
        pair.lab.wait_until_connected(RECOVERY).unwrap();
        load.note(format!("return of {cluster} {number}"));
    }

    load.finish();
}

/// A hanging gateway keeps its sockets open, and its eBPF programs continue to run.
#[test]
fn flows_survive_a_gateway_that_hangs() {
    let _alone = alone();
    let mut pair = Pair::redundant();
    let mut load = Load::start(&pair);

    for cluster in [ROME, MILAN] {
        pair.lab.gateway(cluster, 2).hang().unwrap();
        load.note(format!("hang of {cluster} 2"));
        pair.lab.gateway(cluster, 2).resume().unwrap();
        pair.lab.wait_until_connected(RECOVERY).unwrap();
        load.note(format!("return of {cluster} 2"));
    }

    load.finish();
}

#[test]
fn flows_survive_two_lost_pods_on_the_server_side() {
    survive_lost_pods(MILAN);
}

#[test]
fn flows_survive_two_lost_pods_on_the_client_side() {
    survive_lost_pods(ROME);
}

/// Deletes the network namespaces of two gateways, one after the other. Each lost gateway is
/// replaced by a new pod.
fn survive_lost_pods(cluster: &str) {
    let _alone = alone();
    let mut pair = Pair::redundant();
    let mut load = Load::start(&pair);

    for number in [1, 2] {
        let pod = pair.lab.cluster(cluster).gateway(number).pod.clone();
        pod.netns.destroy().unwrap();
        load.note(format!("loss of {cluster} {number}"));
        pair.lab.set_ready(cluster, number, false).unwrap();
        pair.lab.add_gateway(cluster).unwrap();
        pair.lab.wait_until_connected(RECOVERY).unwrap();
        load.note(format!("replacement of {cluster} {number}"));
    }

    load.finish();
}

#[test]
fn flows_survive_a_lost_node_on_the_server_side() {
    survive_a_lost_node(MILAN);
}

#[test]
fn flows_survive_a_lost_node_on_the_client_side() {
    survive_a_lost_node(ROME);
}

/// Kills the second node. The node runs a gateway, but no pod that sends or receives test traffic.
fn survive_a_lost_node(cluster: &str) {
    let _alone = alone();
    let mut pair = Pair::redundant();
    let mut load = Load::start(&pair);

    pair.lab.kill_node(cluster, 2).unwrap();
    load.note(format!("loss of node {cluster}-2"));

    load.finish();
}

#[test]
fn a_planned_stop_costs_no_packet() {
    lose_no_packet_in_planned_stops(Pair::redundant());
}

#[test]
fn a_planned_stop_of_the_gateways_on_the_pods_nodes_costs_no_packet() {
    lose_no_packet_in_planned_stops(Pair::together());
}

fn lose_no_packet_in_planned_stops(mut pair: Pair) {
    let echo = udp::Echo::start(&pair.milan.netns, pair.milan.address, 7000).unwrap();
    let flow = udp::Flow::start(
        &pair.rome.netns,
        pair.to_milan(7000),
        Duration::from_millis(2),
    )
    .unwrap();

    for cluster in [ROME, MILAN] {
        for number in [1, 2] {
            pair.lab
                .gateway(cluster, number)
                .stop(Duration::from_secs(15))
                .unwrap();
            pair.lab.gateway(cluster, number).start().unwrap();
            pair.lab.wait_until_connected(RECOVERY).unwrap();
        }
    }

    let outcome = flow.finish();
    assert_eq!(outcome.lost(), 0, "{outcome:?}");
    drop(echo);
}

#[test]
fn a_planned_stop_waits_for_agents_that_restart_meanwhile() {
    let mut pair = Pair::redundant();
    let ports = 7000..7008;
    let echoes = ports
        .clone()
        .map(|port| udp::Echo::start(&pair.milan.netns, pair.milan.address, port).unwrap());
    let _echoes: Vec<_> = echoes.collect();
    let interval = Duration::from_millis(2);
    // With eight flows, each gateway carries some of them.
    let flows = ports.map(|port| udp::Flow::start(&pair.rome.netns, pair.to_milan(port), interval));
    let flows: Vec<_> = flows.map(Result::unwrap).collect();
    for node in [1, 2, 3] {
        pair.lab.agent(ROME, node).kill().unwrap();
    }

    pair.lab.gateway(ROME, 1).terminate().unwrap();
    // The flow takes 3 s for 1,500 replies. A gateway that does not wait would have terminated by
    // then.
    let enough = flows[0].replies() + 1500;
    let passed = || Ok(flows[0].replies() > enough);
    wait::until(RECOVERY, "traffic while the gateway terminates", passed).unwrap();
    for node in [1, 2, 3] {
        pair.lab.agent(ROME, node).start().unwrap();
    }
    let gateway = pair.lab.gateway(ROME, 1);
    assert!(gateway.is_running(), "the gateway did not wait");
    wait::until(RECOVERY, "the termination", || Ok(!gateway.is_running())).unwrap();

    for flow in flows {
        let outcome = flow.finish();
        assert_eq!(outcome.lost(), 0, "{outcome:?}");
    }
}

#[test]
fn flows_are_spread_over_all_pairs_of_gateways() {
    // With 40 flows, each of the four pairs of gateways almost certainly carries at least one flow.
    let flows = 40;
    let pair = Pair::redundant();
    let load = Load::of(&pair, flows, RATE / 5);

    eventually("every pair of gateways to carry flows", || {
        let mut busy = Vec::new();
        for number in [1, 2] {
            let status = pair.lab.gateway_status(ROME, number)?;
            for session in tests::lab::status::sessions(&status) {
                busy.push(session["txBytes"].as_u64() > Some(BUSY_BYTES));
            }
        }
        Ok(busy.len() >= 4 && busy.iter().filter(|busy| **busy).count() >= 4)
    });

    load.finish();
}

#[test]
fn flows_between_nodes_with_gateways_use_only_these_gateways() {
    let pair = Pair::together();
    let load = Load::of(&pair, FLOWS, RATE);
    let sent = |cluster, number| {
        let status = pair.lab.gateway_status(cluster, number)?;
        let sessions = tests::lab::status::sessions(&status);
        let bytes = sessions.iter().filter_map(|it| it["txBytes"].as_u64());
        anyhow::Ok(bytes.sum::<u64>())
    };

    eventually("the gateways on the pods' nodes to carry the flows", || {
        Ok(sent(ROME, 1)? > 10 * BUSY_BYTES && sent(MILAN, 1)? > BUSY_BYTES)
    });
    load.finish();

    for cluster in [ROME, MILAN] {
        assert!(sent(cluster, 2).unwrap() < BUSY_BYTES, "{cluster}");
    }
}

/// The minimum number of bytes that a session with flows sends. Probes and handshakes alone need
/// fewer bytes.
const BUSY_BYTES: u64 = 50_000;

/// Serializes the tests that measure gaps.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// TCP flows from rome's pod to milan's, and the same number of UDP flows.
struct Load {
    server: Server,
    streams: Vec<Stream>,
    echo: udp::Echo,
    datagrams: Vec<udp::Flow>,
    /// The name of each event, and the longest gap of any TCP flow around the event.
    gaps: Vec<(String, Duration)>,
}

impl Load {
    fn start(pair: &Pair) -> Self {
        Self::of(pair, FLOWS, RATE)
    }

    fn of(pair: &Pair, flows: usize, rate: u64) -> Self {
        let server = Server::start(&pair.milan.netns, pair.milan.address, 7000).unwrap();
        let streams = (0..flows)
            .map(|_| Stream::start(&pair.rome.netns, pair.to_milan(7000), rate).unwrap())
            .collect();
        let echo = udp::Echo::start(&pair.milan.netns, pair.milan.address, 7001).unwrap();
        let datagrams = (0..flows)
            .map(|_| udp::Flow::start(&pair.rome.netns, pair.to_milan(7001), SAMPLE).unwrap())
            .collect();
        let load = Self {
            server,
            streams,
            echo,
            datagrams,
            gaps: Vec::new(),
        };
        load.wait_for_progress();

        load
    }

    fn wait_for_progress(&self) {
        for stream in &self.streams {
            stream.wait_for_progress(SOON).unwrap();
        }
    }

    /// Waits until all TCP flows have made progress after an event, and records the longest gap.
    fn note(&mut self, event: String) {
        // The first progress may be data that was in flight before the event. The second wait shows
        // progress after the event.
        self.wait_for_progress();
        std::thread::sleep(GAP_MAX);
        self.wait_for_progress();
        let gaps = self.streams.iter().map(Stream::take_longest_gap);
        self.gaps.push((event, gaps.max().unwrap_or_default()));
    }

    fn finish(self) {
        self.wait_for_progress();
        let flows = self.streams.len();
        for stream in self.streams {
            stream.finish().unwrap();
        }
        assert_eq!(self.server.clients().len(), flows, "a flow reconnected");
        for (event, gap) in &self.gaps {
            println!("{event}: {} ms", gap.as_millis());
        }
        let worst = self.gaps.iter().map(|(_, gap)| *gap).max();
        assert!(worst.unwrap_or_default() <= TCP_GAP_MAX, "{:?}", self.gaps);
        let outcomes = self.datagrams.into_iter().map(udp::Flow::finish);
        let silence = outcomes.map(|outcome| outcome.longest_gap).max();
        println!("datagrams: {silence:?}");
        assert!(silence.unwrap_or_default() <= GAP_MAX, "{silence:?}");
        drop(self.echo);
    }
}
