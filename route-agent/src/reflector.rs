//! The socket of the checks, of ours and of those that other clusters' nodes make.

use crate::path::Paths;
use crate::path::message::{self, Message};
use ebpf_common::settings::REFLECTOR_PORT;
use ipnet::Ipv4Net;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;

/// Messages read in one go, so that a flood cannot keep the rest of the agent waiting.
const BATCH_MAX: usize = 256;

/// Questions answered a second: each of 1,000 clusters of ten nodes asks some node of this one once a
/// second, and this may be the only node. 2 % of a core.
const ANSWERS_PER_SECOND: u32 = 10_000;

/// The socket on the node's external address.
pub(crate) struct Socket {
    socket: UdpSocket,
    address: Ipv4Addr,
    answers_left: u32,
    second: Instant,
}

impl Socket {
    /// Binds the node's external address, which must exist.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error, if another process has the port for one.
    pub(crate) async fn bind(address: Ipv4Addr) -> io::Result<Self> {
        Ok(Self {
            socket: UdpSocket::bind(SocketAddrV4::new(address, REFLECTOR_PORT)).await?,
            address,
            answers_left: ANSWERS_PER_SECOND,
            second: Instant::now(),
        })
    }

    /// Returns the address that it is bound to.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Completes when there may be a message.
    pub(crate) async fn readable(&self) {
        if let Err(error) = self.socket.readable().await {
            // Only without a runtime; wait for the next timeout instead of spinning.
            tracing::debug!(%error, "the checks' socket cannot be waited for");
            std::future::pending::<()>().await;
        }
    }

    /// Gives all answers that wait to `paths`, and answers the questions that come from `remote`.
    pub(crate) fn receive(&mut self, paths: &mut Paths, remote: &[Ipv4Net], now: Instant) {
        let mut datagram = [0; message::LEN + 1]; // One more, so that longer ones are rejected.
        for _ in 0..BATCH_MAX {
            match self.socket.try_recv_from(&mut datagram) {
                Ok((len, SocketAddr::V4(from))) => match message::parse(&datagram[..len]) {
                    Some(Message::Answer(token)) if from.port() == REFLECTOR_PORT => {
                        paths.handle_answer(*from.ip(), token, now);
                    }
                    Some(Message::Question(token)) if is_remote(remote, *from.ip()) => {
                        self.send(&message::answer(token), from, now);
                    }
                    _ => tracing::trace!("dropped a datagram that is no check"),
                },
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An ICMP error to an earlier question, for one; that counts as unanswered.
                Err(error) => tracing::debug!(%error, "the checks' socket reported an error"),
            }
        }
    }

    /// Sends all questions that `paths` has ready; one that cannot be sent counts as unanswered.
    pub(crate) fn ask(&self, paths: &mut Paths) {
        while let Some(transmit) = paths.poll_transmit() {
            let to = SocketAddr::from((transmit.to, REFLECTOR_PORT));
            if let Err(error) = self.socket.try_send_to(&transmit.payload, to) {
                tracing::debug!(%error, "failed to send a check");
            }
        }
    }

    fn send(&mut self, answer: &[u8], to: SocketAddrV4, now: Instant) {
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            self.second = now;
            self.answers_left = ANSWERS_PER_SECOND;
        }
        let Some(left) = self.answers_left.checked_sub(1) else {
            tracing::trace!("dropped a check beyond the limit");
            return;
        };
        self.answers_left = left;
        if let Err(error) = self.socket.try_send_to(answer, to.into()) {
            tracing::debug!(%error, "failed to answer a check");
        }
    }
}

fn is_remote(remote: &[Ipv4Net], address: Ipv4Addr) -> bool {
    remote.iter().any(|cidr| cidr.contains(&address))
}
