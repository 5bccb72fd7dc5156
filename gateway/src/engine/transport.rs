//! Data messages of our own, between two of our gateways: AES-256-GCM beside WireGuard's cipher.
//!
//! WireGuard knows one cipher, ChaCha20-Poly1305, and that is the largest part of what a byte costs
//! in a gateway. A CPU with instructions for AES does AES-256-GCM three times as fast. So a gateway that
//! has them tells its peer, inside the WireGuard session, a key under which it takes data:
//!
//! ```text
//! receiver                                            sender
//!    | --- PING, sealed by WireGuard: number, index, key --> |
//!    | <-- PONG, sealed by WireGuard ----------------------- |   told no more
//!    | <-- PING, sealed by the key ------------------------- |   proof that such messages arrive
//!    | --- PONG, sealed by WireGuard ----------------------> |
//!    | <================ data under the key ================ |
//!
//!  0              4              8              16
//!  +--------------+--------------+--------------+------------------+--------+
//!  | 4, 1, 0, 0   | index (LE)   | counter (LE) | sealed packet    | tag    |
//!  +--------------+--------------+--------------+------------------+--------+
//! ```
//!
//! This is WireGuard's data message but for the second byte, which WireGuard has as zero, and has the same
//! length. The nonce is four zero bytes and the counter. Who a peer is, that it is alive, where it is,
//! and when keys end remains WireGuard's business:
//!
//! - A key lives as long as one of WireGuard's: each handshake ends what the sender has, and
//!   makes the receiver tell another one. Until that has come data is sealed by WireGuard, as it
//!   is towards all who tell none: upstream's gateways, those without such CPUs, older ones of ours.
//! - The key is random and travels in the session only, so it is as secret as the session,
//!   afterwards, too: it is derived from nothing that is kept ([`Ratchet`]).
//! - No nonce twice: a sender takes only keys with a larger number than all before, so that
//!   a late PING cannot make it begin with the same key anew.
//! - A key is used once a question that it sealed was answered, and while such questions are: a firewall
//!   that knows WireGuard may drop what has that byte, and all others would pass ([`Proof`]).
//! - A message that was taken once is not taken again ([`Window`]).

mod proof;
mod ratchet;
mod window;

use super::drops::Drop;
use super::noise::{OVERHEAD, Opened};
use proof::Proof;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::fmt;
use std::time::{Duration, Instant};
use window::Window;

pub(super) use ratchet::Ratchet;

/// The name of the cipher where keys are told.
pub(super) const CIPHER: &str = "aes-256-gcm";

/// Type 4, data, and in the first of the bytes that WireGuard reserves: AES-256-GCM.
const TYPE: [u8; 4] = [4, 1, 0, 0];

/// Where the packet begins.
const HEADER: usize = 16;

const TAG: usize = 16;

/// How long a sender uses a key (WireGuard's `REJECT_AFTER_TIME`; whitepaper, section 6.1).
const SEND_FOR: Duration = Duration::from_secs(180);

/// How long a receiver takes data under one that was replaced: longer than it can be in use.
const TAKE_FOR: Duration = Duration::from_secs(240);

/// Messages under one key, far beyond what [`SEND_FOR`] allows: so many of the longest (9,000 bytes, less
/// than 2^10 blocks) are 2^46 blocks, for which an attacker's chances stay below 2^-36 (2^(2 * 46) / 2^128).
const MESSAGES_MAX: u64 = 1 << 36;

/// A key, as its receiver tells it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct DataKey {
    /// Grows from key to key: nanoseconds since the Unix epoch.
    pub(super) number: u64,
    /// The receiver's index: its slot and a byte that tells its keys apart.
    pub(super) index: u32,
    /// The key itself.
    pub(super) bytes: [u8; 32],
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataKey")
            .field("number", &self.number)
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

/// The keys of one session, in both directions.
#[derive(Default)]
pub(super) struct Transport {
    sender: Option<Box<Sender>>,
    receiver: Option<Box<Receiver>>,
    /// What the peer may still use: it has not heard of the new one, or messages are on their way.
    before: Option<Box<Receiver>>,
    /// The peer needs a key that it has not been told.
    is_due: bool,
    /// The largest number of a key that the peer has told.
    newest: u64,
}

struct Sender {
    key: LessSafeKey,
    index: u32,
    counter: u64,
    since: Instant,
    proof: Proof,
}

struct Receiver {
    key: LessSafeKey,
    index: u32,
    window: Window,
    since: Instant,
    /// What to tell, until the peer has answered.
    told: Option<DataKey>,
}

/// Returns the receiver's index if the datagram is such a message, by type and length alone.
#[inline]
pub(super) fn classify(datagram: &[u8]) -> Option<u32> {
    let is_one = datagram.len() >= OVERHEAD && datagram.starts_with(&TYPE);

    is_one.then(|| index(datagram))
}

impl Transport {
    /// Handles that the session got new keys: all keys are to be new.
    pub(super) fn handle_handshake(&mut self) {
        self.sender = None;
        self.is_due = true;
    }

    /// Handles that the session has no keys any more.
    pub(super) fn handle_lost_keys(&mut self) {
        *self = Self {
            newest: self.newest,
            ..Self::default()
        };
    }

    /// Returns what to tell the peer, if it has to be told: the key for the slot `slot`, whose number is
    /// `number` if it is a new one.
    pub(super) fn poll_key(
        &mut self,
        slot: u32,
        number: u64,
        ratchet: &mut Ratchet,
        now: Instant,
    ) -> Option<DataKey> {
        if self.is_due || self.receiver.is_none() {
            self.is_due = false;
            let before = self.receiver.take();
            let turn = before
                .as_ref()
                .map_or(0, |before| before.index.wrapping_add(1));
            let key = DataKey {
                number,
                index: slot << 8 | turn & 0xff,
                bytes: ratchet.next_key(),
            };
            self.before = before;
            self.receiver = Some(Box::new(Receiver::new(key, now)));
        }

        self.receiver.as_ref()?.told.clone()
    }

    /// Handles the answer to a question that was asked at `asked`.
    pub(super) fn handle_answer(&mut self, asked: Instant) {
        if let Some(receiver) = &mut self.receiver
            && asked >= receiver.since
        {
            receiver.told = None;
        }
    }

    /// Takes the key under which the peer wants data, unless it is an old one. It is used when it is proved.
    pub(super) fn handle_key(&mut self, key: &DataKey, now: Instant) {
        if key.number > self.newest {
            self.newest = key.number;
            self.sender = Some(Box::new(Sender {
                key: aes(&key.bytes),
                index: key.index,
                counter: 0,
                since: now,
                proof: Proof::default(),
            }));
        }
    }

    /// Returns the time stamp of the question to put by [`Transport::seal_proof`], if one is due: `fresh`,
    /// which no other has, if it is a new one. A round trip takes about `rtt`.
    pub(super) fn poll_proof(&mut self, fresh: i128, rtt: Duration, now: Instant) -> Option<i128> {
        let sender = self.sender.as_mut()?;

        sender.proof.poll(sender.counter, fresh, rtt, now)
    }

    /// Handles the answer to the question of the time stamp `sent`; returns whether that was such a one.
    pub(super) fn handle_proof(&mut self, sent: i128, now: Instant) -> bool {
        let sender = self.sender.as_mut();

        sender.is_some_and(|sender| sender.proof.handle_answer(sent, sender.counter, now))
    }

    /// Ends what is too old.
    pub(super) fn handle_tick(&mut self, now: Instant) {
        let is_over = |since: Instant, limit| now.saturating_duration_since(since) >= limit;
        self.sender.take_if(|it| is_over(it.since, SEND_FOR));
        self.before.take_if(|it| is_over(it.since, TAKE_FOR));
        if self
            .receiver
            .take_if(|it| is_over(it.since, TAKE_FOR))
            .is_some()
        {
            self.is_due = true;
        }
    }

    /// Returns whether packets are sealed here.
    pub(super) fn is_sending(&self) -> bool {
        let sender = self.sender.as_ref();

        sender.is_some_and(|sender| sender.proof.is_given())
    }

    /// Encrypts `packet` into `out`, which must be [`OVERHEAD`] longer; `None` if WireGuard is to.
    #[inline]
    pub(super) fn seal(&mut self, packet: &[u8], out: &mut [u8]) -> Option<usize> {
        let sender = self.sender.as_mut().filter(|it| it.proof.is_given())?;

        sender.seal(packet, out)
    }

    /// The same for the question that proves the key.
    pub(super) fn seal_proof(&mut self, packet: &[u8], out: &mut [u8]) -> Option<usize> {
        self.sender.as_mut()?.seal(packet, out)
    }

    /// Decrypts a message that [`classify`] knew, into `out`, which must be as long.
    ///
    /// # Errors
    ///
    /// Returns the reason to drop it.
    #[inline]
    pub(super) fn open(&mut self, datagram: &[u8], out: &mut [u8]) -> Result<Opened, Drop> {
        let index = index(datagram);
        let counter = u64::from_le_bytes(datagram[8..HEADER].try_into().expect("eight bytes"));
        let sealed = &datagram[HEADER..];
        let receiver = [&mut self.receiver, &mut self.before]
            .into_iter()
            .flatten()
            .find(|receiver| receiver.index == index)
            .ok_or(Drop::NoKeys)?;
        if counter >= MESSAGES_MAX {
            return Err(Drop::CounterLimit);
        }
        receiver.window.check(counter)?;
        let out = out.get_mut(..sealed.len()).ok_or(Drop::Oversized)?;
        out.copy_from_slice(sealed);
        let packet = (receiver.key)
            .open_in_place(nonce(counter), Aad::empty(), out)
            .map_err(|_| Drop::InvalidTag)?;
        receiver.window.take(counter);

        Ok(Opened::Packet(packet.len()))
    }
}

impl Sender {
    #[inline]
    fn seal(&mut self, packet: &[u8], out: &mut [u8]) -> Option<usize> {
        let len = packet.len() + OVERHEAD;
        let out = out.get_mut(..len)?;
        let counter = self.counter;
        if counter >= MESSAGES_MAX {
            return None;
        }
        self.counter += 1;

        let (header, rest) = out.split_at_mut(HEADER);
        let (text, tag) = rest.split_at_mut(packet.len());
        header[..4].copy_from_slice(&TYPE);
        header[4..8].copy_from_slice(&self.index.to_le_bytes());
        header[8..].copy_from_slice(&counter.to_le_bytes());
        text.copy_from_slice(packet);
        let sealed = self
            .key
            .seal_in_place_separate_tag(nonce(counter), Aad::empty(), text)
            .ok()?;
        tag.copy_from_slice(sealed.as_ref());

        Some(len)
    }
}

impl Receiver {
    fn new(key: DataKey, now: Instant) -> Self {
        Self {
            key: aes(&key.bytes),
            index: key.index,
            window: Window::default(),
            since: now,
            told: Some(key),
        }
    }
}

fn aes(bytes: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).expect("a key has 32 bytes"))
}

/// Reads the index of a message that is at least [`OVERHEAD`] long.
#[inline]
fn index(datagram: &[u8]) -> u32 {
    u32::from_le_bytes(datagram[4..8].try_into().expect("four bytes"))
}

#[inline]
fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[4..].copy_from_slice(&counter.to_le_bytes());

    Nonce::assume_unique_for_key(bytes)
}

const _: () = assert!(HEADER + TAG == OVERHEAD, "as long as WireGuard's");

#[cfg(test)]
mod tests;
