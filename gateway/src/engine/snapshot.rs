//! What a person sees of the engine.

use super::interface::{ConnectionState, Kind, PortId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// The engine at one moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Snapshot {
    /// This cluster's id.
    pub(crate) cluster_id: String,
    /// This replica's name.
    pub(crate) replica: String,
    /// The replica is leaving.
    pub(crate) leaving: bool,
    /// The peers by index.
    pub(crate) peers: Vec<PeerSnapshot>,
    /// What was dropped, by reason; only reasons seen.
    pub(crate) drops: BTreeMap<&'static str, u64>,
}

/// One peer at one moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PeerSnapshot {
    /// Index in MAC addresses and tables.
    pub(crate) index: u16,
    /// The remote cluster's id.
    pub(crate) cluster_id: String,
    /// Our role: `server` or `client`.
    pub(crate) role: &'static str,
    /// What the peer runs.
    pub(crate) kind: Kind,
    /// The peer's version, if it tells.
    pub(crate) version: Option<String>,
    /// This replica serves the peer (always, unless the peer has one session only).
    pub(crate) served: bool,
    /// State of the connection.
    pub(crate) connection: ConnectionState,
    /// Round-trip time of the last answered probe.
    #[serde(serialize_with = "seconds")]
    pub(crate) latency: Option<Duration>,
    /// Bytes of packets that wait for a session.
    pub(crate) queued_bytes: usize,
    /// The peer's sessions.
    pub(crate) sessions: Vec<SessionSnapshot>,
}

/// One session at one moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionSnapshot {
    /// Our lane.
    pub(crate) lane: u8,
    /// The upper 24 bits of our index.
    pub(crate) slot: u32,
    /// The upper 24 bits of the remote index, once known.
    pub(crate) remote_slot: Option<u32>,
    /// Where the peer is.
    pub(crate) endpoint: SocketAddr,
    /// Our port.
    pub(crate) port: PortId,
    /// State of the session.
    pub(crate) state: &'static str,
    /// The remote replica, if it tells.
    pub(crate) replica: Option<String>,
    /// Its lane, if it tells.
    pub(crate) remote_lane: Option<u8>,
    /// The remote replica is leaving.
    pub(crate) leaving: bool,
    /// Round-trip time of the last answered probe.
    #[serde(serialize_with = "seconds")]
    pub(crate) rtt: Option<Duration>,
    /// Age of the keys in use.
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
