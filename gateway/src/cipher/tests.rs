//! Tests of both implementations through ring's interface and through boringtun.
//!
//! On a machine without AVX-512, ring processes all messages of these tests. The tests then check
//! ring, and that the library is not called.

mod vectors;

use super::{Choice, Implementation, select};
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use proptest::prelude::*;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

#[test]
fn the_library_is_selected_if_it_is_linked_and_the_cpu_supports_it() {
    let _setting = lock();

    let selected = select(Choice::Auto);

    assert_eq!(selected == Implementation::IpsecMb, has_library());
}

#[test]
fn an_operator_can_force_ring() {
    let _setting = lock();
    select(Choice::Auto);

    let selected = select(Choice::Ring);
    let (_, calls) = counted(|| seal(&KEY, &NONCE, &[], &[7; 1_400]));

    assert_eq!((selected, calls), (Implementation::Ring, 0));
}

#[test]
fn the_library_encrypts_and_decrypts_the_packets_of_boringtun() {
    let _setting = lock();
    select(Choice::Auto);
    let packet = packet(1_400);
    let mut buffer = [0; 2_048];
    let ((mut sender, mut receiver), handshake) = counted(connected);

    let (datagram, sealed) = counted(|| {
        let result = sender.encapsulate(&packet, &mut buffer);
        let TunnResult::WriteToNetwork(datagram) = result else {
            panic!("{result:?}");
        };
        datagram.to_vec()
    });
    let (received, opened) = counted(|| {
        let result = receiver.decapsulate(None, &datagram, &mut buffer);
        let TunnResult::WriteToTunnelV4(packet, _) = result else {
            panic!("{result:?}");
        };
        packet.to_vec()
    });

    assert_eq!(received, packet);
    let expected = u64::from(has_library());
    assert_eq!((handshake, sealed, opened), (0, expected, expected));
}

#[test]
fn ring_processes_short_messages_and_messages_with_additional_data() {
    let _setting = lock();
    select(Choice::Auto);
    let calls = |aad: &[u8], length| counted(|| seal(&KEY, &NONCE, aad, &vec![0; length])).1;

    assert_eq!(calls(&[], 0), 0);
    assert_eq!(calls(&[], 511), 0);
    assert_eq!(calls(&[1], 1_400), 0);
    assert_eq!(calls(&[], 512), u64::from(has_library()));
}

#[test]
fn ring_processes_messages_that_move_in_their_buffer() {
    let _setting = lock();
    select(Choice::Auto);
    let mut buffer = [&[0; 3], &seal(&KEY, &NONCE, &[], &[7; 1_400])[..]].concat();

    let (opened, calls) = counted(|| {
        let nonce = Nonce::assume_unique_for_key(NONCE);
        let opened = key(&KEY).open_within(nonce, Aad::empty(), &mut buffer, 3..);
        opened.map(|plain| plain.to_vec())
    });

    assert_eq!((opened, calls), (Ok(vec![7; 1_400]), 0));
}

#[test]
fn threads_encrypt_at_the_same_time() {
    let _setting = lock();
    process_all();
    let messages: Vec<_> = (0..4).map(|byte| vec![byte; 1_424]).collect();
    let alone: Vec<_> = messages
        .iter()
        .map(|message| seal(&KEY, &NONCE, &[], message))
        .collect();

    thread::scope(|scope| {
        for (message, expected) in messages.iter().zip(&alone) {
            scope.spawn(move || {
                for _ in 0..2_000 {
                    assert_eq!(&seal(&KEY, &NONCE, &[], message), expected);
                }
            });
        }
    });
}

proptest! {
    #[test]
    fn library_and_ring_are_equal(
        key: [u8; 32],
        nonce: [u8; 12],
        plain in prop::collection::vec(any::<u8>(), 0..=9_000),
        aad in prop::collection::vec(any::<u8>(), 0..=40),
        flipped: prop::sample::Index,
        bit in 0..8,
    ) {
        let _setting = lock();
        select(Choice::Ring);
        let (by_ring, calls_of_ring) = counted(|| seal(&key, &nonce, &aad, &plain));
        process_all();

        let (by_library, calls) = counted(|| seal(&key, &nonce, &aad, &plain));
        let opened = open(&key, &nonce, &aad, &by_ring);
        let mut forged = by_ring.clone();
        let flipped = flipped.index(forged.len());
        forged[flipped] ^= 1_u8 << bit;

        prop_assert_eq!(&by_library, &by_ring);
        prop_assert_eq!(opened, Some(plain));
        prop_assert_eq!(open(&key, &nonce, &aad, &forged), None);
        prop_assert_eq!((calls_of_ring, calls), (0, u64::from(has_library())));
    }
}

const KEY: [u8; 32] = [1; 32];
const NONCE: [u8; 12] = [2; 12];

/// Serialises the tests that select an implementation, because the selection is global.
fn lock() -> MutexGuard<'static, ()> {
    static SETTING: Mutex<()> = Mutex::new(());

    SETTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether this machine can use the library, without the code under test.
fn has_library() -> bool {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap();

    cfg!(ipsec_mb) && cpu.split_whitespace().any(|flag| flag == "avx512ifma")
}

/// Lets the library process all messages, if this machine can use it.
fn process_all() {
    #[cfg(ipsec_mb)]
    let _ = super::ipsec_mb::set(super::ipsec_mb::Messages::All);
}

/// Returns the result of `run`, and the number of messages that the library has processed in it.
fn counted<T>(run: impl FnOnce() -> T) -> (T, u64) {
    let before = count();
    let result = run();

    (result, count() - before)
}

fn count() -> u64 {
    #[cfg(ipsec_mb)]
    return super::ipsec_mb::count();
    #[cfg(not(ipsec_mb))]
    0
}

fn key(bytes: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, bytes).unwrap())
}

/// Returns ciphertext and tag.
fn seal(bytes: &[u8; 32], nonce: &[u8; 12], aad: &[u8], plain: &[u8]) -> Vec<u8> {
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let mut sealed = plain.to_vec();
    key(bytes)
        .seal_in_place_append_tag(nonce, Aad::from(aad), &mut sealed)
        .unwrap();

    sealed
}

/// Returns the plaintext, or `None` if the tag is wrong.
fn open(bytes: &[u8; 32], nonce: &[u8; 12], aad: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let mut buffer = sealed.to_vec();
    let plain = key(bytes).open_in_place(nonce, Aad::from(aad), &mut buffer);

    plain.ok().map(|plain| plain.to_vec())
}

/// Returns two tunnels after their handshake.
fn connected() -> (Tunn, Tunn) {
    let secrets = [[1; 32], [2; 32]].map(StaticSecret::from);
    let [ours, theirs] = secrets.each_ref().map(PublicKey::from);
    let [our_secret, their_secret] = secrets;
    let mut initiator = Tunn::new(our_secret, theirs, None, None, 1, None);
    let mut responder = Tunn::new(their_secret, ours, None, None, 2, None);
    let (mut sent, mut replied) = ([0; 256], [0; 256]);

    let TunnResult::WriteToNetwork(initiation) =
        initiator.format_handshake_initiation(&mut sent, false)
    else {
        panic!("no initiation");
    };
    let TunnResult::WriteToNetwork(response) =
        responder.decapsulate(None, initiation, &mut replied)
    else {
        panic!("no response");
    };
    let TunnResult::WriteToNetwork(keepalive) = initiator.decapsulate(None, response, &mut sent)
    else {
        panic!("no keepalive");
    };
    let confirmed = responder.decapsulate(None, keepalive, &mut replied);
    assert!(matches!(confirmed, TunnResult::Done));

    (initiator, responder)
}

/// Returns a packet with the fields of the IPv4 header that boringtun reads.
fn packet(length: u16) -> Vec<u8> {
    let mut packet = vec![0xa5; length.into()];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());

    packet
}
