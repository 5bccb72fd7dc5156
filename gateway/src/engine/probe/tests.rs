use super::*;
use proptest::prelude::*;

const UPSTREAM_PING: &[u8] = br#"{"clusterID":"milan","msgType":"PING","timeStamp":"2026-11-21T10:00:00.123456789+01:00","extra":{"kept":[1,2]}}"#;
const SENT: i128 = 1_795_252_800_123_456_789;

fn own() -> Gateway {
    Gateway {
        version: "1.2.3".into(),
        replica: "gw-0".into(),
        lane: LaneId::ONLY,
        replicas: Some(2),
        leaving: false,
        nodes: None,
        heard: None,
        direct: false,
        place: None,
    }
}

fn object(json: &[u8]) -> Map<String, Value> {
    serde_json::from_slice(json).unwrap()
}

fn reply(json: &[u8], own: &Gateway) -> Map<String, Value> {
    let Some(Probe::Ping { reply, .. }) = parse(json, false) else {
        panic!("expected a PING");
    };
    object(&pong(reply, own))
}

#[test]
fn a_pong_is_the_ping_with_our_keys_added() {
    let reply = reply(UPSTREAM_PING, &own());

    let request = object(UPSTREAM_PING);
    for key in ["clusterID", "timeStamp", "extra"] {
        assert_eq!(reply[key], request[key]);
    }
    assert_eq!(reply["msgType"], "PONG");
    assert_eq!(reply["version"], "1.2.3");
    assert_eq!(reply["replica"], "gw-0");
    assert_eq!(reply["replicas"], 2);
    assert!(!reply.contains_key("leaving"));
}

#[test]
fn a_leaving_replica_advertises_it() {
    let leaving = Gateway {
        leaving: true,
        ..own()
    };

    assert_eq!(reply(UPSTREAM_PING, &leaving)["leaving"], true);
    let Some(Probe::Ping { gateway, .. }) = parse(&ping("milan", SENT, &leaving, None), false)
    else {
        panic!("expected a PING");
    };
    assert!(gateway.unwrap().leaving);
}

#[test]
fn a_pong_reports_the_health_of_nodes() {
    let nodes = Nodes {
        all: 5,
        cut: 2,
        resting: 1,
        echo_responder: true,
    };
    let own = Gateway {
        nodes: Some(nodes),
        ..own()
    };

    let pong = Value::Object(reply(UPSTREAM_PING, &own)).to_string();

    let Some(Probe::Pong { gateway, .. }) = parse(pong.as_bytes(), false) else {
        panic!("expected a PONG");
    };
    assert_eq!(gateway.unwrap().nodes, Some(nodes));
}

#[test]
fn malformed_health_of_nodes_is_ignored() {
    for nodes in [
        "7",
        "{}",
        r#"{"all":-1,"cut":0,"resting":0}"#,
        r#"{"all":1e99,"cut":0,"resting":0}"#,
        r#"{"all":1,"cut":"0","resting":0}"#,
    ] {
        let json = format!(
            r#"{{"msgType":"PONG","timeStamp":"2026-11-21T09:00:00Z","version":"1","replica":"a","nodes":{nodes}}}"#
        );
        let Some(Probe::Pong { gateway, .. }) = parse(json.as_bytes(), true) else {
            panic!("expected a PONG");
        };
        assert_eq!(gateway.unwrap().nodes, None, "{nodes}");
    }
}

#[test]
fn the_case_of_keys_is_not_significant() {
    let json = br#"{"ClusterId":"milan","MSGTYPE":"PING","timestamp":"2026-11-21T09:00:00Z"}"#;

    let reply = reply(json, &own());

    assert_eq!(reply["MSGTYPE"], "PONG");
    assert_eq!(reply["ClusterId"], "milan");
    assert!(!reply.contains_key("msgType"));
}

#[test]
fn a_ping_of_this_project_is_one_of_upstreams_with_additions() {
    let ping = ping("milan", SENT, &own(), None);

    let object = object(&ping);
    assert_eq!(object["clusterID"], "milan");
    assert_eq!(object["msgType"], "PING");
    let stamp: Timestamp = object["timeStamp"].as_str().unwrap().parse().unwrap();
    assert_eq!(stamp.as_nanosecond(), SENT);
    assert!(ping.len() <= UPSTREAM_BYTES_MAX);
}

#[test]
fn a_pong_carries_time_and_replica() {
    let reply = pong_any(object(&ping("milan", SENT, &own(), None)), &own());

    let parsed = parse(&reply, false);

    assert_eq!(
        parsed,
        Some(Probe::Pong {
            sent: SENT,
            gateway: Some(own())
        })
    );
}

#[test]
fn an_echoed_ping_does_not_describe_a_gateway() {
    let mut reflected = object(&ping("milan", SENT, &own(), None));
    reflected.insert("msgType".into(), "PONG".into());

    let Some(Probe::Pong { gateway, sent }) =
        parse(Value::Object(reflected).to_string().as_bytes(), false)
    else {
        panic!("expected a PONG");
    };

    assert_eq!(gateway, None);
    assert_eq!(sent, SENT);
}

#[test]
fn a_padded_ping_has_the_requested_length_and_a_short_pong() {
    let ping = ping("milan", SENT, &own(), Some(1_312));

    assert_eq!(ping.len(), 1_312);
    assert_eq!(parse(&ping, false), None, "too long for upstream");
    let Some(Probe::Ping { reply, gateway }) = parse(&ping, true) else {
        panic!("expected a PING");
    };
    assert_eq!(gateway.unwrap().replica, "gw-0");
    assert!(pong(reply, &own()).len() < 256);
}

#[test]
fn messages_that_are_no_probes_are_refused() {
    for json in [
        &b""[..],
        b"[]",
        b"{}",
        br#"{"msgType":"PANG"}"#,
        br#"{"msgType":1}"#,
        br#"{"msgType":"PONG"}"#,
        br#"{"msgType":"PONG","timeStamp":"yesterday"}"#,
        &[b'['; 1_000],
    ] {
        assert_eq!(parse(json, false), None);
    }
}

#[test]
fn names_with_control_characters_are_refused() {
    for name in ["\\u001b[2J", "a\\nmilan connected", "a b", "\\u00e9"] {
        let json = format!(
            r#"{{"msgType":"PONG","timeStamp":"2026-11-21T09:00:00Z","version":"1","replica":"{name}"}}"#
        );

        let Some(Probe::Pong { gateway, .. }) = parse(json.as_bytes(), false) else {
            panic!("expected a PONG");
        };

        assert_eq!(gateway, None, "{name}");
    }
}

#[test]
fn excessive_numbers_of_replicas_are_clamped() {
    let json = br#"{"msgType":"PONG","timeStamp":"2026-11-21T09:00:00Z","version":"1","replica":"r","replicas":18446744073709551615}"#;

    let Some(Probe::Pong { gateway, .. }) = parse(json, false) else {
        panic!("expected a PONG");
    };

    assert_eq!(gateway.unwrap().replicas, Some(REPLICAS_MAX));
}

proptest! {
    #[test]
    fn the_parser_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        parse(&bytes, true);
    }

    #[test]
    fn every_time_survives_the_round_trip(sent in 0..4_102_444_800_000_000_000_i128) {
        let reply = pong_any(object(&ping("c", sent, &own(), None)), &own());

        let Some(Probe::Pong { sent: replied, .. }) = parse(&reply, false) else {
            panic!("expected a PONG");
        };
        prop_assert_eq!(replied, sent);
    }
}
