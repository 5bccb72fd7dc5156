//! Exports metrics with the names and units of upstream Liqo's gateways, for existing dashboards.
//!
//! As in upstream Liqo, a replica exports only the peers that it serves. It exports the traffic and
//! the latency of a peer only while the peer is connected.

use super::Out;
use crate::engine::ConnectionState;
use crate::engine::snapshot::{PeerSnapshot, SessionSnapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use std::fmt;

/// Value of the label `driver`, as in upstream Liqo.
const DRIVER: &str = "wireguard";

/// A collector that reads the peers at each scrape.
pub(super) struct Peers<F>(F);

impl<F: Fn() -> Option<Vec<PeerSnapshot>> + Send + Sync> Peers<F> {
    /// Creates a collector; `gather` returns the peers, or `None` if a lane does not reply.
    pub(super) fn new(gather: F) -> Self {
        Self(gather)
    }
}

impl<F> fmt::Debug for Peers<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Peers")
    }
}

impl<F: Fn() -> Option<Vec<PeerSnapshot>> + Send + Sync + 'static> Collector for Peers<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let peers = (self.0)().unwrap_or_default();
        let mut out = Out(&mut encoder);
        let served = || peers.iter().filter(|peer| peer.served);
        let connected = || served().filter(|peer| is_connected(peer));
        out.gauge(
            "peer_is_connected",
            "1 if the peer replies to probes, else 0",
            None,
            served().map(|peer| (labels(peer), f64::from(u8::from(is_connected(peer))))),
        )?;
        let latency = |peer: &PeerSnapshot| Some(peer.latency?.as_secs_f64() * 1e6);
        out.gauge(
            "peer_latency_us",
            "Round-trip time of the last probe in microseconds",
            None,
            connected().filter_map(|peer| Some((labels(peer), latency(peer)?))),
        )?;
        let bytes = |of: fn(&SessionSnapshot) -> u64| {
            connected().map(move |peer| (labels(peer), peer.sessions.iter().map(of).sum()))
        };
        out.counter(
            "peer_receive",
            "Bytes received from the peer",
            Some(Unit::Bytes),
            bytes(|session| session.rx_bytes),
        )?;
        out.counter(
            "peer_transmit",
            "Bytes sent to the peer",
            Some(Unit::Bytes),
            bytes(|session| session.tx_bytes),
        )
    }
}

fn is_connected(peer: &PeerSnapshot) -> bool {
    peer.connection == ConnectionState::Connected
}

fn labels(peer: &PeerSnapshot) -> [(&'static str, String); 2] {
    [
        ("driver", DRIVER.to_owned()),
        ("cluster_id", peer.cluster_id.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Kind, PortId};
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use std::time::Duration;

    #[test]
    fn a_peer_is_exported_with_upstream_names() {
        let text = exported(|_| {});

        let labels = r#"driver="wireguard",cluster_id="milan""#;
        for line in [
            format!("liqo_peer_is_connected{{{labels}}} 1.0"),
            format!("liqo_peer_latency_us{{{labels}}} 1500.0"),
            format!("liqo_peer_receive_bytes_total{{{labels}}} 300"),
            format!("liqo_peer_transmit_bytes_total{{{labels}}} 30"),
        ] {
            assert!(text.lines().any(|it| it == line), "{line} not in\n{text}");
        }
    }

    #[test]
    fn a_disconnected_peer_has_no_traffic_and_a_peer_of_another_replica_is_not_exported() {
        let away = exported(|peer| peer.connection = ConnectionState::Connecting);
        let of_another = exported(|peer| peer.served = false);

        assert!(away.contains("} 0.0"), "{away}");
        assert!(!away.contains("liqo_peer_receive_bytes_total{"), "{away}");
        assert!(!of_another.contains("milan"), "{of_another}");
    }

    fn exported(change: fn(&mut PeerSnapshot)) -> String {
        let peers = Peers::new(move || {
            let mut peer = peer();
            change(&mut peer);
            Some(vec![peer])
        });
        let mut registry = Registry::with_prefix("liqo");
        registry.register_collector(Box::new(peers));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    fn peer() -> PeerSnapshot {
        let session = |rx_bytes, tx_bytes| SessionSnapshot {
            lane: 0,
            remote_lane: None,
            slot: 1,
            remote_slot: Some(2),
            endpoint: "192.0.2.1:51840".parse().unwrap(),
            port: PortId(0),
            state: "up",
            replica: None,
            leaving: false,
            rtt: None,
            last_handshake_age: Some(Duration::from_secs(7)),
            last_heard_age: None,
            rx_bytes,
            rx_packets: 1,
            tx_bytes,
            tx_packets: 1,
            mtu: 1340,
        };

        PeerSnapshot {
            index: 1,
            cluster_id: "milan".to_owned(),
            role: "server",
            kind: Kind::Ours,
            version: None,
            served: true,
            connection: ConnectionState::Connected,
            latency: Some(Duration::from_micros(1500)),
            queued_bytes: 0,
            sessions: vec![session(100, 10), session(200, 20)],
        }
    }
}
