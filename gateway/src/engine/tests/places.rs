//! Replicas state the nodes on which they run, and flows take the shortest way.

use super::*;
use crate::engine::Place;

/// Two clusters of two replicas each. The nodes of the servers' cluster forward to a random server, as node ports do.
/// Server N runs on node N, and so do the pods of 10.244.N.0/24. The clients' nodes have no endpoint.
struct Clusters {
    network: Network,
    servers: [usize; 2],
    clients: [usize; 2],
    nodes: Vec<SocketAddr>,
}

impl Clusters {
    fn new() -> Self {
        Self::of_nodes(3)
    }

    fn of_nodes(count: usize) -> Self {
        let mut network = Network::new();
        let servers = [network.host("server-0"), network.host("server-1")];
        let clients = [network.host("client-0"), network.host("client-1")];
        let nodes: Vec<_> = (0..count).map(|_| network.balancer(&servers)).collect();
        for (number, server) in servers.into_iter().enumerate() {
            network.set_replicas(server, &["server-0", "server-1"]);
            network.set_peers(server, vec![serving()]);
            let engine = &mut network.hosts[server].engine;
            engine.set_place(Some(Place::new(nodes[number].ip(), &[pods(number)])));
        }
        // The clients try the nodes without replicas first.
        let endpoints: Vec<_> = nodes.iter().rev().copied().collect();
        for (number, client) in clients.into_iter().enumerate() {
            network.set_replicas(client, &["client-0", "client-1"]);
            network.set_peers(client, vec![calling(&endpoints)]);
            let address = network.hosts[client].ip.into();
            let engine = &mut network.hosts[client].engine;
            engine.set_place(Some(Place::new(address, &[pods(number)])));
        }

        Self {
            network,
            servers,
            clients,
            nodes,
        }
    }

    /// Returns the remote replica and the remote address that each of some flows to `destination` uses.
    fn ways(&self, host: usize, destination: [u8; 4]) -> BTreeSet<(String, SocketAddr)> {
        let engine = &self.network.hosts[host].engine;
        let flows = 0..64_u32;
        let sessions = flows
            .filter_map(|flow| engine.select(PEER, flow.wrapping_mul(0x9e37), destination.into()));

        sessions
            .map(|id| {
                let session = engine.sessions.get(id).unwrap();
                let remote = session.target.unwrap_or(session.endpoint);
                (session.replica.clone().unwrap(), remote)
            })
            .collect()
    }

    fn replicas(&self, host: usize, destination: [u8; 4]) -> Vec<String> {
        let ways = self.ways(host, destination).into_iter();
        let names: BTreeSet<_> = ways.map(|(replica, _)| replica).collect();

        names.into_iter().collect()
    }

    /// Ends server 0, and returns the time until the first client sends all flows to a pod on its node to the other one.
    fn lose_first_server(&mut self) -> Duration {
        let client = self.clients[0];
        self.network.hosts[self.servers[0]].alive = false;
        self.network.run_until(secs(3), |network| {
            let engine = &network.hosts[client].engine;
            (0..64).all(|flow| {
                let id = engine.select(PEER, flow, [10, 244, 0, 7].into());
                let session = id.and_then(|id| engine.sessions.get(id));
                session.is_some_and(|it| it.replica.as_deref() == Some("server-1"))
            })
        })
    }
}

fn pods(number: usize) -> ipnet::Ipv4Net {
    format!("10.244.{number}.0/24").parse().unwrap()
}

#[test]
fn flows_take_the_replica_on_the_pods_node_at_this_nodes_address() {
    let mut clusters = Clusters::new();
    clusters.network.run(secs(20));

    for client in clusters.clients {
        for (number, name) in ["server-0", "server-1"].into_iter().enumerate() {
            let destination = [10, 244, u8::try_from(number).unwrap(), 7];
            let expected = BTreeSet::from([(name.to_owned(), clusters.nodes[number])]);
            assert_eq!(clusters.ways(client, destination), expected);
        }
        // No replica runs on the node of other pods, so both are used, and neither over a detour.
        let both = BTreeSet::from([
            ("server-0".to_owned(), clusters.nodes[0]),
            ("server-1".to_owned(), clusters.nodes[1]),
        ]);
        assert_eq!(clusters.ways(client, [10, 244, 9, 7]), both);
    }
    for server in clusters.servers {
        assert_eq!(clusters.replicas(server, [10, 244, 0, 7]), ["client-0"]);
        assert_eq!(clusters.replicas(server, [10, 244, 1, 7]), ["client-1"]);
        let both = ["client-0", "client-1"];
        assert_eq!(clusters.replicas(server, [10, 244, 9, 7]), both);
    }
}

#[test]
fn the_nodes_of_replicas_are_found_among_many_nodes() {
    let mut clusters = Clusters::of_nodes(9);
    clusters.network.run(secs(60));

    for client in clusters.clients {
        for (number, name) in ["server-0", "server-1"].into_iter().enumerate() {
            let destination = [10, 244, u8::try_from(number).unwrap(), 7];
            let expected = BTreeSet::from([(name.to_owned(), clusters.nodes[number])]);
            assert_eq!(clusters.ways(client, destination), expected);
        }
        assert_eq!(clusters.network.peer(client).sessions.len(), 4);
    }
}

#[test]
fn each_replica_keeps_a_session_at_a_second_address() {
    let mut clusters = Clusters::new();
    clusters.network.run(secs(20));

    for client in clusters.clients {
        assert_eq!(clusters.network.peer(client).sessions.len(), 4);
    }

    // The node of server 0 no longer forwards; its replica is reached over another node.
    clusters.network.balancers[0].alive = false;
    let took = clusters.network.run_until(secs(2), |network| {
        let engine = &network.hosts[clusters.clients[0]].engine;
        (0..64).all(|flow| {
            let id = engine.select(PEER, flow, [10, 244, 0, 7].into());
            let session = id.and_then(|id| engine.sessions.get(id));
            session.is_some_and(|it| it.target.is_some_and(|target| target != clusters.nodes[0]))
        })
    });
    assert!(took <= ms(1_000), "{took:?}");
}

#[test]
fn flows_leave_a_lost_replica_for_the_other_one_in_time() {
    let mut clusters = Clusters::new();
    clusters.network.run(secs(20));

    let took = clusters.lose_first_server();

    // No flow has had traffic before, so the probes were rare.
    assert!(took <= ms(2_000), "{took:?}");
}

/// All sessions with a lost replica are lost at the same time, so that flows do not move from one to the next.
#[test]
fn flows_with_traffic_leave_a_lost_replica_at_once() {
    let mut clusters = Clusters::new();
    clusters.network.run(secs(20));
    let client = clusters.clients[0];
    for flow in 0..300_u32 {
        let packet = inner_packet(b"x");
        clusters
            .network
            .packet(client, &packet, flow.wrapping_mul(0x9e37));
        clusters.network.run(ms(10));
    }

    let took = clusters.lose_first_server();

    assert!(took <= ms(400), "{took:?}");
}

#[test]
fn a_pod_that_moves_takes_its_flows_along() {
    let mut clusters = Clusters::new();
    clusters.network.run(secs(20));
    let client = clusters.clients[0];
    let pod = [10, 244, 0, 7];
    assert_eq!(clusters.replicas(client, pod), ["server-0"]);

    // The pod has an address of its own on the other node, as with a CNI that keeps addresses.
    let [_, second] = clusters.servers;
    let prefixes = [pods(1), "10.244.0.7/32".parse().unwrap()];
    let place = Place::new(clusters.nodes[1].ip(), &prefixes);
    clusters.network.hosts[second].engine.set_place(Some(place));
    clusters.network.run(secs(2));

    assert_eq!(clusters.replicas(client, pod), ["server-1"]);
    assert_eq!(clusters.replicas(client, [10, 244, 0, 8]), ["server-0"]);
}

#[test]
fn a_prefix_outside_the_granted_ones_is_ignored_and_counted_once() {
    let mut clusters = Clusters::new();
    let [first, _] = clusters.servers;
    let prefixes = [pods(0), "0.0.0.0/0".parse().unwrap()];
    let place = Place::new(clusters.nodes[0].ip(), &prefixes);
    clusters.network.hosts[first].engine.set_place(Some(place));
    clusters.network.run(secs(20));

    let client = clusters.clients[0];
    assert_eq!(clusters.replicas(client, [10, 244, 9, 7]).len(), 2);
    let before = clusters.network.drops(client, Drop::PlaceNotAllowed);
    assert!((1..=8).contains(&before), "{before}");
    clusters.network.run(secs(20));
    let after = clusters.network.drops(client, Drop::PlaceNotAllowed);
    assert_eq!(after, before, "a repeated statement is not counted again");
}

#[test]
fn an_address_that_is_no_endpoint_is_not_used() {
    let mut clusters = Clusters::new();
    let [first, _] = clusters.servers;
    let place = Place::new(Ipv4Addr::new(203, 0, 113, 7).into(), &[pods(0)]);
    clusters.network.hosts[first].engine.set_place(Some(place));
    clusters.network.run(secs(60));

    let client = clusters.clients[0];
    assert_eq!(clusters.replicas(client, [10, 244, 0, 7]), ["server-0"]);
    let ways = clusters.ways(client, [10, 244, 0, 7]);
    assert!(
        ways.iter()
            .all(|(_, address)| clusters.nodes.contains(address))
    );
    assert_eq!(ways.len(), 2, "both addresses are used: {ways:?}");
}
