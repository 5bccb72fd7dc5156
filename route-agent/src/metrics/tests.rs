use super::*;
use crate::status::{Peer, Replica};
use prometheus_client::encoding::text::encode;

#[test]
fn the_metrics_are_those_of_the_status() {
    let status = Shared::default();
    status.update(|status| {
        status.config.valid = true;
        status.reapplies = 3;
        status.replicas = vec![replica("gw-1", Some(0.001)), replica("gw-2", None)];
        status.peers = vec![peer(&["gw-1"]), peer(&[])];
    });

    let mut text = String::new();
    let (registry, _) = registry(status);
    encode(&mut text, &registry).unwrap();

    for line in [
        "liqo_route_agent_replicas_alive 1",
        "liqo_route_agent_peers_reachable 1",
        "liqo_route_agent_config_valid 1",
        "liqo_route_agent_converged 0",
        "liqo_route_agent_reapplies_total 3",
        "liqo_route_agent_probe_rtt_seconds{replica=\"gw-1\"} 0.001",
        "# TYPE liqo_route_agent_nft_drops counter",
        "liqo_route_agent_watches_failing 0",
    ] {
        assert!(
            text.lines().any(|it| it == line),
            "{line} is not in:\n{text}"
        );
    }
}

fn replica(name: &str, rtt_seconds: Option<f64>) -> Replica {
    Replica {
        name: name.into(),
        address: None,
        node: String::new(),
        phase: String::new(),
        alive: rtt_seconds.is_some(),
        rtt_seconds,
        sent: 1,
        answered: 0,
        same_clusters: None,
    }
}

fn peer(gateways: &[&str]) -> Peer {
    Peer {
        cluster_id: "milan".into(),
        cidrs: Vec::new(),
        gateways: gateways.iter().map(ToString::to_string).collect(),
        mtu_bytes: None,
        path_up: None,
    }
}
