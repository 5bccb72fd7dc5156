use super::*;

#[test]
fn a_reload_keeps_sessions_and_applies_the_new_prefixes() {
    let mut world = World::pair();
    world.run(secs(1));
    let slot = world.peer(0).sessions[0].slot;
    world.events(0);

    let mut config = serving();
    config.allowed = vec!["10.99.0.0/16".parse().unwrap()];
    world.set_peers(0, vec![config]);
    world.packet(1, &inner_packet(b"old prefix"), 0);
    world.packet(1, &inner_packet_from([10, 99, 0, 1], b"new prefix"), 0);
    world.run(ms(20));

    assert_eq!(world.payloads(0), [b"new prefix"]);
    assert_eq!(world.peer(0).sessions[0].slot, slot);
    assert_eq!(world.events(0), []);
}

#[test]
fn peers_come_and_go_beside_a_session_that_stays() {
    let mut world = World::pair();
    world.run(secs(1));
    let other = |index: u16| PeerConfig {
        index,
        cluster_id: format!("other-{index}"),
        public_key: noise::public_key(&[u8::try_from(index).unwrap(); 32].into()),
        ..serving()
    };
    let slot = world.peer(0).sessions[0].slot;

    for set in [
        vec![serving(), other(2), other(3)],
        vec![other(3), serving()],
        vec![serving()],
    ] {
        world.set_peers(0, set);
        world.run(secs(1));
        assert_eq!(world.peer(0).sessions[0].slot, slot);
        world.packet(1, &inner_packet(b"x"), 0);
        world.run(ms(20));
        assert_eq!(world.payloads(0).len(), 1);
    }
}

#[test]
fn a_changed_key_ends_the_sessions_of_the_old_one() {
    let mut world = World::pair();
    world.run(secs(1));

    let mut config = serving();
    config.public_key = noise::public_key(&[0x77; 32].into());
    world.set_peers(0, vec![config]);
    assert_eq!(world.peer(0).sessions.len(), 0);
    let lost = Event::Connection {
        peer: PEER,
        state: ConnectionState::Error,
        latency: None,
    };
    assert!(world.events(0).contains(&lost));
    world.run(secs(20));

    assert!(!world.reachable(0));
    assert!(world.drops(0, Drop::UnknownPeer) > 0);
    // The server sees initiations for its key with an unknown public key; the client gets no response.
    let client = world.hosts[1].ip.into();
    assert_eq!(world.evidence(0).unknown_keys, Some(client));
    assert_eq!(world.evidence(0).initiations, None);
    assert_eq!(world.evidence(1), HandshakeEvidence::default());
}

#[test]
fn a_new_key_of_a_peer_that_was_never_connected_is_no_loss() {
    let mut world = World::new();
    let server = world.host("server-0");
    world.set_peers(server, vec![serving()]);
    world.run(secs(1));

    let mut config = serving();
    config.public_key = noise::public_key(&[0x77; 32].into());
    world.set_peers(server, vec![config]);
    world.run(secs(1));

    let is_loss = |event: &Event| matches!(event, Event::Connection { .. });
    assert!(!world.events(server).iter().any(is_loss));
}

/// In each direction: only the server can distinguish the cases.
#[test]
fn the_evidence_shows_the_blocked_direction() {
    for (blocked, comes) in [(0, false), (1, true)] {
        let mut world = World::pair();
        world.run(secs(1));
        assert_eq!(world.evidence(0), HandshakeEvidence::default());

        let to = world.hosts[blocked].ip;
        world.deaf = Some(to);
        world.run(secs(20));

        let client = world.hosts[1].ip.into();
        assert_eq!(
            world.evidence(0).initiations,
            comes.then_some(client),
            "{to}"
        );
        assert_eq!(world.evidence(1), HandshakeEvidence::default());
        world.deaf = None;
        world.run(secs(10));
        assert_eq!(world.evidence(0), HandshakeEvidence::default());
        assert_eq!(world.peer(0).connection, ConnectionState::Connected);
    }
}

#[test]
fn a_removed_peer_leaves_nothing_behind() {
    let mut world = World::pair();
    world.run(secs(1));
    world.packet(0, &inner_packet(b"x"), 0);

    for host in [0, 1] {
        world.set_peers(host, Vec::new());
    }
    world.run(secs(1));
    let now = world.now;
    world.hosts[1].engine.queue(PEER, b"packet", now);

    assert_eq!(world.hosts[1].ports.len(), 1, "only the listening port");
    assert_eq!(world.hosts[1].engine.select(PEER, 0), None);
    assert_eq!(world.drops(1, Drop::NoPeer), 1);
    assert!(world.hosts[1].engine.snapshot(now).peers.is_empty());
}

#[test]
fn changed_addresses_move_a_client_without_a_gap() {
    let mut world = World::new();
    let servers = [world.host("server-0"), world.host("server-1")];
    let client = world.host("client-0");
    for server in servers {
        world.set_peers(server, vec![serving()]);
    }
    let addresses = servers.map(|server| world.address(server));
    world.set_peers(client, vec![calling(&addresses[..1])]);
    world.run(secs(2));

    world.set_peers(client, vec![calling(&addresses[1..])]);
    for _ in 0..300 {
        world.packet(client, &inner_packet(b"x"), 0);
        world.run(ms(10));
    }
    world.run(ms(100));

    let arrived = servers.map(|server| world.payloads(server).len());
    assert_eq!(arrived.iter().sum::<usize>(), 300);
    assert!(arrived[1] > 200);
    assert_eq!(world.peer(client).sessions.len(), 1);
}

#[test]
fn a_session_of_before_is_not_mistaken_for_one_of_now() {
    let mut world = World::pair();
    world.run(secs(1));
    let old = world.hosts[1].engine.select(PEER, 0).unwrap();
    let address = world.address(0);
    world.set_peers(1, Vec::new());
    world.set_peers(1, vec![calling(&[address])]);
    world.run(secs(1));

    let engine = &mut world.hosts[1].engine;
    assert_eq!(engine.seal(old, &inner_packet(b"x"), &mut [0; 100]), None);
    assert_eq!(engine.destination(old), None);
    assert_eq!(engine.mtu(old), None);
    assert_eq!(engine.drops.get(Drop::SessionGone), 1);
}
