//! The UDP socket for probes of gateway replicas. It sends the probes of [`Liveness`], and passes
//! the replies to it.

use crate::liveness::Liveness;
use ebpf_common::probe;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;
use tokio::net::UdpSocket;

/// Maximum number of replies read at a time, so that a flood does not block the event loop. It
/// allows four replies from each of 254 replicas, the maximum.
const BATCH_MAX: usize = 1024;

/// The socket cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("failed to bind the probe socket to {address}: is the port in use? set --probe-port")]
pub(crate) struct Error {
    address: SocketAddr,
    source: io::Error,
}

/// Returns an unpredictable number, as the first sequence number of probes.
pub(crate) fn random_sequence() -> u32 {
    let [_, _, _, _, low @ ..] = random().to_be_bytes();

    u32::from_be_bytes(low)
}

/// Returns an unpredictable number.
pub(crate) fn random() -> u64 {
    // The keys of a `RandomState` derive from random numbers of the operating system.
    RandomState::new().hash_one(())
}

/// A probe socket, bound to the node's address in the external CIDR.
pub(crate) struct Socket {
    socket: UdpSocket,
    address: Ipv4Addr,
    port: u16,
}

impl Socket {
    /// Binds a socket to `address`, which must be assigned to a device of the node.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the kernel refuses, for example if the port is in use.
    pub(crate) async fn bind(address: Ipv4Addr, port: u16) -> Result<Self, Error> {
        let local = SocketAddr::from((address, port));
        let socket = UdpSocket::bind(local).await.map_err(|source| Error {
            address: local,
            source,
        })?;

        Ok(Self {
            socket,
            address,
            port,
        })
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Completes when a reply may be readable.
    pub(crate) async fn readable(&self) {
        if let Err(error) = self.socket.readable().await {
            // `readable` fails only while the runtime shuts down. A pending future avoids a busy
            // loop.
            tracing::debug!(%error, "failed to wait for the probe socket");
            std::future::pending::<()>().await;
        }
    }

    /// Passes the queued replies to `liveness`.
    pub(crate) fn receive(&self, liveness: &mut Liveness) {
        // The buffer is one byte longer than a probe, so that `liveness` rejects longer datagrams.
        let mut datagram = [0; probe::LEN + 1];
        for _ in 0..BATCH_MAX {
            match self.socket.try_recv_from(&mut datagram) {
                Ok((len, SocketAddr::V4(from))) if from.port() == self.port => {
                    liveness.handle_datagram(*from.ip(), &datagram[..len], Instant::now());
                }
                Ok(_) => tracing::trace!("dropped a datagram that is no probe"),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The cause may be an ICMP error for an earlier probe. That probe becomes a miss.
                Err(error) => tracing::debug!(%error, "the probe socket reported an error"),
            }
        }
    }

    /// Sends all queued probes of `liveness`. A probe that cannot be sent becomes a miss.
    pub(crate) fn send(&self, liveness: &mut Liveness) {
        while let Some(transmit) = liveness.poll_transmit() {
            let to = SocketAddr::from((transmit.to, self.port));
            if let Err(error) = self.socket.try_send_to(&transmit.probe.encode(), to) {
                tracing::debug!(%error, "failed to send a probe");
            }
        }
    }
}
