//! The socket of the overlay probe, which connects [`Liveness`] to the network.

use crate::liveness::Liveness;
use ebpf_common::probe;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;
use tokio::net::UdpSocket;

/// Replies read at once, so that a flood does not delay the rest of the agent: four for each
/// of the most replicas.
const BATCH_MAX: usize = 1024;

/// The socket cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("failed to bind the probe socket to {address}: is the port in use? choose --probe-port")]
pub(crate) struct Error {
    address: SocketAddr,
    source: io::Error,
}

/// Returns an unpredictable first sequence number of the probes.
pub(crate) fn random_sequence() -> u32 {
    let [_, _, _, _, low @ ..] = random().to_be_bytes();

    u32::from_be_bytes(low)
}

/// Returns an unpredictable number.
pub(crate) fn random() -> u64 {
    // Keyed by the operating system's random numbers.
    RandomState::new().hash_one(())
}

/// Bound to the node's external address.
pub(crate) struct Socket {
    socket: UdpSocket,
    address: Ipv4Addr,
    port: u16,
}

impl Socket {
    /// Binds the node's external address, which must exist.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if another process has the port.
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

    /// The local address.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Completes when a reply may be readable.
    pub(crate) async fn readable(&self) {
        if let Err(error) = self.socket.readable().await {
            // Only without a runtime; wait for the next timeout instead of spinning.
            tracing::debug!(%error, "failed to wait for the probe socket");
            std::future::pending::<()>().await;
        }
    }

    /// Passes all queued replies to `liveness`.
    pub(crate) fn receive(&self, liveness: &mut Liveness) {
        let mut datagram = [0; probe::LEN + 1]; // One more, so that longer datagrams are rejected.
        for _ in 0..BATCH_MAX {
            match self.socket.try_recv_from(&mut datagram) {
                Ok((len, SocketAddr::V4(from))) if from.port() == self.port => {
                    liveness.handle_datagram(*from.ip(), &datagram[..len], Instant::now());
                }
                Ok(_) => tracing::trace!("dropped a datagram that is no probe"),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Such as an ICMP error to an earlier probe, which becomes a miss.
                Err(error) => tracing::debug!(%error, "the probe socket reported an error"),
            }
        }
    }

    /// Sends all probes of `liveness`; one that cannot be sent becomes a miss.
    pub(crate) fn send(&self, liveness: &mut Liveness) {
        while let Some(transmit) = liveness.poll_transmit() {
            let to = SocketAddr::from((transmit.to, self.port));
            if let Err(error) = self.socket.try_send_to(&transmit.probe.encode(), to) {
                tracing::debug!(%error, "failed to send a probe");
            }
        }
    }
}
