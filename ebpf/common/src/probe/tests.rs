use super::*;

#[test]
fn the_digest_is_fnv_1a_over_the_joined_ids() {
    assert_eq!(digest([]), 0xcbf2_9ce4_8422_2325);
    assert_eq!(digest(["a"]), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(digest(["foobar"]), 0x8594_4171_f739_67e8);
    assert_eq!(digest(["foo", "bar"]), digest(["foo\nbar"]));
    assert_ne!(digest(["foo", "bar"]), digest(["foobar"]));
}

#[test]
fn a_probe_survives_the_wire() {
    let mut probe = Probe::request(7, 0x0102_0304_0506_0708);
    probe.body = Heartbeat::new(true, 42, [true, false, true]).body;

    let parsed = Probe::parse(&probe.encode()).unwrap();

    assert_eq!(parsed, probe);
    assert_eq!(parsed.sequence(), 7);
    assert_eq!(parsed.sent(), 0x0102_0304_0506_0708);
}

#[test]
fn other_payloads_are_not_parsed() {
    let payload = Probe::request(1, 2).encode();
    let mut foreign = payload;
    foreign[0] ^= 1;

    assert_eq!(Probe::parse(&[]), None);
    assert_eq!(Probe::parse(&payload[1..]), None);
    assert_eq!(Probe::parse(&foreign), None);
}

#[test]
fn a_heartbeat_shows_which_peers_are_up() {
    let body = Heartbeat::new(false, 42, (0..10).map(|rank| rank % 3 == 0)).body;

    assert!(body.is_reply());
    assert!(!body.is_leaving());
    assert_eq!((body.count(), body.digest()), (10, 42));
    for rank in 0..20 {
        assert_eq!(body.is_up(rank), rank < 10 && rank % 3 == 0);
    }
}

#[test]
fn a_heartbeat_leaves_out_peers_beyond_the_limit() {
    let body = Heartbeat::new(true, 0, (0..PEERS_MAX + 1).map(|_| true)).body;

    assert_eq!(usize::from(body.count()), PEERS_MAX);
    assert!(body.is_leaving());
    assert!(body.is_up(PEERS_MAX - 1));
    assert!(!body.is_up(PEERS_MAX));
}

#[test]
fn a_request_is_no_reply() {
    let request = Probe::request(1, 2);

    assert!(!request.body.is_reply());
    assert!(!request.body.is_up(0));
}

#[test]
fn a_report_survives_the_wire() {
    let lost = [0, 7, 8, 700, PEERS_MAX - 1];
    let beyond = [PEERS_MAX, 5 * PEERS_MAX];
    let report = NodeReport::new(
        RECEIVES_REPLIES | STOPPING,
        42,
        lost.into_iter().chain(beyond),
    );

    let probe = Probe::parse(&Probe::request(7, 8).with_report(&report).encode()).unwrap();
    let last_request = LastRequest {
        body: probe.body,
        ..LastRequest::NONE
    };

    assert!(!probe.body.is_reply());
    assert_eq!((probe.sequence(), probe.sent()), (7, 8));
    assert!(
        [HAS_REPORT, RECEIVES_REPLIES, STOPPING]
            .iter()
            .all(|it| last_request.has_flag(*it))
    );
    assert!(!last_request.has_flag(HAS_ECHO_RESPONDER));
    assert_eq!(last_request.digest(), 42);
    assert_eq!(last_request.lost().collect::<Vec<_>>(), lost);
}

#[test]
fn a_node_of_an_earlier_version_sends_no_report() {
    let last_request = LastRequest {
        body: Probe::request(1, 2).body,
        ..LastRequest::NONE
    };

    assert!(!last_request.has_flag(HAS_REPORT));
    assert_eq!(last_request.lost().count(), 0);
}
