//! The echo socket: replies to the requests of remote nodes, and sends this node's own.

use crate::path::Paths;
use crate::path::message::{self, Message};
use ebpf_common::settings::ECHO_RESPONDER_PORT;
use ipnet::Ipv4Net;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;

/// Messages read at once, so that a flood does not delay the rest of the agent.
const BATCH_MAX: usize = 256;

/// Replies per second: 1,000 clusters of ten nodes each send one request per node and second,
/// and this may be the only node that replies. 2 % of a core.
const REPLIES_PER_SECOND: u32 = 10_000;

/// Bound to the node's external address.
pub(crate) struct Socket {
    socket: UdpSocket,
    address: Ipv4Addr,
    replies_left: u32,
    second: Instant,
}

impl Socket {
    /// Binds the node's external address, which must exist.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error, such as a port in use.
    pub(crate) async fn bind(address: Ipv4Addr) -> io::Result<Self> {
        Ok(Self {
            socket: UdpSocket::bind(SocketAddrV4::new(address, ECHO_RESPONDER_PORT)).await?,
            address,
            replies_left: REPLIES_PER_SECOND,
            second: Instant::now(),
        })
    }

    /// The local address.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Completes when a message may be readable.
    pub(crate) async fn readable(&self) {
        if let Err(error) = self.socket.readable().await {
            // Only without a runtime; wait for the next timeout instead of spinning.
            tracing::debug!(%error, "failed to wait for the echo socket");
            std::future::pending::<()>().await;
        }
    }

    /// Reads all queued messages: replies go to `paths`, requests from `remote` get a reply.
    pub(crate) fn receive(&mut self, paths: &mut Paths, remote: &[Ipv4Net], now: Instant) {
        let mut datagram = [0; message::LEN + 1]; // One more, so that longer ones are rejected.
        for _ in 0..BATCH_MAX {
            match self.socket.try_recv_from(&mut datagram) {
                Ok((len, SocketAddr::V4(from))) => match message::parse(&datagram[..len]) {
                    Some(Message::Reply(token)) if from.port() == ECHO_RESPONDER_PORT => {
                        paths.handle_reply(*from.ip(), token, now);
                    }
                    Some(Message::Request(token)) if is_remote(remote, *from.ip()) => {
                        self.reply(&message::reply(token), from, now);
                    }
                    _ => tracing::trace!("dropped a datagram that is no echo message"),
                },
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Such as an ICMP error to an earlier request, which becomes a miss.
                Err(error) => tracing::debug!(%error, "the echo socket reported an error"),
            }
        }
    }

    /// Sends all requests of `paths`; one that cannot be sent becomes a miss.
    pub(crate) fn send_requests(&self, paths: &mut Paths) {
        while let Some(transmit) = paths.poll_transmit() {
            let to = SocketAddr::from((transmit.to, ECHO_RESPONDER_PORT));
            if let Err(error) = self.socket.try_send_to(&transmit.payload, to) {
                tracing::debug!(%error, "failed to send an echo request");
            }
        }
    }

    fn reply(&mut self, payload: &[u8], to: SocketAddrV4, now: Instant) {
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            self.second = now;
            self.replies_left = REPLIES_PER_SECOND;
        }
        let Some(left) = self.replies_left.checked_sub(1) else {
            tracing::trace!("dropped an echo request beyond the limit");
            return;
        };
        self.replies_left = left;
        if let Err(error) = self.socket.try_send_to(payload, to.into()) {
            tracing::debug!(%error, "failed to send an echo reply");
        }
    }
}

fn is_remote(remote: &[Ipv4Net], address: Ipv4Addr) -> bool {
    remote.iter().any(|cidr| cidr.contains(&address))
}
