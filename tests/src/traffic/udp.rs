//! UDP: an echo server that records its clients, single exchanges, and a steady flow
//! whose losses are counted.

use crate::lab::netns::Netns;
use anyhow::{Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// An echo server that records the source of each datagram.
#[derive(Debug)]
pub struct Echo {
    address: SocketAddrV4,
    clients: Arc<Mutex<Vec<SocketAddr>>>,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl Echo {
    /// Starts to listen at `address`; port 0 selects a free one.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is not local or the port is taken.
    pub fn start(netns: &Netns, address: impl Into<Ipv4Addr>, port: u16) -> Result<Self> {
        let socket = bind(netns, address.into(), port)?;
        let address = local_address(&socket)?;
        let clients = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));

        let worker = {
            let (clients, stop) = (Arc::clone(&clients), Arc::clone(&stop));
            thread::spawn(move || {
                let mut buffer = vec![0; DATAGRAM_MAX];
                while !stop.load(Ordering::Relaxed) {
                    if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                        lock(&clients).push(from);
                        // The client may be gone, which is no fault of the server.
                        let _ = socket.send_to(&buffer[..length], from);
                    }
                }
            })
        };

        Ok(Self {
            address,
            clients,
            stop,
            worker: Some(worker),
        })
    }

    /// Its address in its own namespace.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// The source of each datagram, in order of arrival.
    pub fn clients(&self) -> Vec<SocketAddr> {
        lock(&self.clients).clone()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

/// Sends a datagram to an [`Echo`], and returns the reply.
///
/// # Errors
///
/// Returns the socket's error: [`io::ErrorKind::WouldBlock`] without a reply within
/// `timeout`, [`io::ErrorKind::ConnectionRefused`] without a listener, and every other
/// ICMP error too (`IP_RECVERR`).
pub fn exchange(
    netns: &Netns,
    to: impl Into<SocketAddrV4>,
    payload: &[u8],
    timeout: Duration,
) -> io::Result<Vec<u8>> {
    let to = to.into();
    netns.run(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
        socket.connect(to)?;
        socket.set_read_timeout(Some(timeout))?;
        socket.send(payload)?;
        let mut buffer = vec![0; DATAGRAM_MAX];
        let length = socket.recv(&mut buffer)?;
        buffer.truncate(length);

        Ok(buffer)
    })
}

/// Returns whether an [`Echo`] returns a datagram unchanged within a second.
pub fn is_echoed(netns: &Netns, to: impl Into<SocketAddrV4>, payload: &[u8]) -> bool {
    exchange(netns, to, payload, Duration::from_secs(1)).is_ok_and(|reply| reply == payload)
}

/// A steady flow of numbered datagrams to an [`Echo`].
#[derive(Debug)]
pub struct Flow {
    stop: Arc<AtomicBool>,
    replies: Arc<AtomicU64>,
    workers: Option<(JoinHandle<u64>, JoinHandle<Vec<Reply>>)>,
}

/// The number of a reply, and when it arrived.
type Reply = (u64, Instant);

/// The result of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Datagrams sent.
    pub sent: u64,
    /// Distinct replies received.
    pub received: u64,
    /// Duplicate replies received.
    pub repeated: u64,
    /// The longest time without a reply.
    pub longest_gap: Duration,
    /// The numbers of datagrams without a reply.
    pub missing: Vec<Range<u64>>,
}

impl Outcome {
    /// Number of datagrams without a reply.
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }
}

impl Flow {
    /// Starts to send a datagram every `interval`.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket cannot be opened.
    pub fn start(netns: &Netns, to: impl Into<SocketAddrV4>, interval: Duration) -> Result<Self> {
        let to = to.into();
        let socket = netns
            .run(|| {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
                setsockopt(&socket, sockopt::RcvBufForce, &QUEUE_BYTES)?;
                socket.connect(to)?;
                socket.set_read_timeout(Some(TICK))?;
                Ok::<_, io::Error>(socket)
            })
            .with_context(|| format!("failed to reach {to}"))?;
        let socket = Arc::new(socket);
        let stop = Arc::new(AtomicBool::new(false));
        let replies = Arc::new(AtomicU64::new(0));

        let sender = {
            let (socket, stop) = (Arc::clone(&socket), Arc::clone(&stop));
            thread::spawn(move || send(&socket, &stop, interval))
        };
        let receiver = {
            let (stop, replies) = (Arc::clone(&stop), Arc::clone(&replies));
            thread::spawn(move || receive(&socket, &stop, &replies))
        };

        Ok(Self {
            stop,
            replies,
            workers: Some((sender, receiver)),
        })
    }

    /// Number of replies so far.
    pub fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    /// Ends the flow, and waits `LAST_REPLIES` for late replies.
    ///
    /// # Panics
    ///
    /// Panics if a worker panicked.
    pub fn finish(mut self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        let (sender, receiver) = self.workers.take().expect("only this takes them");
        let sent = sender.join().expect("the sender does not panic");
        let mut replies = receiver.join().expect("the receiver does not panic");

        let longest_gap = replies
            .windows(2)
            .map(|pair| pair[1].1 - pair[0].1)
            .max()
            .unwrap_or_default();
        let total = replies.len();
        replies.sort_unstable();
        replies.dedup_by_key(|(number, _)| *number);

        Outcome {
            sent,
            received: replies.len() as u64,
            repeated: (total - replies.len()) as u64,
            longest_gap,
            missing: missing(&replies, sent),
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The numbers below `sent` without a reply; `replies` are in order.
fn missing(replies: &[Reply], sent: u64) -> Vec<Range<u64>> {
    let mut missing = Vec::new();
    let mut expected = 0;
    for number in replies.iter().map(|(number, _)| *number).chain([sent]) {
        if number > expected {
            missing.push(expected..number);
        }
        expected = number + 1;
    }

    missing
}

fn send(socket: &UdpSocket, stop: &AtomicBool, interval: Duration) -> u64 {
    let mut next = Instant::now();
    let mut sent = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        // The kernel reports the ICMP error of an earlier datagram here; that one counts as lost.
        let _ = socket.send(&sent.to_be_bytes());
        sent += 1;
        // No burst after the machine was suspended: it would overflow the sockets.
        next = (next + interval).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }

    sent
}

fn receive(socket: &UdpSocket, stop: &AtomicBool, replies: &AtomicU64) -> Vec<Reply> {
    let mut received = Vec::new();
    let mut buffer = [0; 64];
    let mut ends_at = None;
    while ends_at.is_none_or(|end| Instant::now() < end) {
        if let Ok(length) = socket.recv(&mut buffer)
            && let Ok(number) = buffer[..length].try_into()
        {
            received.push((u64::from_be_bytes(number), Instant::now()));
            replies.fetch_add(1, Ordering::Relaxed);
        }
        if ends_at.is_none() && stop.load(Ordering::Relaxed) {
            ends_at = Some(Instant::now() + LAST_REPLIES);
        }
    }

    received
}

fn bind(netns: &Netns, address: Ipv4Addr, port: u16) -> Result<UdpSocket> {
    netns
        .run(|| {
            let socket = UdpSocket::bind((address, port))?;
            setsockopt(&socket, sockopt::RcvBufForce, &QUEUE_BYTES)?;
            socket.set_read_timeout(Some(TICK))?;
            Ok::<_, io::Error>(socket)
        })
        .with_context(|| format!("failed to bind {address}:{port} in {}", netns.name()))
}

fn local_address(socket: &UdpSocket) -> Result<SocketAddrV4> {
    match socket
        .local_addr()
        .context("a bound socket has an address")?
    {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(address) => anyhow::bail!("{address} is not an IPv4 address"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Buffers seconds of small datagrams while the reader is not scheduled.
const QUEUE_BYTES: usize = 4 << 20;

/// Interval at which a blocked worker checks whether it should stop.
const TICK: Duration = Duration::from_millis(20);

/// Time after the end of a flow in which replies still count.
const LAST_REPLIES: Duration = Duration::from_millis(500);

/// The largest UDP payload over IPv4.
pub const DATAGRAM_MAX: usize = 65_507;
