use super::*;

#[test]
fn a_client_opens_a_session_and_traffic_flows_both_ways() {
    let mut world = World::pair();

    world.run_until(secs(1), |world| world.reachable(0) && world.reachable(1));
    world.packet(1, &inner_packet(b"ping"), 0);
    world.packet(0, &inner_packet(b"pong"), 0);
    world.run(ms(20));

    assert_eq!(world.payloads(0), [b"ping"]);
    assert_eq!(world.payloads(1), [b"pong"]);
}

#[test]
fn early_packets_wait_for_the_session() {
    let mut world = World::pair();

    for n in 0..5_u8 {
        world.packet(1, &inner_packet(&[n]), 0);
    }
    world.run(secs(1));

    assert_eq!(world.payloads(0), [[0], [1], [2], [3], [4]]);
}

#[test]
fn both_sides_learn_kind_version_and_replica_and_report_the_connection() {
    let mut world = World::pair();

    world.run(secs(1));

    for (host, replica) in [(0, "client-0"), (1, "server-0")] {
        let peer = world.peer(host);
        assert_eq!(peer.kind, Kind::Ours);
        assert_eq!(peer.version.as_deref(), Some("1.0.0"));
        assert_eq!(peer.sessions.len(), 1);
        assert_eq!(peer.sessions[0].replica.as_deref(), Some(replica));
        assert_eq!(peer.sessions[0].rtt, Some(ms(10)));
        let events = world.events(host);
        assert!(events.contains(&Event::Reachable {
            peer: PEER,
            reachable: true
        }));
        assert!(events.contains(&Event::Connection {
            peer: PEER,
            state: ConnectionState::Connected,
            latency: Some(ms(10))
        }));
    }
}

#[test]
fn keys_are_renewed_before_they_end_and_nothing_is_lost() {
    let mut world = World::pair();
    world.run(secs(1));

    let mut youngest = secs(1_000);
    for sent in 0..600_u32 {
        world.packet(1, &inner_packet(&sent.to_be_bytes()), 0);
        world.packet(0, &inner_packet(&sent.to_be_bytes()), 0);
        world.run(secs(1));
        let age = world.peer(1).sessions[0].last_handshake_age.unwrap();
        assert!(age < secs(125), "{age:?}");
        if world.now - world.start > secs(130) {
            youngest = youngest.min(age);
        }
    }

    assert!(youngest < secs(3));
    assert_eq!(world.payloads(0).len(), 600);
    assert_eq!(world.payloads(1).len(), 600);
    assert_eq!(world.peer(1).sessions.len(), 1, "one slot throughout");
    assert_eq!(world.peer(0).sessions.len(), 1);
}

#[test]
fn a_message_under_previous_keys_confirms_no_handshake() {
    let mut world = World::pair();
    world.latency = ms(100);
    let is_unconfirmed =
        |world: &World| (world.hosts[0].engine.sessions.iter()).any(|session| session.unconfirmed);
    world.run(secs(1));
    world.run_until(secs(200), is_unconfirmed);

    // The response is in flight, and so is a PING under the previous keys.
    let now = world.now;
    world.hosts[1].engine.ping_all(now);
    let heard = |world: &World| {
        let mut sessions = world.hosts[0].engine.sessions.iter();
        sessions.next().map(|session| session.heard)
    };
    let before = heard(&world);
    world.run(ms(150));

    assert!(heard(&world) > before, "the PING has arrived");
    assert!(is_unconfirmed(&world));
    world.run(ms(100));
    assert!(!is_unconfirmed(&world));
}

#[test]
fn a_session_without_any_traffic_of_its_own_stays() {
    let mut world = World::pair();
    world.run(secs(1));
    world.events(1);

    world.run(secs(700));

    assert!(world.reachable(0) && world.reachable(1));
    let changes = world.events(1);
    assert!(
        !changes
            .iter()
            .any(|event| matches!(event, Event::Reachable { .. } | Event::OpenPort(_))),
        "{changes:?}"
    );
}

#[test]
fn the_endpoint_follows_a_client_that_moves() {
    let mut world = World::pair();
    world.run(secs(1));

    world.hosts[1].ip = Ipv4Addr::new(203, 0, 113, 7);
    world.packet(1, &inner_packet(b"from elsewhere"), 0);
    world.run(ms(20));
    world.packet(0, &inner_packet(b"reply"), 0);
    world.run(ms(20));

    assert_eq!(world.payloads(0), [b"from elsewhere"]);
    assert_eq!(world.payloads(1), [b"reply"]);
    assert_eq!(
        world.peer(0).sessions[0].endpoint.ip(),
        Ipv4Addr::new(203, 0, 113, 7)
    );
}

#[test]
fn a_client_that_starts_anew_is_served_within_one_handshake() {
    let mut world = World::pair();
    let server = world.address(0);
    world.run(secs(30));

    world.restart(1, "client-0", vec![calling(&[server])]);
    let took = world.run_until(secs(1), |world| world.reachable(1));
    world.packet(1, &inner_packet(b"back"), 0);
    world.run(ms(20));

    assert!(took <= ms(20), "{took:?}");
    assert_eq!(world.payloads(0), [b"back"]);
}

#[test]
fn a_server_that_starts_anew_is_found_again_within_a_second() {
    let mut world = World::pair();
    world.run(secs(30));

    world.restart(0, "server-0", vec![serving()]);
    let took = world.run_until(secs(2), |world| world.reachable(0));
    world.packet(0, &inner_packet(b"back"), 0);
    world.run(ms(20));

    assert!(took <= secs(1), "{took:?}");
    assert_eq!(world.payloads(1), [b"back"]);
}

#[test]
fn a_lost_session_is_replaced_from_a_new_port() {
    let mut world = World::pair();
    world.run(secs(5));
    let before = world.peer(1).sessions[0].port;

    world.lose_every = Some(1);
    world.run_until(secs(2), |world| !world.reachable(1));
    world.lose_every = None;
    world.run_until(secs(3), |world| world.reachable(1));
    world.run(secs(3));

    let after = world.peer(1);
    assert_eq!(after.sessions.len(), 1);
    assert_ne!(after.sessions[0].port, before);
    assert!(
        !world.hosts[1].ports.contains(&before),
        "the old one is closed"
    );
}

#[test]
fn an_unreachable_peer_costs_little_and_is_found_when_it_returns() {
    let mut world = World::pair();
    world.hosts[0].alive = false;
    world.run(secs(60));
    let before = world.sent;

    world.run(secs(60));
    assert!(world.sent - before <= 30, "{}", world.sent - before);
    assert!(world.hosts[1].ports.len() <= 3);
    assert_eq!(world.peer(1).connection, ConnectionState::Connecting);

    world.hosts[0].alive = true;
    let took = world.run_until(secs(11), |world| world.reachable(1));
    assert!(took <= secs(6), "{took:?}");
}

#[test]
fn a_name_is_resolved_and_a_change_moves_the_session() {
    let mut world = World::new();
    let (old, new, client) = (
        world.host("server-0"),
        world.host("server-1"),
        world.host("client-0"),
    );
    let mut config = calling(&[]);
    config.role = Role::Client {
        addresses: vec!["gw.example".into()],
        port: PORT,
    };
    world.set_peers(old, vec![serving()]);
    world.set_peers(new, vec![serving()]);
    world.set_peers(client, vec![config]);
    world.run(ms(10));
    assert!(world.events(client).contains(&Event::Resolve {
        peer: PEER,
        host: "gw.example".into(),
        port: PORT
    }));

    for host in [old, new] {
        let (now, address) = (world.now, world.address(host));
        let engine = &mut world.hosts[client].engine;
        engine.handle_resolved(PEER, "gw.example", vec![address], now);
        world.drain(client);
        world.run(secs(3));
        assert_eq!(
            world.peer(client).sessions.last().unwrap().endpoint,
            address
        );
    }

    world.packet(client, &inner_packet(b"moved"), 0);
    world.run(ms(20));
    assert_eq!(world.payloads(new), [b"moved"]);
}

#[test]
fn loss_on_the_path_opens_no_flood_of_sessions() {
    let mut world = World::pair();
    world.lose_every = Some(7);

    world.run(secs(120));

    let opened = world.events(1);
    let opened = opened.iter().filter(|e| matches!(e, Event::OpenPort(_)));
    assert!(opened.count() <= 3);
    assert!(world.reachable(1));
}

#[test]
fn a_process_that_slept_does_not_take_its_peers_for_dead() {
    let mut world = World::pair();
    world.run(secs(5));
    world.events(1);

    // Time passes for the server, which replies; the client's PONGs wait.
    world.hosts[1].alive = false;
    let until = world.now + secs(2);
    world.advance_to(until);
    world.hosts[1].alive = true;
    world.run(ms(10));

    assert!(world.reachable(1));
    world.run(secs(2));
    assert!(
        !world
            .events(1)
            .iter()
            .any(|e| matches!(e, Event::OpenPort(_)))
    );
}

/// The number of different times at which a server sends the PINGs of its sessions.
fn ping_times(clients: usize) -> usize {
    let mut world = World::new();
    let server = world.host("server-0");
    let address = world.address(server);
    world.set_peers(server, vec![serving()]);
    for number in 0..clients {
        let client = world.host(&format!("client-{number}"));
        world.set_peers(client, vec![calling(&[address])]);
        world.run(ms(13));
    }
    world.run(secs(3));
    let sessions = world.hosts[server].engine.sessions.iter();
    let moments: Vec<_> = sessions
        .map(|session| session.liveness.poll_timeout(Kind::Ours, world.now))
        .collect();
    assert_eq!(moments.len(), clients);

    BTreeSet::from_iter(moments).len()
}

#[test]
fn pings_of_few_sessions_are_aligned() {
    assert_eq!(ping_times(5), 1);
}

#[test]
fn pings_of_many_sessions_are_spread() {
    assert!(ping_times(70) > 10);
}
