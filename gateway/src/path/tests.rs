use super::*;
use ebpf_common::probe::{HAS_ECHO_RESPONDER, NodeReport, Probe, RECEIVES_REPLIES, STOPPING};
use proptest::prelude::*;
use std::collections::BTreeSet;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_healthy_path_is_reported_once() {
    let mut lab = Lab::new(&["milan"]);

    let reports = lab.run(20);

    assert_eq!(reasons(&reports), [("milan", Reason::EndToEnd)]);
    assert_eq!(lab.paths.nodes(), fine(3));
}

#[test]
fn a_silent_node_is_named_within_four_seconds() {
    let mut lab = Lab::settled(&["milan", "turin"]);

    lab.nodes[1].is_silent = true;
    let reports = lab.run(4);

    let expected = [
        ("milan", Reason::LocalOverlay),
        ("turin", Reason::LocalOverlay),
    ];
    assert_eq!(reasons(&reports), expected);
    let message = &reports[0].1.message;
    assert!(message.contains("node rome-1:"), "{message}");
    assert!(message.contains("gateway gw-1"), "{message}");
    assert!(message.contains("from node to gateway"), "{message}");
    assert_eq!(lab.paths.nodes().cut, 1);
    assert_eq!(
        lab.paths.unhealthy_nodes().collect::<Vec<_>>(),
        [("rome-1", Overlay::Silent)]
    );
}

#[test]
fn a_deaf_node_is_named_within_two_checks() {
    let mut lab = Lab::settled(&["milan"]);

    lab.nodes[2].flags = HAS_ECHO_RESPONDER;
    assert_eq!(lab.run(1), []);
    let reports = lab.run(1);

    assert_eq!(reasons(&reports), [("milan", Reason::LocalOverlay)]);
    assert!(reports[0].1.message.contains("from gateway to node"));
}

#[test]
fn the_end_of_a_fault_is_reported_late_and_an_intermittent_fault_seldom() {
    let mut lab = Lab::settled(&["milan"]);

    let mut writes = 0;
    for second in 0..60 {
        lab.nodes[0].flags = if second % 4 < 3 {
            HAS_ECHO_RESPONDER
        } else {
            ALL
        };
        writes += lab.run(1).len();
    }
    assert_eq!(writes, 1);
    lab.nodes[0].flags = ALL;
    assert_eq!(lab.run(1), []);
    assert_eq!(reasons(&lab.run(2)), [("milan", Reason::EndToEnd)]);
}

#[test]
fn a_replica_is_known_when_its_replies_reach_every_ready_node() {
    let known = |lab: &Lab| is_known_to_all(&lab.nodes(), &lab.last_requests());
    let mut lab = Lab::new(&["milan"]);
    assert!(!known(&lab), "no probe has arrived");

    lab.nodes[1].flags = HAS_ECHO_RESPONDER;
    lab.run(1);
    assert!(!known(&lab), "one is deaf");

    lab.nodes[1].flags = ALL;
    lab.nodes[2].is_old = true;
    lab.run(1);
    assert!(known(&lab), "an earlier version does not report that");

    let mut node = TestNode::new(9);
    node.node.ready = false;
    lab.nodes.push(node);
    assert!(known(&lab), "a node that is not ready does not count");
    lab.nodes[3].node.ready = true;
    assert!(!known(&lab));

    let mut lab = Lab::settled(&["milan"]);
    assert!(known(&lab));
    lab.nodes[1].is_silent = true;
    lab.run(3);
    assert!(!known(&lab), "its last probe is old");
}

/// An API server that was away for a minute makes every node unready.
#[test]
fn a_replica_is_known_to_unready_nodes_if_no_node_is_ready() {
    let mut lab = Lab::new(&["milan"]);
    for node in &mut lab.nodes {
        node.node.ready = false;
    }
    let known = |lab: &Lab| is_known_to_all(&lab.nodes(), &lab.last_requests());
    assert!(!known(&lab), "no probe has arrived");

    lab.run(1);
    assert!(known(&lab));
}

#[test]
fn a_stopped_route_agent_is_a_fault_after_a_minute() {
    let mut lab = Lab::settled(&["milan"]);

    lab.nodes[0].flags = ALL | STOPPING;
    lab.run(1);
    lab.nodes[0].is_silent = true;
    assert_eq!(lab.run(57), []);
    assert_eq!(lab.paths.nodes().resting, 1);

    assert_eq!(reasons(&lab.run(5)), [("milan", Reason::LocalOverlay)]);
}

#[test]
fn a_new_node_is_a_fault_after_half_a_minute_unless_it_is_not_ready() {
    let mut lab = Lab::settled(&["milan"]);
    let mut node = TestNode::new(3);
    node.is_silent = true;
    lab.nodes.push(node);
    assert_eq!(lab.run(29), []);
    assert_eq!(lab.paths.nodes().resting, 1);
    assert_eq!(reasons(&lab.run(4)), [("milan", Reason::LocalOverlay)]);

    lab.nodes[3].node.ready = false;

    assert_eq!(reasons(&lab.run(4)), [("milan", Reason::EndToEnd)]);
    assert_eq!(lab.paths.nodes(), fine(3));
}

#[test]
fn a_node_of_an_earlier_version_is_healthy_while_it_probes() {
    let mut lab = Lab::settled(&["milan"]);

    for node in &mut lab.nodes {
        node.is_old = true;
    }
    let reports = lab.run(20);

    assert_eq!(reasons(&reports), [("milan", Reason::ToRemoteGateway)]);
    assert!(!lab.paths.nodes().echo_responder);
    lab.nodes[0].is_silent = true;
    assert_eq!(reasons(&lab.run(4)), [("milan", Reason::LocalOverlay)]);
}

#[test]
fn the_advertised_health_of_remote_nodes_is_reported() {
    let mut lab = Lab::settled(&["milan"]);

    lab.remote("milan", Some(Nodes { cut: 1, ..fine(2) }));
    let reports = lab.run(1);

    assert_eq!(reasons(&reports), [("milan", Reason::RemoteOverlay)]);
    let message = &reports[0].1.message;
    assert!(
        message.starts_with("1 of 2 nodes of milan are cut off"),
        "{message}"
    );
}

#[test]
fn a_check_that_fails_on_one_node_is_a_fault_of_that_node() {
    let mut lab = Lab::settled(&["milan", "turin"]);

    lab.nodes[1].lost.insert(1);
    assert_eq!(lab.run(1), []);
    let reports = lab.run(1);

    assert_eq!(reasons(&reports), [("turin", Reason::Node)]);
    assert!(reports[0].1.message.starts_with("node rome-1: "));
}

#[test]
fn a_check_that_fails_on_all_nodes_is_a_fault_from_node_to_node() {
    let mut lab = Lab::settled(&["milan"]);

    for node in &mut lab.nodes {
        node.lost.insert(0);
    }
    let reports = lab.run(2);

    assert_eq!(reasons(&reports), [("milan", Reason::NodeToNode)]);
}

#[test]
fn checks_count_only_while_remote_nodes_reply() {
    for remote in [
        None,
        Some(Nodes {
            echo_responder: false,
            ..fine(2)
        }),
        Some(Nodes {
            resting: 1,
            ..fine(2)
        }),
    ] {
        let mut lab = Lab::settled(&["milan"]);
        lab.remote("milan", remote);
        lab.run(3);
        lab.nodes[1].lost.insert(0);

        assert_eq!(lab.run(10), [], "{remote:?}");
    }
}

#[test]
fn checks_that_failed_before_the_tunnel_was_up_do_not_count() {
    let mut lab = Lab::settled(&["milan"]);
    lab.connection("milan", ConnectionState::Error);
    for node in &mut lab.nodes {
        node.lost.insert(0);
    }
    let expected = [("milan", Reason::Tunnel), ("milan", Reason::NothingArrives)];
    assert_eq!(reasons(&lab.run(10)), expected);

    lab.connection("milan", ConnectionState::Connected);
    lab.run(2);
    lab.nodes.iter_mut().for_each(|node| node.lost.clear());

    assert_eq!(reasons(&lab.run(5)), [("milan", Reason::EndToEnd)]);
}

#[test]
fn ranks_in_another_list_of_clusters_are_ignored() {
    let mut lab = Lab::settled(&["milan", "turin"]);

    lab.nodes[0].clusters = vec!["turin".to_owned()];
    lab.nodes[0].lost.insert(0);

    assert_eq!(lab.run(10), []);
}

#[test]
fn upstream_gateways_do_not_report_their_nodes() {
    let mut lab = Lab::settled(&["milan"]);

    lab.paths.note_remote("milan", Kind::Upstream, None);
    let reports = lab.run(5);

    assert_eq!(reasons(&reports), [("milan", Reason::ToRemoteGateway)]);
    assert!(
        reports[0]
            .1
            .message
            .contains("do not report the path behind them")
    );
}

#[test]
fn a_message_names_three_nodes_and_how_many_more() {
    let mut lab = Lab::settled(&["milan"]);
    lab.nodes.extend((3..9).map(TestNode::new));
    lab.run(5);

    for node in &mut lab.nodes {
        node.is_silent = true;
    }
    let reports = lab.run(4);

    let message = &reports[0].1.message;
    assert!(
        message.starts_with("nodes rome-0, rome-1, rome-2 and 6 more:"),
        "{message}"
    );
    assert!(message.contains("(9 of 9 nodes)"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any sequence of faults, the last report is the final state, and each peer has at most
    /// one report per two checks.
    #[test]
    fn the_final_state_is_reported_and_reports_are_limited(
        steps in prop::collection::vec((0..3usize, 0..16u16, any::<bool>(), any::<bool>()), 1..80),
    ) {
        let mut lab = Lab::settled(&["milan"]);
        let mut reports = Vec::new();
        for (at, flags, is_silent, is_lost) in &steps {
            let node = &mut lab.nodes[*at];
            node.flags = *flags & !STOPPING;
            node.is_silent = *is_silent;
            node.lost = is_lost.then_some(0).into_iter().collect();
            reports.extend(lab.run(1));
        }
        prop_assert!(reports.len() <= steps.len() / 2 + 2, "{reports:?} in {} s", steps.len());

        lab.nodes = (0..3).map(TestNode::new).collect();
        reports.extend(lab.run(10));
        let last = reports.last().map_or(Reason::EndToEnd, |(_, verdict)| verdict.reason);
        prop_assert_eq!(last, Reason::EndToEnd);
    }
}

const ALL: u16 = RECEIVES_REPLIES | HAS_ECHO_RESPONDER;

/// Simulates a gateway and its nodes, under virtual time.
struct Lab {
    paths: Paths,
    clusters: Vec<String>,
    nodes: Vec<TestNode>,
    now: Instant,
}

struct TestNode {
    node: Node,
    flags: u16,
    lost: BTreeSet<usize>,
    /// The node's list of clusters; empty if it equals the gateway's list.
    clusters: Vec<String>,
    is_old: bool,
    is_silent: bool,
    last_request: LastRequest,
    seen: Option<Instant>,
}

impl TestNode {
    fn new(number: u8) -> Self {
        Self {
            node: Node {
                name: format!("rome-{number}"),
                internal_ip: Ipv4Addr::new(172, 18, 0, number),
                pod_cidrs: Vec::new(),
                external_ip: Ipv4Addr::new(10, 70, 0, number),
                ready: true,
            },
            flags: ALL,
            lost: BTreeSet::new(),
            clusters: Vec::new(),
            is_old: false,
            is_silent: false,
            last_request: LastRequest::NONE,
            seen: None,
        }
    }

    fn probe(&mut self, clusters: &[String], now: Instant) {
        if self.is_silent {
            return;
        }
        let clusters = if self.clusters.is_empty() {
            clusters
        } else {
            &self.clusters
        };
        let digest = digest(clusters.iter().map(String::as_str));
        let mut probe = Probe::request(1, 2);
        if !self.is_old {
            probe = probe.with_report(&NodeReport::new(
                self.flags,
                digest,
                self.lost.iter().copied(),
            ));
        }
        self.last_request.body = probe.body;
        self.seen = Some(now);
    }
}

impl Lab {
    /// Creates a gateway that is connected to gateways of this project. Each peer has two nodes,
    /// and nothing has been reported yet.
    fn new(clusters: &[&str]) -> Self {
        let now = Instant::now();
        let mut lab = Self {
            paths: Paths::new("gw-1"),
            clusters: clusters.iter().map(ToString::to_string).collect(),
            nodes: (0..3).map(TestNode::new).collect(),
            now,
        };
        let role = TunnelRole::Server { port: 51_840 };
        let peers = clusters
            .iter()
            .map(|cluster| (*cluster, role.clone(), true));
        lab.paths.set_peers(peers, now);
        for cluster in clusters {
            lab.connection(cluster, ConnectionState::Connected);
            lab.remote(cluster, Some(fine(2)));
        }
        lab
    }

    fn settled(clusters: &[&str]) -> Self {
        let mut lab = Self::new(clusters);
        lab.run(10);
        lab
    }

    fn connection(&mut self, cluster: &str, state: ConnectionState) {
        self.paths.note_connection(cluster, state, self.now);
    }

    fn remote(&mut self, cluster: &str, nodes: Option<Nodes>) {
        self.paths.note_remote(cluster, Kind::Ours, nodes);
    }

    /// Advances time by `seconds`, and returns the reports.
    fn run(&mut self, seconds: u64) -> Vec<(String, Verdict)> {
        let mut reports = Vec::new();
        for _ in 0..seconds {
            for node in &mut self.nodes {
                node.probe(
                    &self.clusters,
                    self.now + SECOND - Duration::from_millis(150),
                );
            }
            self.now += SECOND;
            self.paths
                .check(&self.nodes(), &self.last_requests(), self.now);
            reports.extend(self.paths.poll_changes(self.now));
        }
        reports
    }

    fn nodes(&self) -> control_fabric::List<Node> {
        self.nodes.iter().map(|it| it.node.clone()).collect()
    }

    fn last_requests(&self) -> BTreeMap<Ipv4Addr, (Duration, LastRequest)> {
        let seen = self.nodes.iter().filter_map(|it| {
            let age = self.now.duration_since(it.seen?);
            Some((it.node.internal_ip, (age, it.last_request)))
        });
        seen.collect()
    }
}

fn fine(all: u32) -> Nodes {
    Nodes {
        all,
        cut: 0,
        resting: 0,
        echo_responder: true,
    }
}

fn reasons(reports: &[(String, Verdict)]) -> Vec<(&str, Reason)> {
    reports
        .iter()
        .map(|(cluster, verdict)| (cluster.as_str(), verdict.reason))
        .collect()
}
