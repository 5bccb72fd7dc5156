//! Generates and measures UDP traffic. An echo server records its clients. Clients send single
//! datagrams, or a flow of datagrams that counts losses.

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

/// A UDP echo server that records the source of each datagram.
#[derive(Debug)]
pub struct Echo {
    address: SocketAddrV4,
    clients: Arc<Mutex<Vec<SocketAddr>>>,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl Echo {
    /// Starts to listen at `address`. Port 0 selects a free port.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is not local, or if the port is in use.
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
                        // Sending fails if the client has closed its socket. Ignore the error.
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

    /// Returns the address and port at which the server listens in its own namespace.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Returns the source of each received datagram, in the order of arrival.
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
/// Returns [`io::ErrorKind::WouldBlock`] if no reply arrives within `timeout`, and
/// [`io::ErrorKind::ConnectionRefused`] if the port is not open. Other ICMP errors are also
/// returned, because the socket option `IP_RECVERR` is set.
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

/// Sends a datagram to an [`Echo`], and returns whether an equal reply arrives within a second.
pub fn is_echoed(netns: &Netns, to: impl Into<SocketAddrV4>, payload: &[u8]) -> bool {
    exchange(netns, to, payload, Duration::from_secs(1)).is_ok_and(|reply| reply == payload)
}

/// A flow of numbered datagrams to an [`Echo`] with a fixed interval.
#[derive(Debug)]
pub struct Flow {
    stop: Arc<AtomicBool>,
    replies: Arc<AtomicU64>,
    workers: Option<(JoinHandle<u64>, JoinHandle<Vec<Reply>>)>,
}

/// The number in a reply, and the time of its arrival.
type Reply = (u64, Instant);

/// The result of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Number of datagrams sent.
    pub sent: u64,
    /// Number of datagrams that got a reply.
    pub received: u64,
    /// Number of duplicate replies, which `received` does not include.
    pub repeated: u64,
    /// Longest time between two replies.
    pub longest_gap: Duration,
    /// Numbers of the datagrams without a reply, in ascending order.
    pub missing: Vec<Range<u64>>,
}

impl Outcome {
    /// Returns the number of datagrams without a reply.
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }
}

impl Flow {
    /// Starts to send a datagram to `to` every `interval`.
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

    /// Returns the number of replies so far, including duplicates.
    pub fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    /// Ends the flow, and waits 500 ms for late replies.
    ///
    /// # Panics
    ///
    /// Panics if the sending or the receiving thread has panicked.
    pub fn finish(mut self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        let (sender, receiver) = self.workers.take().expect("only `finish` takes them");
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

/// Returns the numbers below `sent` that are not in `replies`, which must be sorted.
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
        // `send` may return an ICMP error for an earlier datagram, which counts as lost. Ignore it.
        let _ = socket.send(&sent.to_be_bytes());
        sent += 1;
        // Skips the datagrams that were due while the machine was suspended. A burst of them would
        // overflow the sockets' buffers.
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

/// Size of receive buffers in bytes. They hold the small datagrams of some seconds while the
/// reading thread is not scheduled.
const QUEUE_BYTES: usize = 4 << 20;

/// Interval at which a blocked thread checks whether it must stop.
const TICK: Duration = Duration::from_millis(20);

/// Time after the end of a flow during which replies still count.
const LAST_REPLIES: Duration = Duration::from_millis(500);

/// Maximum size of a UDP payload over IPv4 in bytes.
pub const DATAGRAM_MAX: usize = 65_507;
