//! The socket of the overlay probe: the only place where liveness meets the network.

use crate::liveness::Liveness;
use ebpf_common::probe;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;
use tokio::net::UdpSocket;

/// Answers read in one go, so that a flood cannot keep the rest of the agent waiting:
/// four for each replica that there can be.
const BATCH_MAX: usize = 1024;

/// The socket could not be had.
#[derive(Debug, thiserror::Error)]
#[error("failed to bind the probe's socket to {address}: is the port in use? choose --probe-port")]
pub(crate) struct Error {
    address: SocketAddr,
    source: io::Error,
}

/// Returns a number that nobody can guess, to begin the probes' sequence with.
pub(crate) fn random_sequence() -> u32 {
    let [_, _, _, _, low @ ..] = random().to_be_bytes();

    u32::from_be_bytes(low)
}

/// Returns a number that nobody can guess.
pub(crate) fn random() -> u64 {
    // Keyed with the system's random numbers.
    RandomState::new().hash_one(())
}

/// The socket on the node's external address.
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

    /// Returns the address that it is bound to.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Completes when there may be an answer.
    pub(crate) async fn readable(&self) {
        if let Err(error) = self.socket.readable().await {
            // Only without a runtime; wait for the next timeout instead of spinning.
            tracing::debug!(%error, "the probe's socket cannot be waited for");
            std::future::pending::<()>().await;
        }
    }

    /// Gives all answers that wait to `liveness`.
    pub(crate) fn receive(&self, liveness: &mut Liveness) {
        let mut datagram = [0; probe::LEN + 1]; // One more, so that longer datagrams are rejected.
        for _ in 0..BATCH_MAX {
            match self.socket.try_recv_from(&mut datagram) {
                Ok((len, SocketAddr::V4(from))) if from.port() == self.port => {
                    liveness.handle_datagram(*from.ip(), &datagram[..len], Instant::now());
                }
                Ok(_) => tracing::trace!("dropped a datagram that is no probe"),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An ICMP error to an earlier probe, for one; the probe counts as unanswered.
                Err(error) => tracing::debug!(%error, "the probe's socket reported an error"),
            }
        }
    }

    /// Sends all probes that `liveness` has ready.
    ///
    /// One that cannot be sent counts as unanswered.
    pub(crate) fn send(&self, liveness: &mut Liveness) {
        while let Some(transmit) = liveness.poll_transmit() {
            let to = SocketAddr::from((transmit.to, self.port));
            if let Err(error) = self.socket.try_send_to(&transmit.probe.encode(), to) {
                tracing::debug!(%error, "failed to send a probe");
            }
        }
    }
}
