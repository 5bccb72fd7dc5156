use super::*;

/// Creates two clusters of two replicas each, with the servers behind a load balancer. Returns the
/// servers and the clients.
fn two_by_two() -> (Network, [usize; 2], [usize; 2]) {
    let mut network = Network::new();
    let servers = [network.host("server-0"), network.host("server-1")];
    let clients = [network.host("client-0"), network.host("client-1")];
    let address = network.balancer(&servers);
    for server in servers {
        network.set_replicas(server, &["server-0", "server-1"]);
        network.set_peers(server, vec![serving()]);
    }
    for client in clients {
        network.set_replicas(client, &["client-0", "client-1"]);
        network.set_peers(client, vec![calling(&[address])]);
    }
    (network, servers, clients)
}

fn all_discovered(network: &Network, hosts: &[usize]) -> bool {
    hosts
        .iter()
        .all(|host| network.discovered(*host).len() == 2)
}

#[test]
fn every_replica_connects_to_every_replica() {
    let (mut network, servers, clients) = two_by_two();

    network.run_until(secs(10), |network| {
        all_discovered(network, &servers) && all_discovered(network, &clients)
    });
    network.run(secs(30));

    for host in clients.into_iter().chain(servers) {
        let peer = network.peer(host);
        assert_eq!(peer.sessions.len(), 2, "no duplicate stays");
        let slots: BTreeSet<_> = peer.sessions.iter().map(|s| s.slot).collect();
        assert_eq!(slots.len(), 2);
    }
    assert!(clients.iter().all(|c| network.hosts[*c].ports.len() == 3));
}

#[test]
fn the_worst_reported_health_of_nodes_counts() {
    let (mut network, servers, clients) = two_by_two();
    let nodes = |cut, echo_responder| Nodes {
        all: 3,
        cut,
        resting: 0,
        echo_responder,
    };
    network.run_until(secs(10), |network| all_discovered(network, &clients));
    let reported = |network: &mut Network| {
        let events = network.events(clients[0]).into_iter().rev();
        let mut reports = events.filter_map(|event| {
            let Event::Remote { kind, nodes, .. } = event else {
                return None;
            };
            Some((kind, nodes))
        });
        reports.next()
    };
    assert_eq!(reported(&mut network), Some((Kind::Ours, None)));

    network.hosts[servers[0]].engine.set_nodes(nodes(0, true));
    network.run(secs(1));
    assert_eq!(reported(&mut network), None, "one replica reports nothing");
    network.hosts[servers[1]].engine.set_nodes(nodes(2, false));
    network.run(secs(1));
    assert_eq!(
        reported(&mut network),
        Some((Kind::Ours, Some(nodes(2, false))))
    );
    network.hosts[servers[1]].engine.set_nodes(nodes(0, true));
    network.run(secs(1));
    assert_eq!(
        reported(&mut network),
        Some((Kind::Ours, Some(nodes(0, true))))
    );
}

#[test]
fn clusters_may_start_in_any_order() {
    let (mut network, servers, clients) = two_by_two();
    for server in servers {
        network.hosts[server].alive = false;
    }
    network.run(secs(100));

    for server in servers {
        network.hosts[server].alive = true;
    }
    let took = network.run_until(secs(20), |network| all_discovered(network, &clients));

    assert!(took <= secs(8), "{took:?}");
}

#[test]
fn all_four_pairs_carry_traffic_in_both_directions() {
    let (mut network, servers, clients) = two_by_two();
    network.run(secs(10));

    for host in servers.into_iter().chain(clients) {
        for flow in 0..64 {
            network.packet(host, &inner_packet(b"x"), flow * 7_919);
        }
    }
    network.run(ms(50));

    for host in servers.into_iter().chain(clients) {
        let sessions = network.peer(host).sessions;
        for session in sessions {
            assert!(session.rx_packets > 10, "{}", session.rx_packets);
            assert!(session.tx_packets > 10, "{}", session.tx_packets);
        }
    }
}

/// Sends a packet of each of eight flows from `host` every 10 ms. Returns the longest time during
/// which no packet of a flow arrived at `receivers`.
fn longest_gap(
    network: &mut Network,
    host: usize,
    receivers: &[usize],
    time: Duration,
) -> Duration {
    let mut last = [network.now; 8];
    let mut longest = Duration::ZERO;
    let end = network.now + time;
    while network.now < end {
        for flow in 0..8_u8 {
            network.packet(host, &inner_packet(&[flow]), u32::from(flow) * 0x1234_5679);
        }
        network.run(ms(10));
        for receiver in receivers {
            for payload in network.payloads(*receiver) {
                last[usize::from(payload[0])] = network.now;
            }
        }
        let oldest = last.iter().min().unwrap();
        longest = longest.max(network.now - *oldest);
    }
    longest
}

#[test]
fn a_server_replica_that_dies_costs_its_clients_flows_less_than_a_second() {
    for victim in 0..2 {
        let (mut network, servers, clients) = two_by_two();
        network.run(secs(10));

        network.hosts[servers[victim]].alive = false;
        let gap = longest_gap(&mut network, clients[0], &servers, secs(5));

        assert!(gap <= secs(1), "{gap:?}");
        assert_eq!(network.discovered(clients[0]).len(), 1);
    }
}

#[test]
fn a_client_replica_that_dies_costs_its_servers_flows_less_than_a_second() {
    for victim in 0..2 {
        let (mut network, servers, clients) = two_by_two();
        network.run(secs(10));

        network.hosts[clients[victim]].alive = false;
        let gap = longest_gap(&mut network, servers[0], &clients, secs(5));

        assert!(gap <= secs(1), "{gap:?}");
    }
}

#[test]
fn a_replica_that_returns_is_discovered_again() {
    let (mut network, servers, clients) = two_by_two();
    network.run(secs(10));
    network.hosts[servers[1]].alive = false;
    network.run(secs(60));

    network.restart(servers[1], "server-1", vec![serving()]);
    network.set_replicas(servers[1], &["server-0", "server-1"]);
    network.run_until(secs(15), |network| {
        all_discovered(network, &clients) && all_discovered(network, &servers)
    });
    network.run(secs(15));

    for client in clients {
        assert_eq!(network.peer(client).sessions.len(), 2);
    }
}

#[test]
fn attempts_for_a_replica_that_is_never_discovered_are_limited() {
    let mut network = Network::new();
    let server = network.host("server-0");
    let client = network.host("client-0");
    let address = network.address(server);
    network.set_replicas(server, &["server-0", "server-1"]);
    network.set_peers(server, vec![serving()]);
    network.set_peers(client, vec![calling(&[address])]);

    network.run(secs(5));
    let mut events = network.events(client);
    let opened = opened_ports(&events);
    assert!((16..=18).contains(&opened), "{opened} at first");

    network.run(secs(95));
    events.extend(network.events(client));
    let opened = opened_ports(&events);
    assert!((100..=120).contains(&opened), "{opened}");
    assert_eq!(network.drops(client, Drop::ReplicaAttempts), 1);
    assert!(network.peer(client).sessions.len() <= 4);
    assert!(network.hosts[client].ports.len() <= 5);
    let reachable = |event: &&Event| matches!(event, Event::Reachable { .. });
    assert_eq!(events.iter().filter(reachable).count(), 1, "never lost");
}

/// Returns the number of opened client ports, which is the number of attempts to open a session.
fn opened_ports(events: &[Event]) -> usize {
    let opened = events.iter().filter(|e| matches!(e, Event::OpenPort(_)));
    opened.count()
}

#[test]
fn all_addresses_of_a_peer_of_ours_are_used() {
    let mut network = Network::new();
    let servers = [network.host("server-0"), network.host("server-1")];
    let client = network.host("client-0");
    let addresses = servers.map(|server| network.address(server));
    for server in servers {
        network.set_replicas(server, &["server-0", "server-1"]);
        network.set_peers(server, vec![serving()]);
    }
    network.set_peers(client, vec![calling(&addresses)]);

    let took = network.run_until(secs(5), |network| network.discovered(client).len() == 2);

    assert!(took <= secs(1), "{took:?}");
}

#[test]
fn flows_that_stay_on_a_live_session_do_not_move() {
    let (mut network, servers, clients) = two_by_two();
    network.run(secs(10));
    let client = clients[0];
    let flows = 0..256_u32;
    let select = |network: &Network, flow: u32| {
        let engine = &network.hosts[client].engine;
        engine
            .select(
                PEER,
                flow.wrapping_mul(0x9e37),
                std::net::Ipv4Addr::UNSPECIFIED,
            )
            .unwrap()
    };
    let before: Vec<_> = flows.clone().map(|flow| select(&network, flow)).collect();

    network.hosts[servers[0]].alive = false;
    network.run_until(secs(2), |network| network.discovered(client).len() == 1);
    let after: Vec<_> = flows.map(|flow| select(&network, flow)).collect();

    let survivor = after[0];
    assert!(after.iter().all(|session| *session == survivor));
    let stayed = before.iter().filter(|s| **s == survivor).count();
    assert!((64..=192).contains(&stayed), "spread evenly: {stayed}");
}

/// Creates two servers on two nodes, and a client. Each node forwards to both servers, as for a
/// NodePort. `seeds` varies the choices of the nodes.
fn two_nodes(seeds: [usize; 2]) -> (Network, [usize; 2], usize) {
    let mut network = Network::new();
    let servers = [network.host("server-0"), network.host("server-1")];
    let client = network.host("client-0");
    let nodes = [0, 1].map(|_| network.balancer(&servers));
    for (balancer, seed) in network.balancers.iter_mut().zip(seeds) {
        balancer.seed = seed;
    }
    for server in servers {
        network.set_replicas(server, &["server-0", "server-1"]);
        network.set_peers(server, vec![serving()]);
    }
    network.set_peers(client, vec![calling(&nodes)]);
    (network, servers, client)
}

/// Returns the replicas that a host has discovered, each with the addresses of its sessions.
fn paths(network: &Network, host: usize) -> BTreeSet<(String, SocketAddr)> {
    let sessions = network.peer(host).sessions.into_iter();
    sessions
        .filter(|session| session.state == "live")
        .filter_map(|session| Some((session.replica?, session.endpoint)))
        .collect()
}

#[test]
fn every_replica_has_sessions_at_two_addresses() {
    for seed in 0..8 {
        let (mut network, _, client) = two_nodes([seed, seed / 2]);

        let took = network.run_until(secs(60), |network| paths(network, client).len() == 4);
        network.run(secs(30));

        assert!(took <= secs(20), "{took:?}");
        assert_eq!(network.peer(client).sessions.len(), 4, "no duplicate stays");
    }
}

#[test]
fn losing_a_node_with_its_replica_costs_less_than_a_second_on_every_path() {
    for seed in 0..8 {
        for victim in 0..2 {
            let (mut network, servers, client) = two_nodes([seed, seed / 2]);
            network.run(secs(70));

            network.hosts[servers[victim]].alive = false;
            network.balancers[victim].alive = false;
            let gap = longest_gap(&mut network, client, &servers, secs(5));

            assert!(gap <= secs(1), "seed {seed}, node {victim}: {gap:?}");
        }
    }
}

#[test]
fn attempts_at_an_address_of_one_replica_are_limited() {
    let (mut network, servers, client) = two_nodes([0, 0]);
    for (balancer, server) in network.balancers.iter_mut().zip(servers) {
        balancer.hosts = vec![server];
    }
    network.run(secs(60));
    assert_eq!(paths(&network, client).len(), 2);
    network.events(client);

    network.run(secs(600));

    let events = network.events(client);
    let opened = events.iter().filter(|e| matches!(e, Event::OpenPort(_)));
    let opened = opened.count();
    assert!((5..=20).contains(&opened), "{opened}");
    assert_eq!(network.drops(client, Drop::ReplicaAttempts), 0);
    let lost = |event: &&Event| matches!(event, Event::Connection { state, .. } if *state != ConnectionState::Connected);
    assert_eq!(events.iter().filter(lost).count(), 0);
}

#[test]
fn a_new_replica_is_discovered_at_once_without_a_further_address() {
    let (mut network, servers, client) = two_nodes([0, 0]);
    for (balancer, server) in network.balancers.iter_mut().zip(servers) {
        balancer.hosts = vec![server];
    }
    network.run(secs(65)); // Attempts at further addresses have failed, and are rare now.

    let third = network.host("server-2");
    network.set_peers(third, vec![serving()]);
    network.balancers[0].hosts = vec![third];
    for server in servers.into_iter().chain([third]) {
        network.set_replicas(server, &["server-0", "server-1", "server-2"]);
    }
    let took = network.run_until(secs(60), |network| network.discovered(client).len() == 3);

    assert!(took <= secs(5), "{took:?}");
}
