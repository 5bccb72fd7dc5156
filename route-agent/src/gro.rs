//! The UDP ports at which this node receives the gateways' tunnel datagrams.
//!
//! A card without UDP segmentation delivers each datagram by itself. The kernel joins datagrams of a flow to one
//! super-packet (UDP GRO), but only if it finds a socket with `UDP_GRO` at their destination port (`udp_gro_receive`,
//! `net/ipv4/udp_offload.c`). It searches in the namespace of the card, before translation of addresses, and by the
//! port only. The socket of a gateway is in the gateway's pod, so no datagram would be joined, and each of them would
//! cross connection tracking, translation and the pod's veth by itself.
//!
//! Therefore the agent opens a socket with `UDP_GRO` at each port on which the node receives tunnel datagrams for
//! replicas. No datagram is delivered to this socket, because the node translates the destination first. Only
//! connection tracking knows these ports: node ports, ports of load balancers, and the source ports that masquerading
//! has selected.
//!
//! Overlay frames need no such socket, because the overlay device has one at the overlay port.

use control_fabric::Fabric;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Protocol number of UDP.
const UDP: u8 = 17;

/// Maximum number of ports. A replica has a session with each replica of each peer, and per lane, so a node with
/// more sessions receives some of them in single datagrams.
pub(crate) const PORTS_MAX: usize = 256;

/// First port that is used. A cluster's users can create a Service for the gateway's port with any port, and must not
/// be able to occupy the well-known ports of a node (RFC 6335, section 6).
const FIRST_PORT: u16 = 1024;

/// Maximum number of replicas whose flows are listed. All replicas of a cluster are behind the same node ports.
const REPLICAS_MAX: usize = 16;

/// Number of walks through the kernel's table for each replica: for the flows from it, and for those to it.
pub(crate) const WALKS: usize = 2;

/// Maximum number of entries in connection tracking for which flows are listed. A walk through so many takes about 10 ms, in
/// which the agent does nothing else.
pub(crate) const ENTRIES_MAX: usize = 131_072;

/// One direction of a flow, as in `struct nf_conntrack_tuple`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuple {
    /// IP protocol number.
    pub(crate) protocol: u8,
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) destination_port: u16,
}

/// A flow in connection tracking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Packets from the initiator, as the node receives them.
    pub(crate) original: Tuple,
    /// Replies, as the node receives them.
    pub(crate) reply: Tuple,
    /// Whether packets have been seen in both directions (`IPS_ASSURED`).
    pub(crate) is_assured: bool,
}

/// Returns the addresses of the replicas whose flows are listed, those on the node `node` first.
pub(crate) fn replicas(fabric: &Fabric, node: &str) -> Vec<Ipv4Addr> {
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        fabric.replicas.iter().partition(|it| it.node == node);

    here.iter()
        .chain(&elsewhere)
        .map(|it| it.address)
        .take(REPLICAS_MAX)
        .collect()
}

/// Returns the ports at which the node receives the datagrams of flows from and to replicas: at most [`PORTS_MAX`].
///
/// `overlay_port` is left out, because the overlay device receives there.
pub(crate) fn ports(flows: &[Flow], replicas: &[Ipv4Addr], overlay_port: u16) -> BTreeSet<u16> {
    let is_tunnel = |flow: &&Flow| flow.is_assured && flow.original.protocol == UDP;
    flows
        .iter()
        .filter(is_tunnel)
        .flat_map(|flow| received_at(flow, replicas))
        .filter(|port| *port >= FIRST_PORT && *port != overlay_port)
        .take(PORTS_MAX)
        .collect()
}

/// Returns the destination ports of a flow's datagrams, without those of ordinary flows of a replica's pod, for instance
/// to a DNS server.
fn received_at(flow: &Flow, replicas: &[Ipv4Addr]) -> impl Iterator<Item = u16> {
    let Flow {
        original, reply, ..
    } = flow;
    let is_to_replica = replicas.contains(&reply.source);
    let is_from_replica = replicas.contains(&original.source);
    let is_masqueraded = reply.destination != original.source;
    let inward = is_to_replica.then_some(original.destination_port);
    let outward =
        ((is_to_replica || is_from_replica) && is_masqueraded).then_some(reply.destination_port);

    inward.into_iter().chain(outward)
}

/// The times at which the flows are listed.
///
/// A change of the live replicas or of the clusters that they reach is a sign of new sessions. Flows are then listed after a
/// second, and again after twice the time. Without a change, flows are listed every [`INTERVAL_MAX`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    interval: Duration,
    next: Instant,
}

const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(16);

/// Minimum interval for each entry that a list has walked over. A walk takes about 0.1 us per entry, so lists use at most a
/// thousandth of a core.
const INTERVAL_PER_ENTRY: Duration = Duration::from_micros(100);

impl Schedule {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            interval: INTERVAL_MIN,
            next: now + INTERVAL_MIN,
        }
    }

    /// Returns the time at which flows are listed next.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Handles a change of the replicas, or of the clusters that they reach.
    pub(crate) fn handle_change(&mut self, now: Instant) {
        self.interval = INTERVAL_MIN;
        self.next = self.next.min(now + INTERVAL_MIN);
    }

    /// Handles the end of a list, which has walked over this number of entries.
    pub(crate) fn handle_listed(&mut self, now: Instant, walked: usize) {
        let walked = u32::try_from(walked).unwrap_or(u32::MAX);
        self.interval = (self.interval * 2).min(INTERVAL_MAX);
        self.next = now + self.interval.max(INTERVAL_PER_ENTRY * walked);
    }
}

#[cfg(test)]
mod tests;
