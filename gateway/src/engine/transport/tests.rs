use super::*;
use proptest::prelude::*;

const SLOT: u32 = 0x00ab_cdef;
/// What a round trip takes.
const RTT: Duration = Duration::from_millis(10);

/// Two ends; the first has told the second a key.
struct Pair {
    ratchet: Ratchet,
    receiver: Transport,
    sender: Transport,
    now: Instant,
}

impl Pair {
    fn new() -> Self {
        let mut pair = Self {
            ratchet: Ratchet::new([7; 32]),
            receiver: Transport::default(),
            sender: Transport::default(),
            now: Instant::now(),
        };
        let key = pair.poll(1).expect("the first key");
        pair.use_key(&key);
        pair
    }

    /// Takes a key, and has the peer answer the question that proves it.
    fn use_key(&mut self, key: &DataKey) {
        self.sender.handle_key(key, self.now);
        let fresh = i128::from(key.number);
        if let Some(sent) = self.sender.poll_proof(fresh, RTT, self.now) {
            self.sender.handle_proof(sent, self.now);
        }
    }

    fn poll(&mut self, number: u64) -> Option<DataKey> {
        self.receiver
            .poll_key(SLOT, number, &mut self.ratchet, self.now)
    }

    fn seal(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut out = vec![0; packet.len() + OVERHEAD];
        let len = self.sender.seal(packet, &mut out).expect("a key");
        assert_eq!(len, out.len());
        out
    }

    fn open(&mut self, datagram: &[u8]) -> Result<Vec<u8>, Drop> {
        let mut out = vec![0; datagram.len()];
        let opened = self.receiver.open(datagram, &mut out)?;
        let Opened::Packet(len) = opened else {
            panic!("a packet, not {opened:?}");
        };
        Ok(out[..len].to_vec())
    }
}

proptest! {
    #[test]
    fn what_was_sealed_is_opened_once_in_any_order(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 1..40),
        order in any::<prop::sample::Index>(),
    ) {
        let mut pair = Pair::new();
        let mut sealed: Vec<_> = packets.iter().map(|packet| (packet, pair.seal(packet))).collect();
        let turn = order.index(sealed.len());
        sealed.rotate_left(turn);

        for (packet, datagram) in &sealed {
            prop_assert_eq!(classify(datagram), Some(SLOT << 8));
            prop_assert_eq!(&pair.open(datagram).unwrap(), *packet);
            prop_assert_eq!(pair.open(datagram), Err(Drop::Replayed));
        }
    }

    #[test]
    fn anything_else_is_dropped(mut datagram in prop::collection::vec(any::<u8>(), 0..200), is_typed in any::<bool>()) {
        let mut pair = Pair::new();
        if is_typed && datagram.len() >= 8 {
            datagram[..4].copy_from_slice(&TYPE);
            datagram[4..8].copy_from_slice(&(SLOT << 8).to_le_bytes());
        }

        if classify(&datagram).is_some() {
            prop_assert!(pair.open(&datagram).is_err());
        } else {
            prop_assert!(datagram.len() < OVERHEAD || !datagram.starts_with(&TYPE));
        }
    }
}

#[test]
fn header_nonce_and_cipher_are_those_of_the_format() {
    let mut pair = Pair::new();
    let key = pair.poll(1).unwrap();
    let first = pair.seal(b"first");
    let second = pair.seal(b"second");

    let sealed = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key.bytes).unwrap());
    let mut nonce = [0; 12];
    nonce[4] = 1;
    let mut text = second[16..].to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    let text = sealed
        .open_in_place(nonce, Aad::empty(), &mut text)
        .unwrap();

    assert_eq!(text, b"second");
    assert_eq!(
        first[..16],
        [4, 1, 0, 0, 0, 0xef, 0xcd, 0xab, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(second[8..16], 1_u64.to_le_bytes());
}

#[test]
fn a_key_is_told_until_a_later_question_is_answered() {
    let mut pair = Pair::new();
    let before = pair.now - Duration::from_millis(1);

    pair.receiver.handle_answer(before);
    assert!(
        pair.poll(2).is_some_and(|key| key.number == 1),
        "the same key"
    );
    pair.receiver.handle_answer(pair.now);

    assert_eq!(pair.poll(3), None);
}

#[test]
fn a_key_is_used_once_its_own_question_was_answered() {
    let mut pair = Pair::new();
    pair.receiver.handle_handshake();
    let second = pair.poll(2).unwrap();
    pair.sender.handle_key(&second, pair.now);
    let mut out = [0; 100];

    assert_eq!(pair.sender.poll_proof(2, RTT, pair.now), Some(2));
    let asked = pair.sender.seal_proof(b"question", &mut out).unwrap();
    assert_eq!(pair.open(&out[..asked]).unwrap(), b"question");
    assert_eq!(pair.sender.seal(b"data", &mut out), None);
    assert!(!pair.sender.handle_proof(1, pair.now), "of the key before");
    assert!(!pair.sender.is_sending());
    assert_eq!(pair.sender.seal(b"data", &mut out), None);

    assert!(pair.sender.handle_proof(2, pair.now));
    assert!(pair.sender.is_sending());
    let data = pair.seal(b"data");
    assert_eq!(data[8..16], 1_u64.to_le_bytes(), "after the question's");
    assert_eq!(pair.open(&data).unwrap(), b"data");
}

#[test]
fn a_handshake_ends_the_senders_key_and_brings_another() {
    let mut pair = Pair::new();
    let late = pair.seal(b"late");
    let first = pair.poll(1).unwrap();

    pair.sender.handle_handshake();
    pair.receiver.handle_handshake();
    assert!(!pair.sender.is_sending());
    let second = pair.poll(2).unwrap();
    pair.use_key(&second);
    let early = pair.seal(b"early");

    assert_ne!(first.bytes, second.bytes);
    assert_ne!(first.index, second.index);
    assert_eq!(pair.open(&early).unwrap(), b"early");
    assert_eq!(pair.open(&late).unwrap(), b"late", "it was on its way");
}

#[test]
fn a_key_of_before_does_not_begin_anew() {
    let mut pair = Pair::new();
    let first = pair.poll(1).unwrap();
    pair.seal(b"a nonce of the first key");

    pair.use_key(&first);
    let again = pair.seal(b"told twice");
    assert_eq!(again[8..16], 1_u64.to_le_bytes(), "the next nonce");

    pair.receiver.handle_handshake();
    let second = pair.poll(2).unwrap();
    pair.use_key(&second);
    pair.use_key(&first);
    assert_eq!(pair.seal(b"x")[4..8], second.index.to_le_bytes());

    pair.sender.handle_handshake();
    pair.use_key(&first);
    assert!(!pair.sender.is_sending(), "a late PING after a handshake");
    pair.sender.handle_lost_keys();
    pair.use_key(&second);
    assert!(!pair.sender.is_sending());
}

#[test]
fn no_key_lives_longer_than_wireguards() {
    let mut pair = Pair::new();
    let last = pair.seal(b"last");

    pair.sender
        .handle_tick(pair.now + SEND_FOR - Duration::from_millis(1));
    assert!(pair.sender.is_sending());
    pair.sender.handle_tick(pair.now + SEND_FOR);
    assert!(!pair.sender.is_sending());

    pair.receiver.handle_tick(pair.now + TAKE_FOR);
    assert_eq!(pair.open(&last), Err(Drop::NoKeys));
    assert!(
        pair.poll(2).is_some_and(|key| key.number == 2),
        "another one"
    );
}

#[test]
fn neither_does_the_one_of_before() {
    let mut pair = Pair::new();
    let late = pair.seal(b"late");
    pair.now += TAKE_FOR - Duration::from_secs(1);
    pair.receiver.handle_handshake();
    let current = pair.poll(2).unwrap();
    pair.use_key(&current);
    let early = pair.seal(b"early");

    pair.receiver.handle_tick(pair.now + Duration::from_secs(1));

    assert_eq!(pair.open(&late), Err(Drop::NoKeys));
    assert_eq!(pair.open(&early).unwrap(), b"early");
}

#[test]
fn the_last_counter_of_a_key_is_left_to_wireguard() {
    let mut pair = Pair::new();
    pair.sender.sender.as_mut().unwrap().counter = MESSAGES_MAX - 1;

    let mut last = pair.seal(b"last");
    assert_eq!(pair.sender.seal(b"beyond", &mut [0; 100]), None);
    assert_eq!(pair.open(&last).unwrap(), b"last");

    last[8..16].copy_from_slice(&MESSAGES_MAX.to_le_bytes());
    assert_eq!(pair.open(&last), Err(Drop::CounterLimit));
}

#[test]
fn a_key_is_not_shown() {
    let key = Pair::new().poll(1).unwrap();

    let shown = format!("{key:?}");

    assert_eq!(shown, "DataKey { number: 1, index: 2882400000, .. }");
}
