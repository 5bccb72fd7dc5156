use super::*;

#[test]
fn a_reload_keeps_sessions_and_applies_the_new_prefixes() {
    let mut network = Network::pair();
    network.run(secs(1));
    let slot = network.peer(0).sessions[0].slot;
    network.events(0);

    let mut config = serving();
    config.allowed = vec!["10.99.0.0/16".parse().unwrap()];
    network.set_peers(0, vec![config]);
    network.packet(1, &inner_packet(b"old prefix"), 0);
    network.packet(1, &inner_packet_from([10, 99, 0, 1], b"new prefix"), 0);
    network.run(ms(20));

    assert_eq!(network.payloads(0), [b"new prefix"]);
    assert_eq!(network.peer(0).sessions[0].slot, slot);
    assert_eq!(network.events(0), []);
}

#[test]
fn a_session_continues_while_other_peers_are_added_and_removed() {
    let mut network = Network::pair();
    network.run(secs(1));
    let other = |index: u16| PeerConfig {
        index,
        cluster_id: format!("other-{index}"),
        public_key: noise::public_key(&[u8::try_from(index).unwrap(); 32].into()),
        ..serving()
    };
    let slot = network.peer(0).sessions[0].slot;

    for set in [
        vec![serving(), other(2), other(3)],
        vec![other(3), serving()],
        vec![serving()],
    ] {
        network.set_peers(0, set);
        network.run(secs(1));
        assert_eq!(network.peer(0).sessions[0].slot, slot);
        network.packet(1, &inner_packet(b"x"), 0);
        network.run(ms(20));
        assert_eq!(network.payloads(0).len(), 1);
    }
}

#[test]
fn a_changed_key_ends_the_sessions_of_the_old_one() {
    let mut network = Network::pair();
    network.run(secs(1));

    let mut config = serving();
    config.public_key = noise::public_key(&[0x77; 32].into());
    network.set_peers(0, vec![config]);
    assert_eq!(network.peer(0).sessions.len(), 0);
    let lost = Event::Connection {
        peer: PEER,
        state: ConnectionState::Error,
        latency: None,
    };
    assert!(network.events(0).contains(&lost));
    network.run(secs(20));

    assert!(!network.reachable(0));
    assert!(network.drops(0, Drop::UnknownPeer) > 0);
    // The server receives initiations for its key with an unknown public key. The client gets no
    // response.
    let client = network.hosts[1].ip.into();
    assert_eq!(network.evidence(0).unknown_keys, Some(client));
    assert_eq!(network.evidence(0).initiations, None);
    assert_eq!(network.evidence(1), HandshakeEvidence::default());
}

#[test]
fn a_new_key_before_the_first_connection_reports_no_error() {
    let mut network = Network::new();
    let server = network.host("server-0");
    network.set_peers(server, vec![serving()]);
    network.run(secs(1));

    let mut config = serving();
    config.public_key = noise::public_key(&[0x77; 32].into());
    network.set_peers(server, vec![config]);
    network.run(secs(1));

    let is_loss = |event: &Event| matches!(event, Event::Connection { .. });
    assert!(!network.events(server).iter().any(is_loss));
}

/// Blocks one direction after the other. Only the server can determine which direction is blocked.
#[test]
fn the_evidence_shows_the_blocked_direction() {
    for (blocked, comes) in [(0, false), (1, true)] {
        let mut network = Network::pair();
        network.run(secs(1));
        assert_eq!(network.evidence(0), HandshakeEvidence::default());

        let to = network.hosts[blocked].ip;
        network.unreachable = Some(to);
        network.run(secs(20));

        let client = network.hosts[1].ip.into();
        assert_eq!(
            network.evidence(0).initiations,
            comes.then_some(client),
            "{to}"
        );
        assert_eq!(network.evidence(1), HandshakeEvidence::default());
        network.unreachable = None;
        network.run(secs(10));
        assert_eq!(network.evidence(0), HandshakeEvidence::default());
        assert_eq!(network.peer(0).connection, ConnectionState::Connected);
    }
}

#[test]
fn a_removed_peer_leaves_nothing_behind() {
    let mut network = Network::pair();
    network.run(secs(1));
    network.packet(0, &inner_packet(b"x"), 0);

    for host in [0, 1] {
        network.set_peers(host, Vec::new());
    }
    network.run(secs(1));
    let now = network.now;
    network.hosts[1].engine.queue(PEER, b"packet", now);

    assert_eq!(network.hosts[1].ports.len(), 1, "only the listening port");
    assert_eq!(
        network.hosts[1]
            .engine
            .select(PEER, 0, std::net::Ipv4Addr::UNSPECIFIED),
        None
    );
    assert_eq!(network.drops(1, Drop::NoPeer), 1);
    assert!(network.hosts[1].engine.snapshot(now).peers.is_empty());
}

#[test]
fn changed_addresses_move_a_client_without_a_gap() {
    let mut network = Network::new();
    let servers = [network.host("server-0"), network.host("server-1")];
    let client = network.host("client-0");
    for server in servers {
        network.set_peers(server, vec![serving()]);
    }
    let addresses = servers.map(|server| network.address(server));
    network.set_peers(client, vec![calling(&addresses[..1])]);
    network.run(secs(2));

    network.set_peers(client, vec![calling(&addresses[1..])]);
    for _ in 0..300 {
        network.packet(client, &inner_packet(b"x"), 0);
        network.run(ms(10));
    }
    network.run(ms(100));

    let arrived = servers.map(|server| network.payloads(server).len());
    assert_eq!(arrived.iter().sum::<usize>(), 300);
    assert!(arrived[1] > 200);
    assert_eq!(network.peer(client).sessions.len(), 1);
}

#[test]
fn a_removed_session_id_refers_to_no_later_session() {
    let mut network = Network::pair();
    network.run(secs(1));
    let old = network.hosts[1]
        .engine
        .select(PEER, 0, std::net::Ipv4Addr::UNSPECIFIED)
        .unwrap();
    let address = network.address(0);
    network.set_peers(1, Vec::new());
    network.set_peers(1, vec![calling(&[address])]);
    network.run(secs(1));

    let engine = &mut network.hosts[1].engine;
    assert_eq!(engine.seal(old, &inner_packet(b"x"), &mut [0; 100]), None);
    assert_eq!(engine.destination(old), None);
    assert_eq!(engine.mtu(old), None);
    assert_eq!(engine.drops.get(Drop::SessionGone), 1);
}

#[test]
fn the_private_keys_of_changed_and_removed_peers_are_forgotten() {
    let mut network = Network::pair();
    let now = network.now;
    let engine = &mut network.hosts[0].engine;
    let mut config = serving();
    let before = noise::public_key(&config.local_private_key);
    config.local_private_key = [0x55; 32].into();
    let after = noise::public_key(&config.local_private_key);
    assert!(engine.keys.get(&before).is_some());

    engine.change_peers(vec![config], &[], now);
    assert!(engine.keys.get(&before).is_none() && engine.keys.get(&after).is_some());

    engine.change_peers(Vec::new(), &[PEER], now);
    assert!(engine.keys.get(&after).is_none());
}
