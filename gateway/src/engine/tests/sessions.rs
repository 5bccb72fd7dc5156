use super::*;

#[test]
fn a_client_opens_a_session_and_traffic_flows_both_ways() {
    let mut network = Network::pair();

    network.run_until(secs(1), |network| {
        network.reachable(0) && network.reachable(1)
    });
    network.packet(1, &inner_packet(b"ping"), 0);
    network.packet(0, &inner_packet(b"pong"), 0);
    network.run(ms(20));

    assert_eq!(network.payloads(0), [b"ping"]);
    assert_eq!(network.payloads(1), [b"pong"]);
}

#[test]
fn early_packets_wait_for_the_session() {
    let mut network = Network::pair();

    for n in 0..5_u8 {
        network.packet(1, &inner_packet(&[n]), 0);
    }
    network.run(secs(1));

    assert_eq!(network.payloads(0), [[0], [1], [2], [3], [4]]);
}

#[test]
fn both_sides_learn_kind_version_and_replica_and_report_the_connection() {
    let mut network = Network::pair();

    network.run(secs(1));

    for (host, replica) in [(0, "client-0"), (1, "server-0")] {
        let peer = network.peer(host);
        assert_eq!(peer.kind, Kind::Ours);
        assert_eq!(peer.version.as_deref(), Some("1.0.0"));
        assert_eq!(peer.sessions.len(), 1);
        assert_eq!(peer.sessions[0].replica.as_deref(), Some(replica));
        assert_eq!(peer.sessions[0].rtt, Some(ms(10)));
        let events = network.events(host);
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
    let mut network = Network::pair();
    network.run(secs(1));

    let mut youngest = secs(1_000);
    for sent in 0..600_u32 {
        network.packet(1, &inner_packet(&sent.to_be_bytes()), 0);
        network.packet(0, &inner_packet(&sent.to_be_bytes()), 0);
        network.run(secs(1));
        let age = network.peer(1).sessions[0].last_handshake_age.unwrap();
        assert!(age < secs(125), "{age:?}");
        if network.now - network.start > secs(130) {
            youngest = youngest.min(age);
        }
    }

    assert!(youngest < secs(3));
    assert_eq!(network.payloads(0).len(), 600);
    assert_eq!(network.payloads(1).len(), 600);
    assert_eq!(network.peer(1).sessions.len(), 1, "one slot throughout");
    assert_eq!(network.peer(0).sessions.len(), 1);
}

#[test]
fn a_message_under_previous_keys_confirms_no_handshake() {
    let mut network = Network::pair();
    network.latency = ms(100);
    let is_unconfirmed = |network: &Network| {
        (network.hosts[0].engine.sessions.iter()).any(|session| session.unconfirmed)
    };
    network.run(secs(1));
    network.run_until(secs(200), is_unconfirmed);

    // Both the response and a PING under the previous keys are in flight.
    let now = network.now;
    network.hosts[1].engine.ping_all(now);
    let last_received = |network: &Network| {
        let mut sessions = network.hosts[0].engine.sessions.iter();
        sessions.next().map(|session| session.last_received)
    };
    let before = last_received(&network);
    network.run(ms(150));

    assert!(last_received(&network) > before, "the PING has arrived");
    assert!(is_unconfirmed(&network));
    network.run(ms(100));
    assert!(!is_unconfirmed(&network));
}

#[test]
fn a_session_without_any_traffic_of_its_own_stays() {
    let mut network = Network::pair();
    network.run(secs(1));
    network.events(1);

    network.run(secs(700));

    assert!(network.reachable(0) && network.reachable(1));
    let changes = network.events(1);
    assert!(
        !changes
            .iter()
            .any(|event| matches!(event, Event::Reachable { .. } | Event::OpenPort(_))),
        "{changes:?}"
    );
}

#[test]
fn the_endpoint_follows_a_client_that_moves() {
    let mut network = Network::pair();
    network.run(secs(1));

    network.hosts[1].ip = Ipv4Addr::new(203, 0, 113, 7);
    network.packet(1, &inner_packet(b"from elsewhere"), 0);
    network.run(ms(20));
    network.packet(0, &inner_packet(b"reply"), 0);
    network.run(ms(20));

    assert_eq!(network.payloads(0), [b"from elsewhere"]);
    assert_eq!(network.payloads(1), [b"reply"]);
    assert_eq!(
        network.peer(0).sessions[0].endpoint.ip(),
        Ipv4Addr::new(203, 0, 113, 7)
    );
}

#[test]
fn a_restarted_client_is_served_within_one_handshake() {
    let mut network = Network::pair();
    let server = network.address(0);
    network.run(secs(30));

    network.restart(1, "client-0", vec![calling(&[server])]);
    let took = network.run_until(secs(1), |network| network.reachable(1));
    network.packet(1, &inner_packet(b"back"), 0);
    network.run(ms(20));

    assert!(took <= ms(20), "{took:?}");
    assert_eq!(network.payloads(0), [b"back"]);
}

#[test]
fn a_restarted_server_is_reconnected_within_a_second() {
    let mut network = Network::pair();
    network.run(secs(30));

    network.restart(0, "server-0", vec![serving()]);
    let took = network.run_until(secs(2), |network| network.reachable(0));
    network.packet(0, &inner_packet(b"back"), 0);
    network.run(ms(20));

    assert!(took <= secs(1), "{took:?}");
    assert_eq!(network.payloads(1), [b"back"]);
}

#[test]
fn a_lost_session_is_replaced_from_a_new_port() {
    let mut network = Network::pair();
    network.run(secs(5));
    let before = network.peer(1).sessions[0].port;

    network.lose_every = Some(1);
    network.run_until(secs(2), |network| !network.reachable(1));
    network.lose_every = None;
    network.run_until(secs(3), |network| network.reachable(1));
    network.run(secs(3));

    let after = network.peer(1);
    assert_eq!(after.sessions.len(), 1);
    assert_ne!(after.sessions[0].port, before);
    assert!(
        !network.hosts[1].ports.contains(&before),
        "the old one is closed"
    );
}

#[test]
fn an_unreachable_peer_costs_little_and_is_found_when_it_returns() {
    let mut network = Network::pair();
    network.hosts[0].alive = false;
    network.run(secs(60));
    let before = network.sent;

    network.run(secs(60));
    assert!(network.sent - before <= 30, "{}", network.sent - before);
    assert!(network.hosts[1].ports.len() <= 3);
    assert_eq!(network.peer(1).connection, ConnectionState::Connecting);

    network.hosts[0].alive = true;
    let took = network.run_until(secs(11), |network| network.reachable(1));
    assert!(took <= secs(6), "{took:?}");
}

#[test]
fn a_name_is_resolved_and_a_change_moves_the_session() {
    let mut network = Network::new();
    let (old, new, client) = (
        network.host("server-0"),
        network.host("server-1"),
        network.host("client-0"),
    );
    let mut config = calling(&[]);
    config.role = Role::Client {
        addresses: vec!["gw.example".into()],
        port: PORT,
    };
    network.set_peers(old, vec![serving()]);
    network.set_peers(new, vec![serving()]);
    network.set_peers(client, vec![config]);
    network.run(ms(10));
    assert!(network.events(client).contains(&Event::Resolve {
        peer: PEER,
        host: "gw.example".into(),
        port: PORT
    }));

    for host in [old, new] {
        let (now, address) = (network.now, network.address(host));
        let engine = &mut network.hosts[client].engine;
        engine.handle_resolved(PEER, "gw.example", vec![address], now);
        network.drain(client);
        network.run(secs(3));
        assert_eq!(
            network.peer(client).sessions.last().unwrap().endpoint,
            address
        );
    }

    network.packet(client, &inner_packet(b"moved"), 0);
    network.run(ms(20));
    assert_eq!(network.payloads(new), [b"moved"]);
}

#[test]
fn loss_on_the_path_opens_no_flood_of_sessions() {
    let mut network = Network::pair();
    network.lose_every = Some(7);

    network.run(secs(120));

    let opened = network.events(1);
    let opened = opened.iter().filter(|e| matches!(e, Event::OpenPort(_)));
    assert!(opened.count() <= 3);
    assert!(network.reachable(1));
}

#[test]
fn a_suspended_process_keeps_its_sessions() {
    let mut network = Network::pair();
    network.run(secs(5));
    network.events(1);

    // Advance the clock without running the engines, as if the client were suspended.
    network.hosts[1].alive = false;
    let until = network.now + secs(2);
    network.advance_to(until);
    network.hosts[1].alive = true;
    network.run(ms(10));

    assert!(network.reachable(1));
    network.run(secs(2));
    assert!(
        !network
            .events(1)
            .iter()
            .any(|e| matches!(e, Event::OpenPort(_)))
    );
}

/// Returns the number of different times at which the sessions of a client send their next PING.
fn ping_times(servers: u8) -> usize {
    let mut network = Network::new();
    let client = network.host("client-0");
    let mut peers = Vec::new();
    for number in 1..=servers {
        let key = [number; 32];
        let server = network.host(&format!("server-{number}"));
        let at_server = PeerConfig {
            local_private_key: key.into(),
            ..serving()
        };
        network.set_peers(server, vec![at_server]);
        peers.push(PeerConfig {
            index: number.into(),
            cluster_id: format!("server-{number}"),
            public_key: noise::public_key(&key.into()),
            ..calling(&[network.address(server)])
        });
        network.set_peers(client, peers.clone());
        network.run(ms(13));
    }
    network.run(secs(3));
    let sessions = network.hosts[client].engine.sessions.iter();
    let moments: Vec<_> = sessions
        .map(|session| session.liveness.poll_timeout(Kind::Ours, network.now))
        .collect();
    assert_eq!(moments.len(), usize::from(servers));

    BTreeSet::from_iter(moments).len()
}

#[test]
fn pings_of_few_sessions_are_sent_at_the_ticks() {
    // An idle session sends one at every second tick.
    assert!(ping_times(5) <= 2);
}

#[test]
fn pings_of_many_sessions_are_spread() {
    assert!(ping_times(70) > 10);
}

/// Returns the PINGs that each side of a pair sends in the next ten seconds, in which `packets`
/// packets cross the session every 100 ms.
fn pings(network: &mut Network, packets: usize) -> [u32; 2] {
    let sent = |network: &Network| {
        [0, 1].map(|host: usize| {
            let mut sessions = network.hosts[host].engine.sessions.iter();
            sessions.next().unwrap().liveness.pings()
        })
    };
    let before = sent(network);
    for _ in 0..100 {
        for flow in 0..packets {
            network.packet(1, &inner_packet(b"x"), u32::try_from(flow).unwrap());
        }
        network.run(ms(100));
    }
    let after = sent(network);

    [0, 1].map(|host: usize| after[host] - before[host])
}

#[test]
fn only_the_side_that_opened_the_session_sends_pings() {
    let mut network = Network::pair();
    network.run(secs(5));

    // When the traffic starts, either side may send the first one.
    pings(&mut network, 3);
    let [server, client] = pings(&mut network, 3);
    assert_eq!(server, 0);
    assert!((38..=42).contains(&client), "{client} PINGs with traffic");
    network.run(secs(3));
    let [server, client] = pings(&mut network, 0);
    assert_eq!(server, 0);
    assert!(
        (18..=22).contains(&client),
        "{client} PINGs without traffic"
    );
}

#[test]
fn a_side_that_sends_no_pings_notices_that_the_other_one_is_gone() {
    for packets in [0, 3] {
        let mut network = Network::pair();
        network.run(secs(5));
        pings(&mut network, packets);
        network.lose_every = Some(1);
        let took = network.run_until(secs(3), |network| !network.reachable(0));

        let limit = if packets == 0 { ms(950) } else { ms(700) };
        assert!(took <= limit, "{took:?} with {packets} packets");
    }
}
