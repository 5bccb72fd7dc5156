use super::*;
use crate::status::{Config, Peer, Replica};

#[test]
fn conditions_that_need_attention_are_in_capitals() {
    let status = Status {
        config: Config {
            source: "fabric.yaml".into(),
            valid: false,
            error: Some("no such field".into()),
            unserved: Vec::new(),
        },
        error: Some("the kernel said no".into()),
        warnings: vec!["odd".into()],
        peers: vec![Peer {
            cluster_id: "milan".into(),
            cidrs: vec!["10.245.0.0/16".into()],
            gateways: Vec::new(),
            mtu_bytes: None,
            path_up: None,
        }],
        ..Status::default()
    };

    let text = printed(&status);

    for word in ["INVALID", "FAILED", "UNREACHABLE", "WARNING    odd"] {
        assert!(text.contains(word), "{word} is not in:\n{text}");
    }
}

#[test]
fn replicas_show_their_round_trip() {
    let status = Status {
        replicas: vec![Replica {
            name: "gw-1".into(),
            address: Some([172, 16, 0, 11].into()),
            node: "rome-1".into(),
            phase: "serving".into(),
            alive: true,
            rtt_seconds: Some(0.00125),
            sent: 4,
            answered: 3,
            same_clusters: Some(false),
        }],
        ..Status::default()
    };

    let text = printed(&status);

    for word in ["1.25 ms", "3/4", "172.16.0.11", "other remote clusters"] {
        assert!(text.contains(word), "{word} is not in:\n{text}");
    }
}

fn printed(status: &Status) -> String {
    let mut text = Vec::new();
    print(status, &mut text).unwrap();

    String::from_utf8(text).unwrap()
}
