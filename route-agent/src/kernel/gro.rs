//! Sockets with `UDP_GRO`, for which the kernel joins datagrams on their way to gateways in pods. See [`crate::gro`].

use nix::sys::socket::{setsockopt, sockopt};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};

/// Number of entries of connection tracking in this network namespace.
const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";

/// The sockets by port. Nothing is read from them.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    by_port: BTreeMap<u16, UdpSocket>,
}

impl Sockets {
    /// Opens the missing sockets, and closes all others.
    ///
    /// A port that a program of the node uses has no socket. If the program has set `UDP_GRO`, datagrams are joined nevertheless.
    pub(crate) fn set(&mut self, ports: &BTreeSet<u16>) {
        self.by_port.retain(|port, _| ports.contains(port));
        for port in ports {
            if self.by_port.contains_key(port) {
                continue;
            }
            match open(*port) {
                Ok(socket) => {
                    tracing::debug!(port, "joining the tunnel datagrams to this UDP port");
                    self.by_port.insert(*port, socket);
                }
                Err(error) => {
                    tracing::debug!(%error, port, "tunnel datagrams to this UDP port stay single");
                }
            }
        }
    }

    /// Returns the ports for which datagrams are joined.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        self.by_port.keys().copied()
    }
}

/// Opens a socket at all addresses, because the node receives datagrams for the addresses of pods, nodes and load
/// balancers.
fn open(port: u16) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    // The kernel raises the value to its minimum, which holds a datagram or two. They could arrive after the
    // translation has ended.
    setsockopt(&socket, sockopt::RcvBuf, &0)?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true)?;

    Ok(socket)
}

/// Returns the number of entries of connection tracking. `None` if it cannot be read, for instance because the node
/// tracks no connections.
pub(crate) fn entries() -> Option<usize> {
    fs::read_to_string(COUNT).ok()?.trim().parse().ok()
}
