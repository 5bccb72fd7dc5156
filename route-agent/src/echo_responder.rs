//! The UDP socket for echo messages between the nodes of two clusters.
//!
//! The socket receives echo requests and sends the replies. It also sends this node's own requests,
//! and passes the replies to [`Paths`].

use crate::path::Paths;
use crate::path::message::{self, Message};
use ebpf_common::settings::ECHO_RESPONDER_PORT;
use ipnet::Ipv4Net;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;

/// Maximum number of messages read at a time, so that a flood does not block the event loop.
const BATCH_MAX: usize = 256;

/// Maximum number of replies per second, which take about 2 % of a core. Each remote node sends
/// about one request per second to this cluster. Even if all requests arrive at this node, it can
/// reply to the nodes of 1,000 remote clusters with ten nodes each.
const REPLIES_PER_SECOND: u32 = 10_000;

/// An echo socket, bound to the node's address in the external CIDR.
pub(crate) struct Socket {
    socket: UdpSocket,
    address: Ipv4Addr,
    replies_left: u32,
    second: Instant,
}

impl Socket {
    /// Binds a socket to `address`, which must be assigned to a device of the node.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error, for example if the port is in use.
    pub(crate) async fn bind(address: Ipv4Addr) -> io::Result<Self> {
        Ok(Self {
            socket: UdpSocket::bind(SocketAddrV4::new(address, ECHO_RESPONDER_PORT)).await?,
            address,
            replies_left: REPLIES_PER_SECOND,
            second: Instant::now(),
        })
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Completes when a message may be readable.
    pub(crate) async fn readable(&self) {
        if let Err(error) = self.socket.readable().await {
            // `readable` fails only while the runtime shuts down. A pending future avoids a busy
            // loop.
            tracing::debug!(%error, "failed to wait for the echo socket");
            std::future::pending::<()>().await;
        }
    }

    /// Reads the queued messages. Passes each reply to `paths`. Replies to each request whose
    /// source is in the CIDRs `remote`.
    pub(crate) fn receive(&mut self, paths: &mut Paths, remote: &[Ipv4Net], now: Instant) {
        // The buffer is one byte longer than a message, so that `parse` rejects longer datagrams.
        let mut datagram = [0; message::LEN + 1];
        for _ in 0..BATCH_MAX {
            match self.socket.try_recv_from(&mut datagram) {
                Ok((len, SocketAddr::V4(from))) => match message::parse(&datagram[..len]) {
                    Some(Message::Reply(token)) if from.port() == ECHO_RESPONDER_PORT => {
                        paths.handle_reply(*from.ip(), token, now);
                    }
                    Some(Message::Request(token)) if is_remote(remote, *from.ip()) => {
                        self.reply(&message::reply(token), from, now);
                    }
                    _ => tracing::trace!("dropped a datagram that is no valid echo message"),
                },
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The cause may be an ICMP error for an earlier request. That request becomes a
                // miss.
                Err(error) => tracing::debug!(%error, "the echo socket reported an error"),
            }
        }
    }

    /// Sends all queued requests of `paths`. A request that cannot be sent becomes a miss.
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
