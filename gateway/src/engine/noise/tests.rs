use super::*;

fn handshake() -> (Tunnel, Tunnel) {
    let (a, b) = (
        LocalKey::new(&[1; 32].into()),
        LocalKey::new(&[2; 32].into()),
    );
    let mut initiator = Tunnel::new(&a, public_key(&[2; 32].into()), 7);
    let mut responder = Tunnel::new(&b, public_key(&[1; 32].into()), 8);
    let mut buffer = [0; HANDSHAKE_BUFFER];
    let mut out = [0; HANDSHAKE_BUFFER];

    let len = initiator.initiate(&mut buffer).unwrap();
    let Ok(Opened::Response(len)) = responder.open(&buffer[..len], &mut out) else {
        panic!("expected a response");
    };
    let Ok(Opened::Established(len)) = initiator.open(&out[..len], &mut buffer) else {
        panic!("expected keys");
    };
    assert!(!responder.is_keyed(), "not before the first data message");
    assert_eq!(
        responder.open(&buffer[..len], &mut out),
        Ok(Opened::Keepalive)
    );

    (initiator, responder)
}

#[test]
fn a_handshake_gives_both_sides_keys() {
    let (mut a, mut b) = handshake();
    let packet = [&[0x45, 0, 0, 20][..], &[0; 16]].concat();
    let mut sealed = [0; 52];
    let mut out = [0; 64];

    for (from, to) in [(0, 1), (1, 0)] {
        let sides = [&mut a, &mut b];
        let len = sides[from].seal(&packet, &mut sealed).unwrap();
        assert_eq!(len, packet.len() + OVERHEAD);
        assert_eq!(
            sides[to].open(&sealed[..len], &mut out),
            Ok(Opened::Packet(packet.len()))
        );
        assert_eq!(out[..packet.len()], packet);
    }
}

#[test]
fn without_keys_nothing_is_sealed_and_nothing_queued() {
    let mut tunnel = Tunnel::new(
        &LocalKey::new(&[1; 32].into()),
        public_key(&[2; 32].into()),
        7,
    );

    assert_eq!(tunnel.seal(b"packet", &mut [0; 256]), Err(Drop::NoKeys));
    assert!(tunnel.age().is_none());
}

#[test]
fn buffers_that_are_too_small_cause_no_panic() {
    let (mut a, mut b) = handshake();
    let mut sealed = [0; 64];
    let len = a.seal(&[0x45; 30], &mut sealed).unwrap();

    assert_eq!(a.seal(&[0; 33], &mut [0; 64]), Err(Drop::Oversized));
    assert_eq!(b.open(&sealed[..len], &mut [0; 10]), Err(Drop::Oversized));
    assert_eq!(b.open(&[1; 148], &mut [0; 148]), Err(Drop::Malformed));
}

#[test]
fn messages_are_classified_by_type_and_length() {
    let message = |kind: u8, len: usize| {
        let mut bytes = vec![0; len];
        bytes[0] = kind;
        classify(&bytes)
    };

    assert_eq!(message(1, 148), Some(Message::Initiation));
    assert_eq!(message(2, 92), Some(Message::Response(0)));
    assert_eq!(message(3, 64), Some(Message::Cookie(0)));
    assert_eq!(message(4, 32), Some(Message::Data(0)));
    for (kind, len) in [(0, 148), (1, 147), (2, 148), (3, 65), (4, 31), (5, 100)] {
        assert_eq!(message(kind, len), None);
    }
    assert_eq!(classify(&[]), None);
}

#[test]
fn cookie_addresses_differ_by_port() {
    let address = |text: &str| cookie_address(text.parse().unwrap());

    for ip in ["192.0.2.1", "[2001:db8::1]"] {
        assert_eq!(address(&format!("{ip}:1")), address(&format!("{ip}:1")));
        assert_ne!(address(&format!("{ip}:1")), address(&format!("{ip}:2")));
    }
    assert_ne!(address("192.0.2.1:1"), address("192.0.2.2:1"));
    assert_ne!(address("[2001:db8::1]:1"), address("[2001:db8::2]:1"));
}

#[test]
fn a_tunnel_stays_small() {
    // `TENTATIVE_MAX` in `engine/handshakes.rs` assumes 12 KB per session.
    assert!(size_of::<Tunn>() < 12 * 1_024, "{}", size_of::<Tunn>());
}
