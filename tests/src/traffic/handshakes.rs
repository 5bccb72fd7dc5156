//! Initiates WireGuard handshakes from many peers, and counts the completed handshakes.

use crate::lab::netns::Netns;
use anyhow::{Context as _, Result, bail};
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg, setsockopt, sockopt};
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A peer that initiates handshakes.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Static private key of the peer.
    pub private: [u8; 32],
    /// Static public key of the responder.
    pub responder: [u8; 32],
    /// Source address of the peer's messages.
    pub address: Ipv4Addr,
}

/// Counters of one call of [`Initiators::run`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counts {
    /// Number of completed handshakes: the initiator has received and confirmed a response.
    pub answered: u64,
    /// Number of handshakes without a response within 500 ms.
    pub unanswered: u64,
    /// Number of cookie replies, which a responder under load sends.
    pub cookies: u64,
    /// Time during which handshakes were initiated.
    pub duration: Duration,
}

impl Counts {
    /// Returns the number of completed handshakes per second.
    pub fn per_second(&self) -> f64 {
        self.answered as f64 / self.duration.as_secs_f64()
    }

    /// Returns the percentage of handshakes without a response, from 0 to 100.
    pub fn unanswered_percent(&self) -> f64 {
        let all = self.answered + self.unanswered;

        100.0 * self.unanswered as f64 / all.max(1) as f64
    }
}

/// Many peers, which take turns to initiate handshakes with one responder.
pub struct Initiators {
    socket: UdpSocket,
    target: SocketAddrV4,
    tunnels: Vec<Tunnel>,
    /// Indices in `tunnels` of the peers without a handshake in flight. The first peer in the queue
    /// initiates the next handshake.
    idle: VecDeque<usize>,
    /// Indices in `tunnels` of peers that wait for a response, and the times of their initiations.
    waiting: VecDeque<(usize, Instant)>,
    in_flight: usize,
    counts: Counts,
}

/// The WireGuard state and the last handshake of one peer.
struct Tunnel {
    tunn: Tunn,
    address: Ipv4Addr,
    initiated_at: Option<Instant>,
    is_waiting: bool,
    is_complete: bool,
}

/// Number of handshakes in flight. The number suffices to keep initiators and responder busy. It is
/// below the limit at which a responder sends cookies (128 in wireguard-go).
const IN_FLIGHT: usize = 8;

/// Minimum interval between two handshakes of one peer. wireguard-go accepts one handshake per 20
/// ms.
const INITIATION_INTERVAL: Duration = Duration::from_millis(30);

/// Time after which a handshake counts as unanswered.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Time-out of a single receive call.
const TICK: Duration = Duration::from_millis(1);

/// Size of message buffers in bytes, which exceeds the length of every handshake message.
const MESSAGE_MAX: usize = 2048;

impl Initiators {
    /// Creates peers in the namespace `near`. The peers' addresses must be assigned to devices of
    /// this namespace. `target` is the endpoint of the responder.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket cannot be opened.
    pub fn new(near: &Netns, target: SocketAddrV4, peers: &[Peer]) -> Result<Self> {
        let socket = near
            .run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))
            .context("failed to open a UDP socket")?;
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)
            .context("failed to enlarge a receive buffer")?;
        socket.set_read_timeout(Some(TICK))?;
        let tunnels: Vec<_> = (0..)
            .zip(peers)
            .map(|(index, peer)| Tunnel::new(index, peer))
            .collect();

        Ok(Self {
            socket,
            target,
            idle: (0..tunnels.len()).collect(),
            tunnels,
            waiting: VecDeque::new(),
            in_flight: 0,
            counts: ZERO,
        })
    }

    /// Initiates handshakes until each peer has completed one.
    ///
    /// # Errors
    ///
    /// Returns an error if a peer has not completed a handshake within `timeout`.
    pub fn complete_all(&mut self, timeout: Duration) -> Result<()> {
        let started = Instant::now();
        loop {
            let missing = self.tunnels.iter().filter(|it| !it.is_complete).count();
            if missing == 0 {
                return Ok(());
            }
            if started.elapsed() >= timeout {
                let all = self.tunnels.len();
                bail!("{missing} of {all} peers got no response within {timeout:?}");
            }
            // Counting the missing peers is expensive, so run one turn per peer between two counts.
            for _ in 0..self.tunnels.len() {
                self.turn()?;
            }
        }
    }

    /// Initiates as many handshakes as possible for `duration`, and counts them.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails.
    pub fn run(&mut self, duration: Duration) -> Result<Counts> {
        self.counts = ZERO;
        let started = Instant::now();
        while started.elapsed() < duration {
            self.turn()?;
        }

        Ok(Counts {
            duration: started.elapsed(),
            ..self.counts
        })
    }

    fn turn(&mut self) -> Result<()> {
        let now = Instant::now();
        while let Some((place, since)) = self.waiting.front().copied() {
            let tunnel = &mut self.tunnels[place];
            let is_waiting = tunnel.is_waiting && tunnel.initiated_at == Some(since);
            if is_waiting && now.duration_since(since) < RESPONSE_TIMEOUT {
                break;
            }
            self.waiting.pop_front();
            if is_waiting {
                tunnel.is_waiting = false;
                self.counts.unanswered += 1;
                self.in_flight -= 1;
                self.idle.push_back(place);
            }
        }
        while self.in_flight < IN_FLIGHT
            && let Some(place) = self.idle.front().copied()
            && self.tunnels[place].may_initiate(now)
        {
            self.idle.pop_front();
            self.initiate(place, now)?;
        }

        let mut message = [0; MESSAGE_MAX];
        match self.socket.recv(&mut message) {
            Ok(len) => self.handle_message(&message[..len]),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error).context("failed to receive a response"),
        }
    }

    fn initiate(&mut self, place: usize, now: Instant) -> Result<()> {
        let tunnel = &mut self.tunnels[place];
        let mut buffer = [0; MESSAGE_MAX];
        let TunnResult::WriteToNetwork(initiation) =
            tunnel.tunn.format_handshake_initiation(&mut buffer, true)
        else {
            bail!("boringtun created no initiation");
        };
        send(&self.socket, tunnel.address, self.target, initiation)?;
        tunnel.initiated_at = Some(now);
        tunnel.is_waiting = true;
        self.waiting.push_back((place, now));
        self.in_flight += 1;

        Ok(())
    }

    /// Handles a handshake response or a cookie reply. Ignores other messages.
    fn handle_message(&mut self, message: &[u8]) -> Result<()> {
        let Some((is_cookie, place)) = receiver(message) else {
            return Ok(());
        };
        let Some(tunnel) = self.tunnels.get_mut(place).filter(|it| it.is_waiting) else {
            return Ok(()); // The handshake has timed out, and counts as unanswered already.
        };
        let mut buffer = [0; MESSAGE_MAX];
        match tunnel.tunn.decapsulate(None, message, &mut buffer) {
            _ if is_cookie => self.counts.cookies += 1, // The next initiation will contain mac2.
            TunnResult::WriteToNetwork(confirmation) => {
                send(&self.socket, tunnel.address, self.target, confirmation)?;
                tunnel.is_waiting = false;
                tunnel.is_complete = true;
                self.counts.answered += 1;
                self.in_flight -= 1;
                self.idle.push_back(place);
            }
            // The message is a late response to an initiation that a newer one has replaced.
            TunnResult::Done
            | TunnResult::Err(_)
            | TunnResult::WriteToTunnelV4(..)
            | TunnResult::WriteToTunnelV6(..) => {}
        }

        Ok(())
    }
}

impl Tunnel {
    fn new(index: u32, peer: &Peer) -> Self {
        let private = StaticSecret::from(peer.private);
        let limiter = RateLimiter::new(&PublicKey::from(&private), u64::MAX);
        let responder = PublicKey::from(peer.responder);

        Self {
            tunn: Tunn::new(
                private,
                responder,
                None,
                None,
                index,
                Some(Arc::new(limiter)),
            ),
            address: peer.address,
            initiated_at: None,
            is_waiting: false,
            is_complete: false,
        }
    }

    fn may_initiate(&self, now: Instant) -> bool {
        self.initiated_at
            .is_none_or(|at| now.duration_since(at) >= INITIATION_INTERVAL)
    }
}

const ZERO: Counts = Counts {
    answered: 0,
    unanswered: 0,
    cookies: 0,
    duration: Duration::ZERO,
};

/// Size of the receive buffer in bytes, so that the socket drops no response while this process is
/// not scheduled.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Parses a handshake response or a cookie reply (WireGuard whitepaper, 5.4.3 and 5.4.7).
///
/// Returns whether the message is a cookie reply, and the index in `tunnels` of the receiver.
fn receiver(message: &[u8]) -> Option<(bool, usize)> {
    const RESPONSE: [u8; 4] = [2, 0, 0, 0];
    const COOKIE: [u8; 4] = [3, 0, 0, 0];

    let kind = message.get(..4)?;
    let index = match message.len() {
        92 if kind == RESPONSE => message.get(8..12)?,
        64 if kind == COOKIE => message.get(4..8)?,
        _ => return None,
    };
    let index = u32::from_le_bytes(index.try_into().ok()?);

    // boringtun uses the lowest byte of a receiver index as a counter of the peer's handshakes.
    Some((kind == COOKIE, usize::try_from(index >> 8).ok()?))
}

fn send(socket: &UdpSocket, from: Ipv4Addr, to: SocketAddrV4, message: &[u8]) -> Result<()> {
    let address = |address: Ipv4Addr| libc::in_addr {
        s_addr: u32::from_ne_bytes(address.octets()),
    };
    let info = libc::in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: address(from),
        ipi_addr: address(Ipv4Addr::UNSPECIFIED),
    };

    sendmsg(
        socket.as_raw_fd(),
        &[IoSlice::new(message)],
        &[ControlMessage::Ipv4PacketInfo(&info)],
        MsgFlags::empty(),
        Some(&SockaddrIn::from(to)),
    )
    .with_context(|| format!("failed to send from {from}"))?;
    Ok(())
}
