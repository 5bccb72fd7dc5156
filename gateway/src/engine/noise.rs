//! WireGuard's handshake and transport encryption, implemented with boringtun.
//!
//! Only this file and `noise/initiation.rs` use boringtun, because it reads the clock and the
//! system's randomness directly. The rest of the engine must do neither. This file also handles the
//! cases that boringtun leaves to its caller:
//!
//! - boringtun queues whole packets while it has no keys. [`Tunnel::seal`] refuses such packets
//!   instead.
//! - boringtun panics if a buffer is too small. [`Tunnel::seal`] and [`Tunnel::open`] check the
//!   lengths first.
//! - boringtun does not limit the counter of received data messages, which finally overflows.
//!   [`Tunnel::open`] refuses counters from `REJECT_AFTER_MESSAGES` on. A sender needs 58,000 years
//!   to reach this limit at ten million messages per second.
//! - A boringtun rate limiter counts every handshake that it verifies. Each initiation is verified
//!   twice: by [`LocalKey::verify`] and by the tunnel. The tunnels use a second rate limiter, which
//!   has no limit, so that each initiation counts once.
//! - boringtun binds a cookie to the sender's address, but not to its port. [`cookie_address`] adds
//!   the port.
//! - boringtun does not expose the timestamp of an initiation. `noise/initiation.rs` reads it.

mod initiation;

pub(super) use boringtun::x25519::SharedSecret;
pub(super) use initiation::{Initiator, Timestamp};

use super::drops::Drop;
use super::key::PrivateKey;
use crate::mutant;
use boringtun::noise::errors::WireGuardError;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Packet, Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that a data message adds to its packet: a header of 16 bytes and a tag of 16 bytes.
pub(super) const OVERHEAD: usize = 32;

/// Buffer size for every message except data. The longest one, an initiation, has 148 bytes.
pub(super) const HANDSHAKE_BUFFER: usize = 256;

/// Handshakes per second and local key above which the key is under load, and senders must prove
/// their address with a cookie. A handshake costs about 0.2 ms, so 100 cost 2 % of a core.
const HANDSHAKES_PER_SECOND: u64 = 100;

/// Counter from which on data messages are refused (`REJECT_AFTER_MESSAGES`; whitepaper, section
/// 6.1).
const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);

/// Type of a message, with the receiver index if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Initiation,
    Response(u32),
    Cookie(u32),
    Data(u32),
}

/// Classifies a datagram by type and length alone; returns `None` if it is not a WireGuard message.
#[inline]
pub(super) fn classify(datagram: &[u8]) -> Option<Message> {
    match Tunn::parse_incoming_packet(datagram).ok()? {
        Packet::HandshakeInit(_) => Some(Message::Initiation),
        Packet::HandshakeResponse(response) => Some(Message::Response(response.receiver_idx)),
        Packet::PacketCookieReply(cookie) => Some(Message::Cookie(cookie.receiver_idx)),
        Packet::PacketData(data) => Some(Message::Data(data.receiver_idx)),
    }
}

pub(super) fn public_key(private: &PrivateKey) -> [u8; 32] {
    PublicKey::from(&StaticSecret::from(*private.as_bytes())).to_bytes()
}

/// A local static key, with the rate limiter of its handshakes.
pub(super) struct LocalKey {
    secret: StaticSecret,
    public: PublicKey,
    /// Decides when senders need a cookie. Counts each handshake once.
    limiter: RateLimiter,
    /// Rate limiter without a limit, for the tunnels. They verify each handshake again, and must
    /// not count it a second time.
    unlimited: Arc<RateLimiter>,
    /// Handshakes since the last [`LocalKey::reset_load`].
    handshakes: u64,
}

/// Result of [`LocalKey::verify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// mac1 is not for this key.
    OtherKey,
    /// mac1 is for this key, which is not under load.
    Verified,
    /// mac1 is for this key under load, and mac2 proves the sender's address.
    VerifiedUnderLoad,
    /// The key is under load, and mac2 does not prove the sender's address. The buffer holds a
    /// cookie reply of this length.
    Cookie(usize),
}

impl LocalKey {
    pub(super) fn new(private: &PrivateKey) -> Self {
        let secret = StaticSecret::from(*private.as_bytes());
        let public = PublicKey::from(&secret);
        let limit = if mutant::disables("cookie") {
            u64::MAX
        } else {
            HANDSHAKES_PER_SECOND
        };

        Self {
            limiter: RateLimiter::new(&public, limit),
            unlimited: Arc::new(RateLimiter::new(&public, u64::MAX)),
            secret,
            public,
            handshakes: 0,
        }
    }

    /// Checks the mac1 of a handshake message. Under load, also checks its mac2.
    pub(super) fn verify(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        out: &mut [u8; HANDSHAKE_BUFFER],
    ) -> Verdict {
        let address = Some(cookie_address(from));
        let verdict = match self.limiter.verify_packet(address, datagram, out) {
            Ok(_) if self.handshakes >= HANDSHAKES_PER_SECOND => Verdict::VerifiedUnderLoad,
            Ok(_) => Verdict::Verified,
            Err(TunnResult::WriteToNetwork(cookie)) => Verdict::Cookie(cookie.len()),
            Err(_) => Verdict::OtherKey,
        };
        if verdict != Verdict::OtherKey {
            self.handshakes += 1;
        }

        verdict
    }

    /// Reads the sender of an initiation; costs one Diffie-Hellman.
    pub(super) fn identify(&self, datagram: &[u8]) -> Option<Initiator> {
        Initiator::read(self, datagram)
    }

    /// Returns the shared secret of this key and the public key `remote`; costs one Diffie-Hellman.
    pub(super) fn shared_with(&self, remote: [u8; 32]) -> SharedSecret {
        self.secret.diffie_hellman(&PublicKey::from(remote))
    }

    /// Resets the number of handshakes. The engine calls this every second.
    pub(super) fn reset_load(&mut self) {
        self.limiter.reset_count();
        self.handshakes = 0;
    }
}

/// Returns the address to which boringtun binds a cookie, derived from address and port.
///
/// The whitepaper (section 5.4.7) binds a cookie to address and port. boringtun binds it only to an
/// address, of up to 16 bytes. An IPv4 address and a port fit into 16 bytes. For IPv6 the first
/// eight bytes are the /64 prefix, and the other eight are a hash of address and port. A cookie is
/// then valid for another port only if the hashes collide.
fn cookie_address(from: SocketAddr) -> IpAddr {
    let mut bytes = [0; 16];
    match from.ip() {
        IpAddr::V4(ip) => {
            bytes[..4].copy_from_slice(&ip.octets());
            bytes[4..6].copy_from_slice(&from.port().to_be_bytes());
        }
        IpAddr::V6(ip) => {
            let mut hasher = DefaultHasher::new();
            (ip, from.port()).hash(&mut hasher);
            bytes[..8].copy_from_slice(&ip.octets()[..8]);
            bytes[8..].copy_from_slice(&hasher.finish().to_be_bytes());
        }
    }

    IpAddr::V6(Ipv6Addr::from(bytes))
}

/// Effect of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// The buffer holds a packet of this length.
    Packet(usize),
    /// An authenticated message without a packet.
    Keepalive,
    /// An initiation was accepted. The buffer holds a response of this length, which the caller
    /// sends.
    Response(usize),
    /// A response was accepted, and the tunnel has keys. The buffer holds a keepalive of this
    /// length, which the caller sends to confirm the keys.
    Established(usize),
    /// A cookie was accepted. The next initiation will use it.
    Cookie,
}

/// Effect of [`Tunnel::tick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tick {
    Nothing,
    /// The buffer holds a keepalive of this length, which the caller sends.
    Keepalive(usize),
    /// The buffer holds an initiation of this length, which the caller sends.
    Initiation(usize),
    /// All keys and handshakes have expired.
    Expired,
}

/// A WireGuard tunnel: handshakes, keys and replay windows.
pub(super) struct Tunnel {
    tunn: Box<Tunn>,
    /// Whether the tunnel has keys for sending. The value is cached, because boringtun reads the
    /// clock to determine it. Only `open` and `tick` change it.
    keyed: bool,
    #[cfg(feature = "mutants")]
    remembered: std::collections::VecDeque<([u8; 12], Vec<u8>)>,
}

impl Tunnel {
    /// Creates a tunnel without keys. The upper 24 bits of its indices are `index`.
    pub(super) fn new(local: &LocalKey, remote: [u8; 32], index: u32) -> Self {
        let tunn = Tunn::new(
            local.secret.clone(),
            PublicKey::from(remote),
            None,
            None,
            index,
            Some(Arc::clone(&local.unlimited)),
        );

        Self {
            tunn: Box::new(tunn),
            keyed: false,
            #[cfg(feature = "mutants")]
            remembered: Default::default(),
        }
    }

    /// Returns whether the tunnel has keys for sending.
    #[inline]
    pub(super) fn is_keyed(&self) -> bool {
        self.keyed
    }

    /// Returns the age of the current keys.
    pub(super) fn age(&self) -> Option<Duration> {
        self.tunn.time_since_last_handshake()
    }

    /// Writes an initiation, and returns its length. An earlier initiation may still wait for its
    /// response.
    pub(super) fn initiate(&mut self, out: &mut [u8; HANDSHAKE_BUFFER]) -> Option<usize> {
        match self.tunn.format_handshake_initiation(out, true) {
            TunnResult::WriteToNetwork(datagram) => Some(datagram.len()),
            TunnResult::Done
            | TunnResult::Err(_)
            | TunnResult::WriteToTunnelV4(..)
            | TunnResult::WriteToTunnelV6(..) => None,
        }
    }

    /// Encrypts `packet` into `out`; an empty packet is a keepalive.
    #[inline]
    pub(super) fn seal(&mut self, packet: &[u8], out: &mut [u8]) -> Result<usize, Drop> {
        if !self.keyed {
            return Err(Drop::NoKeys);
        }
        if out.len() < packet.len() + OVERHEAD {
            return Err(Drop::Oversized);
        }

        match self.tunn.encapsulate(packet, out) {
            TunnResult::WriteToNetwork(datagram) => Ok(datagram.len()),
            TunnResult::Done
            | TunnResult::Err(_)
            | TunnResult::WriteToTunnelV4(..)
            | TunnResult::WriteToTunnelV6(..) => Err(Drop::NoKeys),
        }
    }

    /// Handles a message for this tunnel, and writes a packet or a reply to `out`. The caller must
    /// have checked an initiation with [`LocalKey::verify`].
    #[inline]
    pub(super) fn open(&mut self, datagram: &[u8], out: &mut [u8]) -> Result<Opened, Drop> {
        let Some(message) = classify(datagram) else {
            return Err(Drop::Malformed);
        };
        let is_data = matches!(message, Message::Data(_));
        if out.len() < datagram.len() || (!is_data && out.len() < HANDSHAKE_BUFFER) {
            return Err(Drop::Oversized);
        }
        if is_data && counter(datagram) >= REJECT_AFTER_MESSAGES {
            return Err(Drop::CounterLimit);
        }

        let opened = match (self.tunn.decapsulate(None, datagram, out), message) {
            (TunnResult::WriteToTunnelV4(packet, _), Message::Data(_)) => {
                Opened::Packet(packet.len())
            }
            (TunnResult::WriteToTunnelV6(..), _) => return Err(Drop::InnerNotIpv4),
            (TunnResult::Done, Message::Data(_)) => Opened::Keepalive,
            (TunnResult::Done, Message::Cookie(_)) => Opened::Cookie,
            (TunnResult::WriteToNetwork(reply), Message::Initiation) => {
                Opened::Response(reply.len())
            }
            (TunnResult::WriteToNetwork(reply), Message::Response(_)) => {
                Opened::Established(reply.len())
            }
            (TunnResult::Err(error), _) => {
                let reason = reason(&error, message);
                #[cfg(feature = "mutants")]
                if reason == Drop::Replayed
                    && let Some(len) = self.recall(datagram, out)
                {
                    return Ok(Opened::Packet(len));
                }
                return Err(reason);
            }
            (
                TunnResult::Done | TunnResult::WriteToTunnelV4(..) | TunnResult::WriteToNetwork(_),
                _,
            ) => return Err(Drop::Unexpected),
        };
        self.keyed |= matches!(
            opened,
            Opened::Packet(_) | Opened::Keepalive | Opened::Established(_)
        );
        #[cfg(feature = "mutants")]
        if let Opened::Packet(len) = opened {
            self.remember(datagram, &out[..len]);
        }

        Ok(opened)
    }

    /// Advances boringtun's timers. The engine calls this several times per second.
    pub(super) fn tick(&mut self, out: &mut [u8; HANDSHAKE_BUFFER]) -> Tick {
        let tick = match self.tunn.update_timers(out) {
            TunnResult::WriteToNetwork(datagram) => match classify(datagram) {
                Some(Message::Initiation) => Tick::Initiation(datagram.len()),
                Some(Message::Response(_) | Message::Cookie(_) | Message::Data(_)) | None => {
                    Tick::Keepalive(datagram.len())
                }
            },
            TunnResult::Err(_) => Tick::Expired,
            TunnResult::Done
            | TunnResult::WriteToTunnelV4(..)
            | TunnResult::WriteToTunnelV6(..) => Tick::Nothing,
        };
        self.keyed = self.tunn.time_since_last_handshake().is_some();

        tick
    }

    /// Remembers the decrypted packet of a message. While a mutation test disables the replay
    /// window, a replayed message delivers this packet again.
    #[cfg(feature = "mutants")]
    fn remember(&mut self, datagram: &[u8], packet: &[u8]) {
        const REMEMBERED_MAX: usize = 64;

        if mutant::disables("replay-window") {
            self.remembered.truncate(REMEMBERED_MAX - 1);
            self.remembered
                .push_front((name(datagram), packet.to_vec()));
        }
    }

    /// Returns the remembered packet of a replayed message.
    #[cfg(feature = "mutants")]
    fn recall(&self, datagram: &[u8], out: &mut [u8]) -> Option<usize> {
        let name = name(datagram);
        let (_, packet) = self.remembered.iter().find(|(n, _)| *n == name)?;
        out[..packet.len()].copy_from_slice(packet);

        Some(packet.len())
    }
}

/// Returns the receiver index and the counter of a data message, which together identify it.
#[cfg(feature = "mutants")]
fn name(datagram: &[u8]) -> [u8; 12] {
    datagram[4..16].try_into().expect("twelve bytes")
}

/// Reads the counter of a data message, which is at least 32 bytes long.
#[inline]
fn counter(datagram: &[u8]) -> u64 {
    u64::from_le_bytes(datagram[8..16].try_into().expect("eight bytes"))
}

/// Translates boringtun's error into a drop reason.
fn reason(error: &WireGuardError, message: Message) -> Drop {
    match (error, message) {
        (WireGuardError::DuplicateCounter | WireGuardError::InvalidCounter, _) => Drop::Replayed,
        (WireGuardError::NoCurrentSession | WireGuardError::WrongIndex, Message::Data(_)) => {
            Drop::NoKeys
        }
        (WireGuardError::InvalidPacket, Message::Data(_)) => Drop::InnerMalformed,
        (_, Message::Data(_)) => Drop::InvalidTag,
        (WireGuardError::InvalidMac, _) => Drop::InvalidMac,
        (WireGuardError::UnexpectedPacket, Message::Response(_)) => Drop::Unexpected,
        (_, Message::Initiation | Message::Response(_)) => Drop::InvalidHandshake,
        (_, Message::Cookie(_)) => Drop::Unexpected,
    }
}

#[cfg(test)]
mod tests;
