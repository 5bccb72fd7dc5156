use super::*;

/// Two clusters of two replicas each, the servers behind a balancer. Returns the servers, the clients, and the
/// balancer's address.
fn two_by_two() -> (World, [usize; 2], [usize; 2]) {
    let mut world = World::new();
    let servers = [world.host("server-0"), world.host("server-1")];
    let clients = [world.host("client-0"), world.host("client-1")];
    let address = world.balancer(&servers);
    for server in servers {
        world.set_replicas(server, &["server-0", "server-1"]);
        world.set_peers(server, vec![serving()]);
    }
    for client in clients {
        world.set_replicas(client, &["client-0", "client-1"]);
        world.set_peers(client, vec![calling(&[address])]);
    }
    (world, servers, clients)
}

fn all_discovered(world: &World, hosts: &[usize]) -> bool {
    hosts.iter().all(|host| world.discovered(*host).len() == 2)
}

#[test]
fn every_replica_connects_to_every_replica() {
    let (mut world, servers, clients) = two_by_two();

    world.run_until(secs(10), |world| {
        all_discovered(world, &servers) && all_discovered(world, &clients)
    });
    world.run(secs(30));

    for host in clients.into_iter().chain(servers) {
        let peer = world.peer(host);
        assert_eq!(peer.sessions.len(), 2, "no duplicate stays");
        let slots: BTreeSet<_> = peer.sessions.iter().map(|s| s.slot).collect();
        assert_eq!(slots.len(), 2);
    }
    assert!(clients.iter().all(|c| world.hosts[*c].ports.len() == 3));
}

#[test]
fn the_worst_reported_health_of_nodes_counts() {
    let (mut world, servers, clients) = two_by_two();
    let nodes = |cut, reflect| Nodes {
        all: 3,
        cut,
        resting: 0,
        reflect,
    };
    world.run_until(secs(10), |world| all_discovered(world, &clients));
    let reported = |world: &mut World| {
        let events = world.events(clients[0]).into_iter().rev();
        let mut reports = events.filter_map(|event| {
            let Event::Remote { kind, nodes, .. } = event else {
                return None;
            };
            Some((kind, nodes))
        });
        reports.next()
    };
    assert_eq!(reported(&mut world), Some((Kind::Ours, None)));

    world.hosts[servers[0]].engine.set_nodes(nodes(0, true));
    world.run(secs(1));
    assert_eq!(reported(&mut world), None, "one replica reports nothing");
    world.hosts[servers[1]].engine.set_nodes(nodes(2, false));
    world.run(secs(1));
    assert_eq!(
        reported(&mut world),
        Some((Kind::Ours, Some(nodes(2, false))))
    );
    world.hosts[servers[1]].engine.set_nodes(nodes(0, true));
    world.run(secs(1));
    assert_eq!(
        reported(&mut world),
        Some((Kind::Ours, Some(nodes(0, true))))
    );
}

#[test]
fn clusters_may_start_in_any_order() {
    let (mut world, servers, clients) = two_by_two();
    for server in servers {
        world.hosts[server].alive = false;
    }
    world.run(secs(100));

    for server in servers {
        world.hosts[server].alive = true;
    }
    let took = world.run_until(secs(20), |world| all_discovered(world, &clients));

    assert!(took <= secs(8), "{took:?}");
}

#[test]
fn all_four_pairs_carry_traffic_in_both_directions() {
    let (mut world, servers, clients) = two_by_two();
    world.run(secs(10));

    for host in servers.into_iter().chain(clients) {
        for flow in 0..64 {
            world.packet(host, &inner_packet(b"x"), flow * 7_919);
        }
    }
    world.run(ms(50));

    for host in servers.into_iter().chain(clients) {
        let sessions = world.peer(host).sessions;
        for session in sessions {
            assert!(session.rx_packets > 10, "{}", session.rx_packets);
            assert!(session.tx_packets > 10, "{}", session.tx_packets);
        }
    }
}

/// Sends a packet of each of eight flows every 10 ms from `host` and returns the longest time in which no packet of
/// some flow arrived at `receivers`.
fn longest_gap(world: &mut World, host: usize, receivers: &[usize], time: Duration) -> Duration {
    let mut last = [world.now; 8];
    let mut longest = Duration::ZERO;
    let end = world.now + time;
    while world.now < end {
        for flow in 0..8_u8 {
            world.packet(host, &inner_packet(&[flow]), u32::from(flow) * 0x1234_5679);
        }
        world.run(ms(10));
        for receiver in receivers {
            for payload in world.payloads(*receiver) {
                last[usize::from(payload[0])] = world.now;
            }
        }
        let oldest = last.iter().min().unwrap();
        longest = longest.max(world.now - *oldest);
    }
    longest
}

#[test]
fn a_server_replica_that_dies_costs_its_clients_flows_less_than_a_second() {
    for victim in 0..2 {
        let (mut world, servers, clients) = two_by_two();
        world.run(secs(10));

        world.hosts[servers[victim]].alive = false;
        let gap = longest_gap(&mut world, clients[0], &servers, secs(5));

        assert!(gap <= secs(1), "{gap:?}");
        assert_eq!(world.discovered(clients[0]).len(), 1);
    }
}

#[test]
fn a_client_replica_that_dies_costs_its_servers_flows_less_than_a_second() {
    for victim in 0..2 {
        let (mut world, servers, clients) = two_by_two();
        world.run(secs(10));

        world.hosts[clients[victim]].alive = false;
        let gap = longest_gap(&mut world, servers[0], &clients, secs(5));

        assert!(gap <= secs(1), "{gap:?}");
    }
}

#[test]
fn a_replica_that_returns_is_discovered_again() {
    let (mut world, servers, clients) = two_by_two();
    world.run(secs(10));
    world.hosts[servers[1]].alive = false;
    world.run(secs(60));

    world.restart(servers[1], "server-1", vec![serving()]);
    world.set_replicas(servers[1], &["server-0", "server-1"]);
    world.run_until(secs(15), |world| {
        all_discovered(world, &clients) && all_discovered(world, &servers)
    });
    world.run(secs(15));

    for client in clients {
        assert_eq!(world.peer(client).sessions.len(), 2);
    }
}

#[test]
fn attempts_for_a_replica_that_is_never_discovered_are_limited() {
    let mut world = World::new();
    let server = world.host("server-0");
    let client = world.host("client-0");
    let address = world.address(server);
    world.set_replicas(server, &["server-0", "server-1"]);
    world.set_peers(server, vec![serving()]);
    world.set_peers(client, vec![calling(&[address])]);

    world.run(secs(5));
    let mut events = world.events(client);
    let opened = opened_ports(&events);
    assert!((16..=18).contains(&opened), "{opened} at first");

    world.run(secs(95));
    events.extend(world.events(client));
    let opened = opened_ports(&events);
    assert!((100..=120).contains(&opened), "{opened}");
    assert_eq!(world.drops(client, Drop::ReplicaAttempts), 1);
    assert!(world.peer(client).sessions.len() <= 4);
    assert!(world.hosts[client].ports.len() <= 5);
    let reachable = |event: &&Event| matches!(event, Event::Reachable { .. });
    assert_eq!(events.iter().filter(reachable).count(), 1, "never lost");
}

/// The number of attempts to open a session.
fn opened_ports(events: &[Event]) -> usize {
    let opened = events.iter().filter(|e| matches!(e, Event::OpenPort(_)));
    opened.count()
}

#[test]
fn all_addresses_of_a_peer_of_ours_are_used() {
    let mut world = World::new();
    let servers = [world.host("server-0"), world.host("server-1")];
    let client = world.host("client-0");
    let addresses = servers.map(|server| world.address(server));
    for server in servers {
        world.set_replicas(server, &["server-0", "server-1"]);
        world.set_peers(server, vec![serving()]);
    }
    world.set_peers(client, vec![calling(&addresses)]);

    let took = world.run_until(secs(5), |world| world.discovered(client).len() == 2);

    assert!(took <= secs(1), "{took:?}");
}

#[test]
fn flows_that_stay_on_a_live_session_do_not_move() {
    let (mut world, servers, clients) = two_by_two();
    world.run(secs(10));
    let client = clients[0];
    let flows = 0..256_u32;
    let select = |world: &World, flow: u32| {
        let engine = &world.hosts[client].engine;
        engine.select(PEER, flow.wrapping_mul(0x9e37)).unwrap()
    };
    let before: Vec<_> = flows.clone().map(|flow| select(&world, flow)).collect();

    world.hosts[servers[0]].alive = false;
    world.run_until(secs(2), |world| world.discovered(client).len() == 1);
    let after: Vec<_> = flows.map(|flow| select(&world, flow)).collect();

    let survivor = after[0];
    assert!(after.iter().all(|session| *session == survivor));
    let stayed = before.iter().filter(|s| **s == survivor).count();
    assert!((64..=192).contains(&stayed), "spread evenly: {stayed}");
}

/// Two servers on a node each, either of which forwards to both (a NodePort), and a client. `turns` varies the nodes'
/// choices.
fn two_nodes(turns: [usize; 2]) -> (World, [usize; 2], usize) {
    let mut world = World::new();
    let servers = [world.host("server-0"), world.host("server-1")];
    let client = world.host("client-0");
    let nodes = [0, 1].map(|_| world.balancer(&servers));
    for (balancer, turn) in world.balancers.iter_mut().zip(turns) {
        balancer.turn = turn;
    }
    for server in servers {
        world.set_replicas(server, &["server-0", "server-1"]);
        world.set_peers(server, vec![serving()]);
    }
    world.set_peers(client, vec![calling(&nodes)]);
    (world, servers, client)
}

/// The replicas that a host has discovered, each with the addresses of its sessions.
fn paths(world: &World, host: usize) -> BTreeSet<(String, SocketAddr)> {
    let sessions = world.peer(host).sessions.into_iter();
    sessions
        .filter(|session| session.state == "live")
        .filter_map(|session| Some((session.replica?, session.endpoint)))
        .collect()
}

#[test]
fn every_replica_has_sessions_at_two_addresses() {
    for turn in 0..8 {
        let (mut world, _, client) = two_nodes([turn, turn / 2]);

        let took = world.run_until(secs(60), |world| paths(world, client).len() == 4);
        world.run(secs(30));

        assert!(took <= secs(20), "{took:?}");
        assert_eq!(world.peer(client).sessions.len(), 4, "no duplicate stays");
    }
}

#[test]
fn losing_a_node_with_its_replica_costs_less_than_a_second_on_every_path() {
    for turn in 0..8 {
        for victim in 0..2 {
            let (mut world, servers, client) = two_nodes([turn, turn / 2]);
            world.run(secs(70));

            world.hosts[servers[victim]].alive = false;
            world.balancers[victim].alive = false;
            let gap = longest_gap(&mut world, client, &servers, secs(5));

            assert!(gap <= secs(1), "turn {turn}, node {victim}: {gap:?}");
        }
    }
}

#[test]
fn attempts_at_an_address_of_one_replica_are_limited() {
    let (mut world, servers, client) = two_nodes([0, 0]);
    for (balancer, server) in world.balancers.iter_mut().zip(servers) {
        balancer.hosts = vec![server];
    }
    world.run(secs(60));
    assert_eq!(paths(&world, client).len(), 2);
    world.events(client);

    world.run(secs(600));

    let events = world.events(client);
    let opened = events.iter().filter(|e| matches!(e, Event::OpenPort(_)));
    let opened = opened.count();
    assert!((5..=20).contains(&opened), "{opened}");
    assert_eq!(world.drops(client, Drop::ReplicaAttempts), 0);
    let lost = |event: &&Event| matches!(event, Event::Connection { state, .. } if *state != ConnectionState::Connected);
    assert_eq!(events.iter().filter(lost).count(), 0);
}

#[test]
fn a_new_replica_is_discovered_at_once_without_a_further_address() {
    let (mut world, servers, client) = two_nodes([0, 0]);
    for (balancer, server) in world.balancers.iter_mut().zip(servers) {
        balancer.hosts = vec![server];
    }
    world.run(secs(65)); // No path to either at the other's node, so attempts are rare now.

    let third = world.host("server-2");
    world.set_peers(third, vec![serving()]);
    world.balancers[0].hosts = vec![third];
    for server in servers.into_iter().chain([third]) {
        world.set_replicas(server, &["server-0", "server-1", "server-2"]);
    }
    let took = world.run_until(secs(60), |world| world.discovered(client).len() == 3);

    assert!(took <= secs(5), "{took:?}");
}
