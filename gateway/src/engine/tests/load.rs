//! Tests floods of handshakes, and the limits of their cost.

use super::*;
use crate::engine::noise::{HANDSHAKE_BUFFER, LocalKey, Opened, Tunnel};

fn stranger(number: u32) -> SocketAddr {
    let [_, a, b, c] = number.to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(203, a, b, c), 4_000).into()
}

fn tunnel(private: [u8; 32], index: u32) -> Tunnel {
    Tunnel::new(
        &LocalKey::new(&private.into()),
        noise::public_key(&SERVER_KEY.into()),
        index,
    )
}

fn initiation(tunnel: &mut Tunnel) -> Vec<u8> {
    let mut buffer = [0; HANDSHAKE_BUFFER];
    let len = tunnel.initiate(&mut buffer).unwrap();
    buffer[..len].to_vec()
}

/// Passes `bytes` to the server, and returns its reply.
fn reply_to(network: &mut Network, from: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
    network.in_flight.clear();
    network.receive(0, PortId::LISTEN, from, &mut bytes.to_vec());
    network.in_flight.pop_back().map(|datagram| datagram.bytes)
}

fn server() -> Network {
    let mut network = Network::new();
    let server = network.host("server-0");
    network.set_peers(server, vec![serving()]);
    network
}

#[test]
fn a_flood_of_handshakes_causes_cookie_replies() {
    let mut network = server();
    let mut strange = tunnel([9; 32], 5);

    let mut cookies = 0;
    for number in 0..1_000 {
        let bytes = initiation(&mut strange);
        let reply = reply_to(&mut network, stranger(number), &bytes);
        cookies += usize::from(reply.is_some_and(|reply| reply[0] == 3));
    }

    assert_eq!(cookies, 900, "no public key is a peer's");
    assert_eq!(network.drops(0, Drop::CookieSent), 900);
    assert_eq!(network.drops(0, Drop::UnknownPeer), 100);
    assert_eq!(network.peer(0).sessions.len(), 0);
}

#[test]
fn a_peer_connects_during_a_flood_with_its_cookie() {
    let mut network = Network::pair();
    network.hosts[1].alive = false;
    network.set_peers(0, vec![serving()]);
    let mut strange = tunnel([9; 32], 5);
    let end = network.now + secs(3);
    let mut number = 0;

    while network.now < end {
        for _ in 0..20 {
            number += 1;
            let bytes = initiation(&mut strange);
            network.receive(0, PortId::LISTEN, stranger(number), &mut bytes.clone());
        }
        network.hosts[1].alive |= network.now > end - secs(2);
        network.run(ms(10));
    }

    assert!(network.drops(0, Drop::CookieSent) > 4_000);
    assert!(network.reachable(0) && network.reachable(1));
    let opened = network.events(1);
    let opened = opened.iter().filter(|e| matches!(e, Event::OpenPort(_)));
    assert!(opened.count() <= 2, "the cookie is used at once");
}

#[test]
fn a_cookie_is_for_one_address_and_port() {
    let mut network = server();
    let mut strange = tunnel([9; 32], 5);
    for number in 0..100 {
        reply_to(&mut network, stranger(number), &initiation(&mut strange));
    }
    let home: SocketAddr = "203.0.113.7:1000".parse().unwrap();
    let mut client = tunnel(CLIENT_KEY, 6);
    let cookie = reply_to(&mut network, home, &initiation(&mut client)).unwrap();
    assert_eq!(cookie[0], 3);
    let mut out = [0; HANDSHAKE_BUFFER];
    assert_eq!(client.open(&cookie, &mut out), Ok(Opened::Cookie));

    for elsewhere in ["203.0.113.8:1000", "203.0.113.7:1001"] {
        let bytes = initiation(&mut client);
        let reply = reply_to(&mut network, elsewhere.parse().unwrap(), &bytes).unwrap();
        assert_eq!(reply[0], 3, "another cookie");
    }
    let mut client_again = client;
    let cookie = reply_to(&mut network, home, &initiation(&mut client_again)).unwrap();
    assert_eq!(cookie[0], 2, "a response");
}

#[test]
fn a_cookie_works_over_ipv6_too() {
    let mut network = server();
    let mut strange = tunnel([9; 32], 5);
    for number in 0..100 {
        reply_to(&mut network, stranger(number), &initiation(&mut strange));
    }
    let home: SocketAddr = "[2001:db8::7]:1000".parse().unwrap();
    let mut client = tunnel(CLIENT_KEY, 6);
    let cookie = reply_to(&mut network, home, &initiation(&mut client)).unwrap();
    let mut out = [0; HANDSHAKE_BUFFER];
    client.open(&cookie, &mut out).unwrap();

    let other_port = "[2001:db8::7]:1001".parse().unwrap();
    let refused = reply_to(&mut network, other_port, &initiation(&mut client)).unwrap();
    assert_eq!(refused[0], 3);
    let reply = reply_to(&mut network, home, &initiation(&mut client)).unwrap();
    assert_eq!(reply[0], 2);
}

#[test]
fn with_a_cookie_one_source_is_still_limited_to_its_share() {
    let mut network = server();
    let mut strange = tunnel([9; 32], 5);
    for number in 0..100 {
        reply_to(&mut network, stranger(number), &initiation(&mut strange));
    }
    let home: SocketAddr = "203.0.113.7:1000".parse().unwrap();
    let cookie = reply_to(&mut network, home, &initiation(&mut strange)).unwrap();
    strange.open(&cookie, &mut [0; HANDSHAKE_BUFFER]).unwrap();

    for _ in 0..200 {
        reply_to(&mut network, home, &initiation(&mut strange));
    }

    let dropped = network.drops(0, Drop::HandshakeRate);
    assert!((150..200).contains(&dropped), "{dropped}");
}

#[test]
fn the_load_is_reset_after_a_second() {
    let mut network = server();
    let mut strange = tunnel([9; 32], 5);
    for number in 0..500 {
        reply_to(&mut network, stranger(number), &initiation(&mut strange));
    }

    network.run(ms(2_100));

    let mut client = tunnel(CLIENT_KEY, 6);
    let reply = reply_to(&mut network, stranger(1), &initiation(&mut client)).unwrap();
    assert_eq!(reply[0], 2);
}

#[test]
fn each_handshake_counts_once() {
    let mut network = server();

    for number in 0..99 {
        let mut client = tunnel(CLIENT_KEY, number);
        reply_to(&mut network, stranger(number), &initiation(&mut client));
    }

    assert_eq!(network.drops(0, Drop::CookieSent), 0);
}

#[test]
fn a_handshake_for_another_key_is_refused_before_any_diffie_hellman() {
    let mut network = server();
    let other = noise::public_key(&[77; 32].into());
    let mut stray = Tunnel::new(&LocalKey::new(&CLIENT_KEY.into()), other, 5);

    for number in 0..1_000 {
        assert_eq!(
            reply_to(&mut network, stranger(number), &initiation(&mut stray)),
            None
        );
    }

    assert_eq!(network.drops(0, Drop::InvalidMac), 1_000);
    assert_eq!(network.drops(0, Drop::CookieSent), 0);
}

#[test]
fn several_local_keys_are_distinguished() {
    let mut network = Network::new();
    let server = network.host("server-0");
    let peers = (1..=20_u8).map(|n| PeerConfig {
        index: u16::from(n),
        cluster_id: format!("client-{n}"),
        local_private_key: [n; 32].into(),
        public_key: noise::public_key(&[100 + n; 32].into()),
        ..serving()
    });
    network.set_peers(server, peers.collect());

    for n in 1..=20_u8 {
        let key = LocalKey::new(&[100 + n; 32].into());
        let mut client = Tunnel::new(&key, noise::public_key(&[n; 32].into()), u32::from(n));
        let from = stranger(u32::from(n));
        let response = reply_to(&mut network, from, &initiation(&mut client)).unwrap();
        let mut out = [0; HANDSHAKE_BUFFER];
        let Ok(Opened::Established(len)) = client.open(&response, &mut out) else {
            panic!("expected a response");
        };
        reply_to(&mut network, from, &out[..len]);

        assert!(
            network.hosts[server]
                .engine
                .select(u16::from(n), 0, Ipv4Addr::UNSPECIFIED)
                .is_some()
        );
    }
    // The public key belongs to a peer, but the initiation is for the key of another peering.
    let key = LocalKey::new(&[101; 32].into());
    let mut confused = Tunnel::new(&key, noise::public_key(&[2; 32].into()), 99);
    assert_eq!(
        reply_to(&mut network, stranger(99), &initiation(&mut confused)),
        None
    );
    assert_eq!(network.drops(server, Drop::UnknownPeer), 1);
}

#[test]
fn a_peers_own_flood_is_bounded_and_removes_no_live_session() {
    let mut network = Network::pair();
    network.run(secs(1));
    let live = network.peer(0).sessions[0].slot;

    for second in 0..20 {
        for number in 0..90 {
            let mut client = tunnel(CLIENT_KEY, second * 1_000 + number);
            let bytes = initiation(&mut client);
            network.receive(0, PortId::LISTEN, stranger(number), &mut bytes.clone());
        }
        network.run(ms(1_010));
        assert!(network.peer(0).sessions.len() <= 65);
    }

    assert!(network.drops(0, Drop::TentativeEvicted) > 500);
    assert!(network.peer(0).sessions.iter().any(|s| s.slot == live));
    assert!(network.reachable(0) && network.reachable(1));
    network.run(secs(15));
    assert_eq!(network.peer(0).sessions.len(), 1, "the others expired");
}

#[test]
fn a_peer_cannot_confirm_sessions_without_limit() {
    let mut network = server();

    for number in 0..200 {
        if number % 80 == 79 {
            network.run(ms(1_010));
        }
        let mut client = tunnel(CLIENT_KEY, number);
        let response = reply_to(&mut network, stranger(number), &initiation(&mut client)).unwrap();
        let mut out = [0; HANDSHAKE_BUFFER];
        let Ok(Opened::Established(len)) = client.open(&response, &mut out) else {
            panic!("expected a response");
        };
        reply_to(&mut network, stranger(number), &out[..len]);
    }

    assert_eq!(network.peer(0).sessions.len(), 128);
    assert_eq!(network.drops(0, Drop::SessionLimit), 72);
}
