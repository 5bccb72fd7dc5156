//! Encodes sender indices. The remote side copies these 32 bits into the receiver index of its
//! messages.
//!
//! WireGuard lets the sender choose the index (whitepaper, section 5.4.2), and boringtun lets its
//! caller choose the upper 24 bits. An initiation of this gateway has this index:
//!
//! ```text
//!  31            24 23                           8 7             0
//! +----------------+---------------+--------------+---------------+
//! | key hint       | random        | random; lane | counter of    |
//! |                |               | = value % n  | handshakes    |
//! +----------------+---------------+--------------+---------------+
//! |<------------------- slot, 24 bits ----------->|<- boringtun ->|
//! ```
//!
//! - The *key hint* is the first byte of the responder's public key. A gateway may have one key per
//!   peering, and mac1 does not name the key that a message is for. Without a hint, the responder
//!   has to compute mac1 with one key after another. With a hint, a gateway with 1,000 keys tries
//!   about four of them. The hint is not trusted: only mac1 decides. The mac1 checks for a sender
//!   with a wrong hint are limited like the checks for a sender without a hint
//!   (`engine/keys/budget.rs`). An observer learns eight bits of a public key.
//! - The lane byte selects one of the responder's `n` lanes (`engine/lanes.rs`).
//! - The counter distinguishes the handshakes of a session.
//!
//! The slot identifies a session among all sessions of the same two keys. For one responder key and
//! lane, 65,536 / `n` slots have the correct hint. This is at least 4,096, and a peer has up to 128
//! sessions. Peers whose keys have the same hint share these slots. If [`SLOT_TRIES`] draws find no
//! free slot, the session uses a slot without the hint.
//!
//! The index of a response has no hint, and so the upper 16 bits of its slot are random. The slots
//! of upstream gateways, of other WireGuard implementations and of the first release of this
//! project are random, too. One in 256 of these has the hint of a given key by chance.

/// Maximum number of draws of a hinted slot. If 90 % of the slots are in use, one session in 800
/// gets no hint.
pub(super) const SLOT_TRIES: usize = 64;

/// Position of the sender index in an initiation.
const SENDER: std::ops::Range<usize> = 4..8;
const HINT_SHIFT: u32 = 16;

/// Returns the upper 24 bits of an index.
#[inline]
pub(super) fn slot(index: u32) -> u32 {
    index >> 8
}

/// Returns the hint for a public key, which is its first byte.
pub(super) fn hint(public_key: &[u8; 32]) -> u8 {
    public_key[0]
}

/// Returns `slot` with its upper eight bits replaced by `hint`.
pub(super) fn with_hint(slot: u32, hint: u8) -> u32 {
    slot & ((1 << HINT_SHIFT) - 1) | u32::from(hint) << HINT_SHIFT
}

/// Returns the key hint of an initiation, or `None` if the message is too short.
pub(super) fn hint_of(initiation: &[u8]) -> Option<u8> {
    let index = u32::from_le_bytes(initiation.get(SENDER)?.try_into().ok()?);

    u8::try_from(slot(index) >> HINT_SHIFT).ok()
}

#[cfg(test)]
mod tests {
    use super::super::lanes::{LANES_MAX, LaneId};
    use super::super::noise::{HANDSHAKE_BUFFER, LocalKey, Tunnel, public_key};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hint_changes_neither_lane_nor_random_bits(
            drawn in 0..1_u32 << 24, key in any::<[u8; 32]>(), number in 0..LANES_MAX, of in 1..=LANES_MAX,
        ) {
            let hinted = with_hint(drawn, hint(&key));

            prop_assert!(hinted < 1 << 24);
            prop_assert_eq!(hinted & 0xffff, drawn & 0xffff);
            if let Some(lane) = LaneId::new(number, of) {
                prop_assert_eq!(lane.holds(hinted), lane.holds(drawn));
            }
        }

        #[test]
        fn an_initiation_carries_the_hint_and_is_otherwise_wireguards(drawn in 0..1_u32 << 24, remote in any::<[u8; 32]>()) {
            let remote = public_key(&remote.into());
            let slot = with_hint(drawn, hint(&remote));
            let mut buffer = [0; HANDSHAKE_BUFFER];

            let mut tunnel = Tunnel::new(&LocalKey::new(&[1; 32].into()), remote, slot);
            let len = tunnel.initiate(&mut buffer).unwrap();

            prop_assert_eq!(len, 148);
            prop_assert_eq!(buffer[..4].to_vec(), [1, 0, 0, 0]);
            prop_assert_eq!(super::slot(u32::from_le_bytes(buffer[4..8].try_into().unwrap())), slot);
            prop_assert_eq!(hint_of(&buffer[..len]), Some(remote[0]));
        }
    }
}
