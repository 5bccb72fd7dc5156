//! WireGuard handshakes, one after the other from many peers, and how many are answered.

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

/// One that asks.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its private key.
    pub private: [u8; 32],
    /// The public key of the one that answers, as this peer knows it.
    pub responder: [u8; 32],
    /// Its own address.
    pub address: Ipv4Addr,
}

/// What became of the handshakes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// How many were answered, and confirmed.
    pub answered: u64,
    /// How many were not, within half a second.
    pub unanswered: u64,
    /// How many were answered by a demand for a proof of address.
    pub cookies: u64,
    /// How long that took.
    pub duration: Duration,
}

impl Asked {
    /// Handshakes completed per second.
    pub fn per_second(&self) -> f64 {
        self.answered as f64 / self.duration.as_secs_f64()
    }

    /// Share of the handshakes that was not answered, 0 to 100.
    pub fn unanswered_percent(&self) -> f64 {
        let all = self.answered + self.unanswered;

        100.0 * self.unanswered as f64 / all.max(1) as f64
    }
}

/// Peers that ask in turns.
pub struct Askers {
    socket: UdpSocket,
    target: SocketAddrV4,
    tunnels: Vec<Tunnel>,
    /// Those whose turn comes, by their place.
    idle: VecDeque<usize>,
    /// Those that wait for an answer, and since when.
    waiting: VecDeque<(usize, Instant)>,
    in_flight: usize,
    asked: Asked,
}

/// One peer's side.
struct Tunnel {
    tunn: Tunn,
    address: Ipv4Addr,
    asked: Option<Instant>,
    is_waiting: bool,
    is_met: bool,
}

/// How many handshakes are under way at a time: enough that neither side waits for the other, too few
/// to be taken for an attack (wireguard-go: 128).
const IN_FLIGHT: usize = 8;

/// How long one peer waits before its next handshake: wireguard-go answers one in 20 ms.
const PAUSE: Duration = Duration::from_millis(30);

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long to listen at a time.
const TICK: Duration = Duration::from_millis(1);

/// The longest message that is looked at.
const MESSAGE_MAX: usize = 2048;

impl Askers {
    /// Creates peers in `near`, whose addresses must be local there; `target` answers.
    ///
    /// # Errors
    ///
    /// Returns an error if a socket cannot be had, or there are too many peers.
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
            asked: NOTHING,
        })
    }

    /// Completes a handshake of each peer.
    ///
    /// # Errors
    ///
    /// Returns an error if one is not answered within `patience`.
    pub fn meet(&mut self, patience: Duration) -> Result<()> {
        let started = Instant::now();
        loop {
            let missing = self.tunnels.iter().filter(|it| !it.is_met).count();
            if missing == 0 {
                return Ok(());
            }
            if started.elapsed() >= patience {
                let all = self.tunnels.len();
                bail!("{missing} of {all} peers were not answered within {patience:?}");
            }
            // As many turns as there are peers: to count them costs, too.
            for _ in 0..self.tunnels.len() {
                self.turn()?;
            }
        }
    }

    /// Asks for so long.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails.
    pub fn ask(&mut self, duration: Duration) -> Result<Asked> {
        self.asked = NOTHING;
        let started = Instant::now();
        while started.elapsed() < duration {
            self.turn()?;
        }

        Ok(Asked {
            duration: started.elapsed(),
            ..self.asked
        })
    }

    fn turn(&mut self) -> Result<()> {
        let now = Instant::now();
        while let Some((place, since)) = self.waiting.front().copied() {
            let tunnel = &mut self.tunnels[place];
            let is_waiting = tunnel.is_waiting && tunnel.asked == Some(since);
            if is_waiting && now.duration_since(since) < PATIENCE {
                break;
            }
            self.waiting.pop_front();
            if is_waiting {
                tunnel.is_waiting = false;
                self.asked.unanswered += 1;
                self.in_flight -= 1;
                self.idle.push_back(place);
            }
        }
        while self.in_flight < IN_FLIGHT
            && let Some(place) = self.idle.front().copied()
            && self.tunnels[place].may_ask(now)
        {
            self.idle.pop_front();
            self.initiate(place, now)?;
        }

        let mut message = [0; MESSAGE_MAX];
        match self.socket.recv(&mut message) {
            Ok(len) => self.hear(&message[..len]),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error).context("failed to receive an answer"),
        }
    }

    fn initiate(&mut self, place: usize, now: Instant) -> Result<()> {
        let tunnel = &mut self.tunnels[place];
        let mut buffer = [0; MESSAGE_MAX];
        let TunnResult::WriteToNetwork(initiation) =
            tunnel.tunn.format_handshake_initiation(&mut buffer, true)
        else {
            bail!("boringtun makes no initiation");
        };
        send(&self.socket, tunnel.address, self.target, initiation)?;
        tunnel.asked = Some(now);
        tunnel.is_waiting = true;
        self.waiting.push_back((place, now));
        self.in_flight += 1;

        Ok(())
    }

    /// Takes what arrives; all but answers is not for us.
    fn hear(&mut self, message: &[u8]) -> Result<()> {
        let Some((is_cookie, place)) = addressee(message) else {
            return Ok(());
        };
        let Some(tunnel) = self.tunnels.get_mut(place).filter(|it| it.is_waiting) else {
            return Ok(()); // Too late.
        };
        let mut buffer = [0; MESSAGE_MAX];
        match tunnel.tunn.decapsulate(None, message, &mut buffer) {
            _ if is_cookie => self.asked.cookies += 1, // The next attempt will have the proof.
            TunnResult::WriteToNetwork(confirmation) => {
                send(&self.socket, tunnel.address, self.target, confirmation)?;
                tunnel.is_waiting = false;
                tunnel.is_met = true;
                self.asked.answered += 1;
                self.in_flight -= 1;
                self.idle.push_back(place);
            }
            // An answer to an earlier attempt.
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
            asked: None,
            is_waiting: false,
            is_met: false,
        }
    }

    fn may_ask(&self, now: Instant) -> bool {
        self.asked
            .is_none_or(|asked| now.duration_since(asked) >= PAUSE)
    }
}

const NOTHING: Asked = Asked {
    answered: 0,
    unanswered: 0,
    cookies: 0,
    duration: Duration::ZERO,
};

/// What is behind must be looked at, not lost.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Whether a message is a cookie, not a response, and the place of the peer whose index it names
/// (WireGuard paper, 5.4.3 and 5.4.7).
fn addressee(message: &[u8]) -> Option<(bool, usize)> {
    const RESPONSE: [u8; 4] = [2, 0, 0, 0];
    const COOKIE: [u8; 4] = [3, 0, 0, 0];

    let kind = message.get(..4)?;
    let index = match message.len() {
        92 if kind == RESPONSE => message.get(8..12)?,
        64 if kind == COOKIE => message.get(4..8)?,
        _ => return None,
    };
    let index = u32::from_le_bytes(index.try_into().ok()?);

    // The lowest byte counts a peer's handshakes.
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
