//! Data messages of our own form: between our own gateways only, safe like WireGuard's, and never in the way.

use super::super::transport;
use super::*;

/// Two clusters that have told each other their keys.
fn ready() -> World {
    let mut world = World::pair();
    world.run(secs(1));
    world
}

fn is_own(datagram: &Datagram) -> bool {
    transport::classify(&datagram.bytes).is_some()
}

/// Sends one packet from `host` and returns its datagram, which is not delivered.
fn sealed(world: &mut World, host: usize, payload: &[u8]) -> Datagram {
    world.packet(host, &inner_packet(payload), 0);
    world.flying.pop_back().unwrap()
}

fn inject(world: &mut World, datagram: &Datagram) {
    let host = usize::from(datagram.to.port() != PORT);
    let port = world.peer(host).sessions[0].port;
    world.receive(host, port, datagram.from, &mut datagram.bytes.clone());
}

#[test]
fn our_own_gateways_use_it_in_both_directions() {
    let mut world = ready();

    for host in 0..2 {
        let datagram = sealed(&mut world, host, b"hello");
        assert!(is_own(&datagram));
        inject(&mut world, &datagram);
        assert_eq!(world.peer(host).sessions[0].cipher, "aes-256-gcm");
        assert_eq!(world.payloads(1 - host), [b"hello"]);
    }
}

#[test]
fn a_gateway_without_fast_aes_gets_and_sends_wireguard() {
    for slow in 0..2 {
        let mut world = World::pair();
        world.hosts[slow].engine.local.aes = false;
        world.run(secs(1));

        for host in 0..2 {
            let datagram = sealed(&mut world, host, b"hello");
            assert_eq!(datagram.bytes[..4], [4, 0, 0, 0]);
            inject(&mut world, &datagram);
            assert_eq!(world.peer(host).sessions[0].cipher, "chacha20-poly1305");
            assert_eq!(world.payloads(1 - host), [b"hello"]);
        }
    }
}

#[test]
fn a_replay_is_dropped_and_moves_nothing() {
    let mut world = ready();
    let mut datagram = sealed(&mut world, 1, b"once");
    inject(&mut world, &datagram);
    let before = world.peer(0).sessions[0].endpoint;

    datagram.from = "203.0.113.66:666".parse().unwrap();
    inject(&mut world, &datagram);

    assert_eq!(world.payloads(0), [b"once"]);
    assert_eq!(world.drops(0, Drop::Replayed), 1);
    assert_eq!(world.peer(0).sessions[0].endpoint, before);
}

#[test]
fn a_client_that_moves_is_followed() {
    let mut world = ready();
    let mut datagram = sealed(&mut world, 1, b"moved");

    datagram.from = "203.0.113.66:666".parse().unwrap();
    inject(&mut world, &datagram);

    assert_eq!(world.peer(0).sessions[0].endpoint, datagram.from);
}

#[test]
fn what_was_touched_or_cut_is_dropped() {
    let mut world = ready();
    let datagram = sealed(&mut world, 1, b"payload");
    let len = datagram.bytes.len();

    for position in 0..len {
        let mut touched = datagram.clone();
        touched.bytes[position] ^= 0x10;
        inject(&mut world, &touched);
    }
    assert!(
        world.drops(0, Drop::InvalidTag) >= len as u64 - 16,
        "header and text"
    );
    assert_eq!(world.drops(0, Drop::NoKeys), 1, "another key of the slot");
    assert_eq!(world.drops(0, Drop::UnknownReceiver), 3, "another slot");
    let before = world.drops(0, Drop::InvalidTag);

    for cut in 0..len {
        let mut short = datagram.clone();
        short.bytes.truncate(cut);
        inject(&mut world, &short);
    }
    assert_eq!(world.drops(0, Drop::InvalidTag) - before, len as u64 - 32);

    assert_eq!(world.payloads(0), Vec::<Vec<u8>>::new());
    inject(&mut world, &datagram);
    assert_eq!(
        world.payloads(0),
        [b"payload"],
        "none of that used its counter up"
    );
}

#[test]
fn a_source_that_the_peer_may_not_have_is_dropped() {
    let mut world = ready();

    world.packet(1, &inner_packet_from([192, 0, 2, 99], b"not mine"), 0);
    assert!(is_own(world.flying.back().unwrap()));
    world.run(ms(20));

    assert_eq!(world.drops(0, Drop::SourceNotAllowed), 1);
    assert_eq!(world.payloads(0), Vec::<Vec<u8>>::new());
}

#[test]
fn keys_change_with_each_handshake_and_nothing_is_lost() {
    let mut world = ready();
    world.capture = Some(Vec::new());
    let mut sent = [0_u32; 2];

    for _ in 0..400 * 20 {
        for (host, sent) in sent.iter_mut().enumerate() {
            world.packet(host, &inner_packet(&sent.to_be_bytes()), 0);
            *sent += 1;
        }
        world.run(ms(50));
    }
    world.run(ms(50));

    for (host, sent) in sent.into_iter().enumerate() {
        let expected: Vec<_> = (0..sent).map(|n| n.to_be_bytes().to_vec()).collect();
        assert_eq!(world.payloads(1 - host), expected, "all, once, in order");
    }
    let data = world.capture.take().unwrap();
    for from_server in [false, true] {
        let own: Vec<_> = (data.iter())
            .filter(|it| is_own(it) && (it.from.port() == PORT) == from_server)
            .collect();
        let indices: BTreeSet<_> = own.iter().map(|it| &it.bytes[4..8]).collect();
        let nonces: BTreeSet<_> = own.iter().map(|it| &it.bytes[4..16]).collect();
        assert!(
            (4..=5).contains(&indices.len()),
            "{} in 400 s",
            indices.len()
        );
        assert_eq!(nonces.len(), own.len(), "no nonce twice");
        assert!(
            own.len() > 7_800,
            "WireGuard has only what bridges a change"
        );
    }
}

#[test]
fn what_was_sealed_by_the_keys_of_before_confirms_no_handshake() {
    let mut world = ready();
    world.latency = ms(100);
    let is_unconfirmed =
        |world: &World| (world.hosts[0].engine.sessions.iter()).any(|session| session.unconfirmed);
    world.run_until(secs(200), is_unconfirmed);

    // The response is on its way, and so is a question of before.
    let now = world.now;
    world.hosts[1].engine.ping_all(now);
    let heard = |world: &World| {
        let mut sessions = world.hosts[0].engine.sessions.iter();
        sessions.next().map(|session| session.heard)
    };
    let before = heard(&world);
    world.run(ms(150));

    assert!(heard(&world) > before, "it has come");
    assert!(is_unconfirmed(&world));
    world.run(ms(100));
    assert!(!is_unconfirmed(&world));
}

#[test]
fn a_network_that_passes_wireguard_only_gets_wireguard() {
    let mut world = World::pair();
    world.is_strict = true;
    world.capture = Some(Vec::new());
    world.run(secs(20));

    for host in 0..2 {
        world.packet(host, &inner_packet(b"hello"), 0);
        world.run(ms(20));
        assert_eq!(world.payloads(1 - host), [b"hello"]);
        assert_eq!(world.peer(host).sessions[0].cipher, "chacha20-poly1305");
        assert_eq!(world.drops(host, Drop::ProbeUnexpected), 0);
    }
    let asked = world.capture.take().unwrap();
    let asked = asked.iter().filter(|it| is_own(it)).count();
    assert!((2..=40).contains(&asked), "{asked} in vain");
}

#[test]
fn a_network_that_begins_to_pass_wireguard_only_takes_little() {
    let mut world = ready();
    let slots = [0, 1].map(|host| world.peer(host).sessions[0].slot);

    world.is_strict = true;
    for number in 0..200_u8 {
        for host in 0..2 {
            world.packet(host, &inner_packet(&[number]), 0);
        }
        world.run(ms(50));
    }

    for (host, slot) in slots.into_iter().enumerate() {
        let arrived: BTreeSet<_> = world.payloads(1 - host).concat().into_iter().collect();
        let lost: Vec<_> = (0..200).filter(|it| !arrived.contains(it)).collect();
        assert!(lost.len() > 2, "{lost:?}: it was in use");
        assert!(lost.iter().all(|it| *it < 30), "1.5 s: {lost:?}");
        assert_eq!(world.peer(host).sessions[0].slot, slot, "the same");
        assert_eq!(world.peer(host).sessions[0].cipher, "chacha20-poly1305");
    }

    world.is_strict = false;
    world.run(secs(130));
    for host in 0..2 {
        assert!(is_own(&sealed(&mut world, host, b"with the next key")));
    }
}

#[test]
fn an_idle_session_is_not_asked_again() {
    let mut world = ready();
    world.capture = Some(Vec::new());

    world.run(secs(60));

    let all = world.capture.take().unwrap();
    assert!(all.len() > 400, "it is alive");
    assert_eq!(all.iter().filter(|it| is_own(it)).count(), 0);
}

#[test]
fn over_a_long_way_no_answer_is_unexpected() {
    let mut world = World::pair();
    world.latency = ms(300);

    // A new handshake, after two minutes, forgets questions.
    for _ in 0..200 {
        for host in 0..2 {
            world.packet(host, &inner_packet(b"x"), 0);
            assert_eq!(world.drops(host, Drop::ProbeUnexpected), 0);
        }
        world.run(ms(500));
    }

    for host in 0..2 {
        assert_eq!(world.peer(host).sessions[0].cipher, "aes-256-gcm");
    }
}

#[test]
fn a_key_that_is_lost_on_its_way_is_told_again() {
    let mut world = World::pair();
    // All that could carry keys, for a while; sessions hold out for three questions.
    world.run(ms(200));
    world.lose_every = Some(2);
    world.run(secs(3));
    world.lose_every = None;
    world.run(secs(1));

    for host in 0..2 {
        assert!(is_own(&sealed(&mut world, host, b"x")));
    }
}

#[test]
fn a_gateway_that_starts_anew_is_told_a_new_key() {
    let mut world = ready();
    let address = world.address(0);
    let before = sealed(&mut world, 1, b"x").bytes;

    world.restart(0, "server-0", vec![serving()]);
    world.run(secs(3));
    let after = sealed(&mut world, 1, b"again");

    assert!(is_own(&after));
    assert_ne!(after.bytes[4..8], before[4..8]);
    inject(&mut world, &after);
    assert_eq!(world.payloads(0), [b"again"]);
    assert_eq!(address, world.address(0));
}

/// The packet with which the client asks, and tells a key of `cipher`.
fn telling(cipher: &str) -> Vec<u8> {
    let key = "ab".repeat(32);
    let json = format!(
        r#"{{"clusterID":"server","msgType":"PING","timeStamp":"2026-11-21T10:00:00Z","gateway":{{"version":"9","replica":"client-0","data":{{"cipher":"{cipher}","index":1,"key":"{key}","number":99}}}}}}"#,
    );
    let to = (inner::SERVER, inner::PROBE_PORT);

    inner::probe_packet(inner::CLIENT, to, json.as_bytes())
}

#[test]
fn a_key_of_an_unknown_cipher_is_not_used() {
    let mut world = World::pair();
    world.run(ms(200));
    world.hosts[1].engine.local.aes = false; // It tells no other.
    world.packet(1, &telling("rot13"), 0);
    world.run(secs(1));

    assert_eq!(world.peer(0).version.as_deref(), Some("1.0.0"));
    assert_eq!(world.drops(0, Drop::ProbeMalformed), 0);
    assert!(!is_own(&sealed(&mut world, 0, b"x")));
}

#[test]
fn a_question_that_tells_a_key_draws_an_answer_only() {
    let mut world = World::pair();
    world.hosts[1].engine.local.aes = false;
    world.run(ms(120));
    world.flying.clear();

    world.packet(1, &telling("aes-256-gcm"), 0);
    world.run(world.latency);

    let [answer] = world.flying.make_contiguous() else {
        panic!("{} datagrams", world.flying.len());
    };
    assert!(!is_own(answer));
    world.capture = Some(Vec::new());
    world.run(ms(300));
    let later = world.capture.take().unwrap();
    assert!(later.iter().any(is_own), "the key is tried later");
}

#[test]
fn what_travels_in_the_clear_is_not_made_of_the_keys_seed() {
    let local = World::pair().hosts[0].engine.local.clone();
    let clock = Clock {
        instant: Instant::now(),
        unix: secs(1_790_000_000),
    };
    let seed = [7; 32];

    let mut engine = Engine::new(local, seed, clock);

    assert_ne!(engine.rng.next_u64(), rng::Rng::new(seed).next_u64());
    assert_ne!(
        engine.ratchet.next_key(),
        transport::Ratchet::new(seed).next_key(),
        "the first one is the seed of what travels"
    );
}
