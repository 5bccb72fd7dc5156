//! State of the engine, for `gateway status` and metrics.

use super::interface::{ConnectionState, Kind, PortId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Snapshot {
    pub(crate) cluster_id: String,
    pub(crate) replica: String,
    pub(crate) leaving: bool,
    /// Peers, ordered by index.
    pub(crate) peers: Vec<PeerSnapshot>,
    /// Dropped datagrams and packets by reason, without zeros.
    pub(crate) drops: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PeerSnapshot {
    /// Identifies the peer in the tables of the eBPF programs, and in the MAC addresses of the
    /// frames on the TAP.
    pub(crate) index: u16,
    pub(crate) cluster_id: String,
    /// Role of this cluster: `server` or `client`.
    pub(crate) role: &'static str,
    pub(crate) kind: Kind,
    /// Version of the peer's gateways; `None` if they do not advertise it.
    pub(crate) version: Option<String>,
    /// Whether this replica serves the peer. It is false only for a single-session peer that
    /// another replica or lane serves.
    pub(crate) served: bool,
    pub(crate) connection: ConnectionState,
    /// Smoothed round-trip time of probes.
    #[serde(serialize_with = "seconds")]
    pub(crate) latency: Option<Duration>,
    /// Memory in bytes of the packets that wait for a session.
    pub(crate) queued_bytes: usize,
    pub(crate) sessions: Vec<SessionSnapshot>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionSnapshot {
    pub(crate) lane: u8,
    /// Upper 24 bits of the local sender index.
    pub(crate) slot: u32,
    /// Upper 24 bits of the sender index in the peer's initiation; `None` if the peer has sent
    /// none.
    pub(crate) remote_slot: Option<u32>,
    pub(crate) endpoint: SocketAddr,
    pub(crate) port: PortId,
    pub(crate) state: &'static str,
    /// Name of the remote replica; `None` until the replica advertises it.
    pub(crate) replica: Option<String>,
    /// Number of the remote lane; `None` until the remote replica advertises it.
    pub(crate) remote_lane: Option<u8>,
    pub(crate) leaving: bool,
    /// Smoothed round-trip time of probes.
    #[serde(serialize_with = "seconds")]
    pub(crate) rtt: Option<Duration>,
    /// Age of the current keys.
    #[serde(serialize_with = "seconds")]
    pub(crate) last_handshake_age: Option<Duration>,
    /// Time since the last authenticated message.
    #[serde(serialize_with = "seconds")]
    pub(crate) last_heard_age: Option<Duration>,
    /// Bytes of inner packets received.
    pub(crate) rx_bytes: u64,
    /// Inner packets received.
    pub(crate) rx_packets: u64,
    /// Bytes of inner packets sent.
    pub(crate) tx_bytes: u64,
    /// Inner packets sent.
    pub(crate) tx_packets: u64,
    /// The path's inner MTU in bytes.
    pub(crate) mtu: u16,
}

/// Writes a duration as a number of seconds.
fn seconds<S: serde::Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    duration
        .map(|duration| duration.as_secs_f64())
        .serialize(serializer)
}
