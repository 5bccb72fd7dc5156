use super::*;
use ebpf_common::probe::{HEARS, Probe, REFLECTS, RESTS, Statement};
use proptest::prelude::*;
use std::collections::BTreeSet;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_whole_way_is_told_once() {
    let mut lab = Lab::new(&["milan"]);

    let news = lab.run(20);

    assert_eq!(reasons(&news), [("milan", Reason::EndToEnd)]);
    assert_eq!(lab.paths.nodes(), fine(3));
}

#[test]
fn a_silent_node_is_named_within_four_seconds() {
    let mut lab = Lab::settled(&["milan", "turin"]);

    lab.nodes[1].is_silent = true;
    let news = lab.run(4);

    let expected = [
        ("milan", Reason::LocalOverlay),
        ("turin", Reason::LocalOverlay),
    ];
    assert_eq!(reasons(&news), expected);
    let message = &news[0].1.message;
    assert!(message.contains("node rome-1:"), "{message}");
    assert!(message.contains("gateway gw-1"), "{message}");
    assert!(message.contains("from node to gateway"), "{message}");
    assert_eq!(lab.paths.nodes().cut, 1);
    assert_eq!(
        lab.paths.ill_nodes().collect::<Vec<_>>(),
        [("rome-1", Overlay::Silent)]
    );
}

#[test]
fn a_node_that_only_speaks_is_named_within_two_looks() {
    let mut lab = Lab::settled(&["milan"]);

    lab.nodes[2].said = REFLECTS;
    assert_eq!(lab.run(1), []);
    let news = lab.run(1);

    assert_eq!(reasons(&news), [("milan", Reason::LocalOverlay)]);
    assert!(news[0].1.message.contains("from gateway to node"));
}

#[test]
fn healing_is_told_after_a_while_and_a_fault_that_comes_and_goes_costs_few_writes() {
    let mut lab = Lab::settled(&["milan"]);

    let mut writes = 0;
    for second in 0..60 {
        lab.nodes[0].said = if second % 4 < 3 { REFLECTS } else { ALL };
        writes += lab.run(1).len();
    }
    assert_eq!(writes, 1);
    lab.nodes[0].said = ALL;
    assert_eq!(lab.run(1), []);
    assert_eq!(reasons(&lab.run(2)), [("milan", Reason::EndToEnd)]);
}

#[test]
fn a_replica_is_known_when_every_ready_node_hears_it() {
    let known = |lab: &Lab| is_known_to_all(&lab.nodes(), &lab.sightings());
    let mut lab = Lab::new(&["milan"]);
    assert!(!known(&lab), "no probe has come");

    lab.nodes[1].said = REFLECTS;
    lab.run(1);
    assert!(!known(&lab), "one does not hear");

    lab.nodes[1].said = ALL;
    lab.nodes[2].is_old = true;
    lab.run(1);
    assert!(known(&lab), "that of an earlier version says nothing");

    let mut node = TestNode::new(9);
    node.node.ready = false;
    lab.nodes.push(node);
    assert!(known(&lab), "one that is not ready is not waited for");
    lab.nodes[3].node.ready = true;
    assert!(!known(&lab));

    let mut lab = Lab::settled(&["milan"]);
    assert!(known(&lab));
    lab.nodes[1].is_silent = true;
    lab.run(3);
    assert!(!known(&lab), "what it said is old");
}

#[test]
fn a_route_agent_that_is_asked_to_stop_has_a_minute() {
    let mut lab = Lab::settled(&["milan"]);

    lab.nodes[0].said = ALL | RESTS;
    lab.run(1);
    lab.nodes[0].is_silent = true;
    assert_eq!(lab.run(57), []);
    assert_eq!(lab.paths.nodes().resting, 1);

    assert_eq!(reasons(&lab.run(5)), [("milan", Reason::LocalOverlay)]);
}

#[test]
fn a_new_node_has_half_a_minute_and_one_that_is_not_ready_does_not_count() {
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
fn a_node_of_an_earlier_version_is_well_while_it_asks() {
    let mut lab = Lab::settled(&["milan"]);

    for node in &mut lab.nodes {
        node.is_old = true;
    }
    let news = lab.run(20);

    assert_eq!(reasons(&news), [("milan", Reason::ToRemoteGateway)]);
    assert!(!lab.paths.nodes().reflect);
    lab.nodes[0].is_silent = true;
    assert_eq!(reasons(&lab.run(4)), [("milan", Reason::LocalOverlay)]);
}

#[test]
fn what_the_peer_tells_of_its_nodes_is_told() {
    let mut lab = Lab::settled(&["milan"]);

    lab.remote("milan", Some(Nodes { cut: 1, ..fine(2) }));
    let news = lab.run(1);

    assert_eq!(reasons(&news), [("milan", Reason::RemoteOverlay)]);
    let message = &news[0].1.message;
    assert!(
        message.starts_with("1 of 2 nodes of milan are cut off"),
        "{message}"
    );
}

#[test]
fn a_check_that_fails_on_one_node_is_that_nodes_fault() {
    let mut lab = Lab::settled(&["milan", "turin"]);

    lab.nodes[1].lost.insert(1);
    assert_eq!(lab.run(1), []);
    let news = lab.run(1);

    assert_eq!(reasons(&news), [("turin", Reason::Node)]);
    assert!(news[0].1.message.starts_with("node rome-1: "));
}

#[test]
fn a_check_that_fails_on_all_nodes_is_somewhere_between() {
    let mut lab = Lab::settled(&["milan"]);

    for node in &mut lab.nodes {
        node.lost.insert(0);
    }
    let news = lab.run(2);

    assert_eq!(reasons(&news), [("milan", Reason::NodeToNode)]);
}

#[test]
fn checks_count_only_where_somebody_answers_them() {
    for remote in [
        None,
        Some(Nodes {
            reflect: false,
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
    let told = [("milan", Reason::Tunnel), ("milan", Reason::NothingArrives)];
    assert_eq!(reasons(&lab.run(10)), told);

    lab.connection("milan", ConnectionState::Connected);
    lab.run(2);
    lab.nodes.iter_mut().for_each(|node| node.lost.clear());

    assert_eq!(reasons(&lab.run(5)), [("milan", Reason::EndToEnd)]);
}

#[test]
fn ranks_of_another_list_of_clusters_mean_nothing() {
    let mut lab = Lab::settled(&["milan", "turin"]);

    lab.nodes[0].clusters = vec!["turin".to_owned()];
    lab.nodes[0].lost.insert(0);

    assert_eq!(lab.run(10), []);
}

#[test]
fn upstreams_gateways_tell_nothing_of_their_nodes() {
    let mut lab = Lab::settled(&["milan"]);

    lab.paths.note_remote("milan", Kind::Upstream, None);
    let news = lab.run(5);

    assert_eq!(reasons(&news), [("milan", Reason::ToRemoteGateway)]);
    assert!(
        news[0]
            .1
            .message
            .contains("gateways of its kind tell nothing")
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
    let news = lab.run(4);

    let message = &news[0].1.message;
    assert!(
        message.starts_with("nodes rome-0, rome-1, rome-2 and 6 more:"),
        "{message}"
    );
    assert!(message.contains("(9 of 9 nodes)"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes and goes: what is told in the end is what is, and each peer is told of at
    /// most every second look.
    #[test]
    fn the_end_is_told_and_never_too_much(
        steps in prop::collection::vec((0..3usize, 0..16u16, any::<bool>(), any::<bool>()), 1..80),
    ) {
        let mut lab = Lab::settled(&["milan"]);
        let mut told = Vec::new();
        for (at, said, is_silent, is_lost) in &steps {
            let node = &mut lab.nodes[*at];
            node.said = *said & !RESTS;
            node.is_silent = *is_silent;
            node.lost = is_lost.then_some(0).into_iter().collect();
            told.extend(lab.run(1));
        }
        prop_assert!(told.len() <= steps.len() / 2 + 2, "{told:?} in {} s", steps.len());

        lab.nodes = (0..3).map(TestNode::new).collect();
        told.extend(lab.run(10));
        let last = told.last().map_or(Reason::EndToEnd, |(_, verdict)| verdict.reason);
        prop_assert_eq!(last, Reason::EndToEnd);
    }
}

const ALL: u16 = HEARS | REFLECTS;

/// A gateway and its nodes, under virtual time.
struct Lab {
    paths: Paths,
    clusters: Vec<String>,
    nodes: Vec<TestNode>,
    now: Instant,
}

struct TestNode {
    node: Node,
    said: u16,
    lost: BTreeSet<usize>,
    /// Its list of clusters, if that is not the gateway's.
    clusters: Vec<String>,
    is_old: bool,
    is_silent: bool,
    sighting: Sighting,
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
            said: ALL,
            lost: BTreeSet::new(),
            clusters: Vec::new(),
            is_old: false,
            is_silent: false,
            sighting: Sighting::NONE,
            seen: None,
        }
    }

    fn ask(&mut self, clusters: &[String], now: Instant) {
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
            probe = probe.saying(&Statement::new(
                self.said,
                digest,
                self.lost.iter().copied(),
            ));
        }
        self.sighting.request = probe.answer;
        self.seen = Some(now);
    }
}

impl Lab {
    /// Connected with peers of ours of two nodes each, nothing told yet.
    fn new(clusters: &[&str]) -> Self {
        let now = Instant::now();
        let mut lab = Self {
            paths: Paths::new("gw-1"),
            clusters: clusters.iter().map(ToString::to_string).collect(),
            nodes: (0..3).map(TestNode::new).collect(),
            now,
        };
        let way = Way::Server { port: 51_840 };
        let peers = clusters.iter().map(|cluster| (*cluster, way.clone(), true));
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

    /// Lets so many seconds pass, and returns what is told.
    fn run(&mut self, seconds: u64) -> Vec<(String, Verdict)> {
        let mut news = Vec::new();
        for _ in 0..seconds {
            for node in &mut self.nodes {
                node.ask(
                    &self.clusters,
                    self.now + SECOND - Duration::from_millis(150),
                );
            }
            self.now += SECOND;
            self.paths.look(&self.nodes(), &self.sightings(), self.now);
            news.extend(self.paths.poll_news(self.now));
        }
        news
    }

    fn nodes(&self) -> Vec<Node> {
        self.nodes.iter().map(|it| it.node.clone()).collect()
    }

    fn sightings(&self) -> BTreeMap<Ipv4Addr, (Duration, Sighting)> {
        let seen = self.nodes.iter().filter_map(|it| {
            let age = self.now.duration_since(it.seen?);
            Some((it.node.internal_ip, (age, it.sighting)))
        });
        seen.collect()
    }
}

fn fine(all: u32) -> Nodes {
    Nodes {
        all,
        cut: 0,
        resting: 0,
        reflect: true,
    }
}

fn reasons(news: &[(String, Verdict)]) -> Vec<(&str, Reason)> {
    news.iter()
        .map(|(cluster, verdict)| (cluster.as_str(), verdict.reason))
        .collect()
}
