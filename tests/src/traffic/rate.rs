//! Sends UDP datagrams at a given rate, and counts the datagrams that arrive.

use crate::lab::netns::Netns;
use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg, setsockopt, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The load to send.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Number of datagrams to send per second.
    pub per_second: f64,
    /// Size of the UDP payload in bytes.
    pub payload_bytes: usize,
    /// Time during which to send.
    pub duration: Duration,
}

/// The result of sending an [`Offer`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Carried {
    /// Number of datagrams sent.
    pub sent: u64,
    /// Number of datagrams that arrived.
    pub received: u64,
    /// Time that the sender needed. It exceeds [`Offer::duration`] if the sender was too slow.
    pub duration: Duration,
}

impl Carried {
    /// Returns the number of datagrams that arrived per second of sending.
    pub fn per_second(&self) -> f64 {
        self.received as f64 / self.duration.as_secs_f64()
    }

    /// Returns the percentage of sent datagrams that did not arrive, from 0 to 100.
    pub fn loss_percent(&self) -> f64 {
        if self.sent == 0 {
            return 0.0;
        }
        100.0 * (1.0 - self.received as f64 / self.sent as f64).max(0.0)
    }
}

/// Sends datagrams from the namespace `near` to `address`, and counts the datagrams that the
/// namespace `far` receives.
///
/// # Errors
///
/// Returns an error if a socket cannot be opened.
pub fn offer(near: &Netns, far: &Netns, address: Ipv4Addr, offer: Offer) -> Result<Carried> {
    let receiver = far.run(|| socket(Ipv4Addr::UNSPECIFIED))?;
    setsockopt(&receiver, sockopt::RcvBufForce, &RECEIVE_BUFFER)
        .context("failed to enlarge a receive buffer")?;
    receiver.set_read_timeout(Some(SILENCE))?;
    let port = receiver.local_addr()?.port();
    let sender = near.run(|| socket(Ipv4Addr::UNSPECIFIED))?;
    sender
        .connect((address, port))
        .context("failed to connect a socket")?;

    let is_sending = AtomicBool::new(true);
    thread::scope(|scope| {
        let count = scope.spawn(|| count(&receiver, offer.payload_bytes, &is_sending));
        let sent = send(&sender, offer);
        is_sending.store(false, Ordering::Release);
        let received = count
            .join()
            .unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
        let (sent, duration) = sent?;

        Ok(Carried {
            sent,
            received,
            duration,
        })
    })
}

/// Maximum number of datagrams per system call.
const BATCH: usize = 64;

/// Time without datagrams after which the receiver stops, if the sender has ended.
const SILENCE: Duration = Duration::from_millis(200);

/// Time after the end of the sender at which the receiver stops, even if datagrams still arrive.
const ARRIVAL_MAX: Duration = Duration::from_secs(2);

/// Size of the receive buffer in bytes, so that the socket itself drops no datagram.
const RECEIVE_BUFFER: usize = 16 << 20;

/// Time for which the sender sleeps if no datagram is due. A busy loop would take CPU time from the
/// processes that the test measures.
const PAUSE: Duration = Duration::from_micros(100);

fn socket(address: Ipv4Addr) -> Result<UdpSocket> {
    UdpSocket::bind(SocketAddr::from((address, 0))).context("failed to open a UDP socket")
}

/// Sends datagrams when they are due. Returns their number, and the time that the sender needed.
fn send(socket: &UdpSocket, offer: Offer) -> Result<(u64, Duration)> {
    let payload = vec![0_u8; offer.payload_bytes];
    let slices = [[IoSlice::new(&payload)]; BATCH];
    let addresses: [Option<SockaddrIn>; BATCH] = [None; BATCH];
    let none: [ControlMessage<'_>; 0] = [];
    let mut headers = MultiHeaders::preallocate(BATCH, None);
    let total = (offer.per_second * offer.duration.as_secs_f64()) as u64;

    let start = Instant::now();
    let mut sent = 0;
    while sent < total && start.elapsed() < offer.duration * 2 {
        let due = (start.elapsed().as_secs_f64() * offer.per_second) as u64;
        let batch = due.min(total).saturating_sub(sent).min(BATCH as u64) as usize;
        if batch == 0 {
            thread::sleep(PAUSE);
            continue;
        }
        let done = sendmmsg(
            socket.as_raw_fd(),
            &mut headers,
            &slices[..batch],
            addresses,
            none,
            MsgFlags::empty(),
        );
        match done {
            Ok(done) => sent += done.count() as u64,
            // With a full queue the kernel drops the datagrams, which count as sent and lost.
            Err(Errno::ENOBUFS | Errno::ECONNREFUSED) => sent += batch as u64,
            Err(error) => return Err(error).context("failed to send datagrams"),
        }
    }

    Ok((sent, start.elapsed().max(offer.duration)))
}

/// Counts received datagrams until the sender has ended and no more datagrams arrive.
fn count(socket: &UdpSocket, payload_bytes: usize, is_sending: &AtomicBool) -> Result<u64> {
    let mut buffers = vec![0_u8; BATCH * payload_bytes.max(1)];
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let mut received = 0;
    let mut sent_at: Option<Instant> = None;
    loop {
        let mut slices: Vec<[IoSliceMut<'_>; 1]> = buffers
            .chunks_mut(payload_bytes.max(1))
            .map(|buffer| [IoSliceMut::new(buffer)])
            .collect();
        let flags = MsgFlags::MSG_WAITFORONE;
        match recvmmsg(
            socket.as_raw_fd(),
            &mut headers,
            slices.iter_mut(),
            flags,
            None,
        ) {
            Ok(done) => received += done.count() as u64,
            Err(Errno::EAGAIN) if !is_sending.load(Ordering::Acquire) => return Ok(received),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(error).context("failed to receive datagrams"),
        }
        if !is_sending.load(Ordering::Acquire)
            && sent_at.get_or_insert_with(Instant::now).elapsed() > ARRIVAL_MAX
        {
            return Ok(received);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn the_loopback_carries_the_offered_rate() {
        let here = Netns::adopt("here", File::open("/proc/thread-self/ns/net").unwrap());
        let wanted = Offer {
            per_second: 2000.0,
            payload_bytes: 64,
            duration: Duration::from_millis(300),
        };

        let carried = offer(&here, &here, Ipv4Addr::LOCALHOST, wanted).unwrap();

        assert_eq!((carried.sent, carried.received), (600, 600));
        assert!(carried.duration >= wanted.duration);
    }

    #[test]
    fn loss_is_the_share_that_did_not_arrive() {
        let carried = Carried {
            sent: 1000,
            received: 990,
            duration: Duration::from_secs(2),
        };

        assert_eq!(carried.per_second(), 495.0);
        assert!((carried.loss_percent() - 1.0).abs() < 1e-9);
    }
}
