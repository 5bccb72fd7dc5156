//! Reads the sender and the timestamp of an initiation. boringtun does not expose the timestamp.
//!
//! boringtun remembers the newest timestamp only while the tunnel exists. The engine has one tunnel
//! per slot, and remembers the newest timestamps longer (`engine/timestamps.rs`).
//!
//! ```text
//!  0         4            8              40              88              116    132    148
//! +---------+------------+--------------+---------------+---------------+------+------+
//! | 1,0,0,0 | sender     | ephemeral    | static, sealed| timestamp,    | mac1 | mac2 |
//! |         | index (LE) | public key   |               | sealed        |      |      |
//! +---------+------------+--------------+---------------+---------------+------+------+
//! ```

use super::LocalKey;
use blake2::{Blake2s256, Digest as _};
use boringtun::x25519::{PublicKey, SharedSecret};
use chacha20poly1305::{AeadInPlace as _, ChaCha20Poly1305, KeyInit as _};
use hmac::{Mac, SimpleHmac};
use zeroize::Zeroizing;

/// Length of an initiation in bytes.
const LEN: usize = 148;
const CONSTRUCTION: &[u8] = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
const IDENTIFIER: &[u8] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";
const TAG: usize = 16;
const TIMESTAMP: usize = 12;

/// A TAI64N timestamp (whitepaper, section 5.1). A later timestamp compares greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) struct Timestamp([u8; TIMESTAMP]);

#[cfg(test)]
impl Timestamp {
    /// Returns a timestamp that grows with `number`.
    pub(in crate::engine) fn of(number: u32) -> Self {
        let mut bytes = [0; TIMESTAMP];
        bytes[TIMESTAMP - 4..].copy_from_slice(&number.to_be_bytes());

        Self(bytes)
    }
}

/// The sender of an initiation. It is not authenticated, because the initiation may be a replayed
/// copy.
pub(in crate::engine) struct Initiator {
    pub(in crate::engine) public_key: [u8; 32],
    /// Sender index of the initiation.
    pub(in crate::engine) index: u32,
    sealed_timestamp: [u8; TIMESTAMP + TAG],
    state: State,
}

/// State of the Noise handshake (whitepaper, section 5.4.2).
struct State {
    chaining_key: Zeroizing<[u8; 32]>,
    hash: [u8; 32],
}

impl Initiator {
    /// Decrypts the public key of the sender of an initiation for `local`; costs one
    /// Diffie-Hellman. Returns `None` if the initiation is malformed or for another key.
    pub(super) fn read(local: &LocalKey, datagram: &[u8]) -> Option<Self> {
        let message: &[u8; LEN] = datagram.try_into().ok()?;
        let (ephemeral, rest) = message[8..].split_first_chunk::<32>()?;
        let (sealed_static, rest) = rest.split_first_chunk::<{ 32 + TAG }>()?;
        let sealed_timestamp = *rest.first_chunk()?;

        let mut state = State::new(local);
        state.mix_hash(ephemeral);
        state.mix_key(ephemeral);
        let shared = local.secret.diffie_hellman(&PublicKey::from(*ephemeral));
        let key = state.mix_key(shared.as_bytes());
        let mut public_key = [0; 32];
        state.open(&key, sealed_static, &mut public_key)?;

        Some(Self {
            public_key,
            index: u32::from_le_bytes(*message[4..].first_chunk()?),
            sealed_timestamp,
            state,
        })
    }

    /// Returns the timestamp if the sender has the private key for its public key. `shared` is the
    /// shared secret of both static keys.
    pub(in crate::engine) fn timestamp(mut self, shared: &SharedSecret) -> Option<Timestamp> {
        let key = self.state.mix_key(shared.as_bytes());
        let mut timestamp = Timestamp::default();
        self.state
            .open(&key, &self.sealed_timestamp, &mut timestamp.0)?;

        Some(timestamp)
    }
}

impl State {
    fn new(local: &LocalKey) -> Self {
        let chaining_key = hash(CONSTRUCTION, b"");
        let mut state = Self {
            hash: hash(&chaining_key, IDENTIFIER),
            chaining_key: Zeroizing::new(chaining_key),
        };
        state.mix_hash(local.public.as_bytes());

        state
    }

    fn mix_hash(&mut self, input: &[u8]) {
        self.hash = hash(&self.hash, input);
    }

    /// Replaces the chaining key, and returns the second output of the whitepaper's KDF2.
    fn mix_key(&mut self, input: &[u8]) -> Zeroizing<[u8; 32]> {
        let secret = mac(&*self.chaining_key, &[input]);
        self.chaining_key = mac(&*secret, &[&[1]]);

        mac(&*secret, &[&*self.chaining_key, &[2]])
    }

    /// Decrypts `sealed` into `plain`, which is shorter by the tag of 16 bytes.
    fn open(&mut self, key: &[u8; 32], sealed: &[u8], plain: &mut [u8]) -> Option<()> {
        let (text, tag) = sealed.split_last_chunk::<TAG>()?;
        plain.copy_from_slice(text);
        ChaCha20Poly1305::new(key.into())
            .decrypt_in_place_detached(&[0; 12].into(), &self.hash, plain, tag.into())
            .ok()?;
        self.mix_hash(sealed);

        Some(())
    }
}

fn hash(first: &[u8], second: &[u8]) -> [u8; 32] {
    Blake2s256::new()
        .chain_update(first)
        .chain_update(second)
        .finalize()
        .into()
}

/// Computes HMAC-BLAKE2s (RFC 2104) over the concatenated `inputs`.
fn mac(key: &[u8], inputs: &[&[u8]]) -> Zeroizing<[u8; 32]> {
    let mac = <SimpleHmac<Blake2s256> as Mac>::new_from_slice(key)
        .expect("HMAC takes keys of any length");
    let mac = inputs
        .iter()
        .fold(mac, |mac, input| mac.chain_update(input));

    Zeroizing::new(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::super::{HANDSHAKE_BUFFER, Tunnel};
    use super::*;
    use mock_instant::MockClock;
    use std::time::Duration;

    fn initiation(tunnel: &mut Tunnel) -> Vec<u8> {
        let mut buffer = [0; HANDSHAKE_BUFFER];
        let len = tunnel.initiate(&mut buffer).unwrap();
        buffer[..len].to_vec()
    }

    #[test]
    fn sender_and_timestamp_of_boringtuns_initiations_are_read() {
        let (alice, bob) = (
            LocalKey::new(&[1; 32].into()),
            LocalKey::new(&[2; 32].into()),
        );
        let mut tunnel = Tunnel::new(&alice, bob.public.to_bytes(), 7);
        let mut read = || {
            let initiator = Initiator::read(&bob, &initiation(&mut tunnel)).unwrap();
            assert_eq!(initiator.public_key, alice.public.to_bytes());
            assert_eq!(initiator.index >> 8, 7);
            initiator
                .timestamp(&bob.shared_with(alice.public.to_bytes()))
                .unwrap()
        };

        let first = read();
        MockClock::advance(Duration::from_secs(1));
        let second = read();

        assert!(first < second, "{first:?} {second:?}");
        // A TAI64 label is 2^62 plus the seconds.
        assert_eq!(first.0[..4], [0x40, 0, 0, 0]);
    }

    #[test]
    fn every_forged_byte_and_every_wrong_key_is_detected() {
        let (alice, bob) = (
            LocalKey::new(&[1; 32].into()),
            LocalKey::new(&[2; 32].into()),
        );
        let eve = LocalKey::new(&[3; 32].into());
        let message = initiation(&mut Tunnel::new(&alice, bob.public.to_bytes(), 7));
        let shared = bob.shared_with(alice.public.to_bytes());
        let timestamp = |message: &[u8]| Initiator::read(&bob, message)?.timestamp(&shared);
        assert!(timestamp(&message).is_some());

        for place in 8..116 {
            let mut forged = message.clone();
            forged[place] ^= 1;
            assert_eq!(timestamp(&forged), None, "byte {place}");
        }
        assert!(Initiator::read(&eve, &message).is_none());
        let initiator = Initiator::read(&bob, &message).unwrap();
        assert_eq!(
            initiator.timestamp(&bob.shared_with(eve.public.to_bytes())),
            None
        );
        assert!(Initiator::read(&bob, &message[1..]).is_none());
    }
}
