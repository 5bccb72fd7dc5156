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
    probe.answer = Heartbeat::new(true, 42, [true, false, true]).answer;

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
    let answer = Heartbeat::new(false, 42, (0..10).map(|rank| rank % 3 == 0)).answer;

    assert!(answer.is_answered());
    assert!(!answer.is_leaving());
    assert_eq!((answer.count(), answer.digest()), (10, 42));
    for rank in 0..20 {
        assert_eq!(answer.is_up(rank), rank < 10 && rank % 3 == 0);
    }
}

#[test]
fn a_heartbeat_leaves_out_peers_beyond_the_limit() {
    let answer = Heartbeat::new(true, 0, (0..PEERS_MAX + 1).map(|_| true)).answer;

    assert_eq!(usize::from(answer.count()), PEERS_MAX);
    assert!(answer.is_leaving());
    assert!(answer.is_up(PEERS_MAX - 1));
    assert!(!answer.is_up(PEERS_MAX));
}

#[test]
fn a_request_is_no_reply() {
    let request = Probe::request(1, 2);

    assert!(!request.answer.is_answered());
    assert!(!request.answer.is_up(0));
}

#[test]
fn a_report_survives_the_wire() {
    let lost = [0, 7, 8, 700, PEERS_MAX - 1];
    let beyond = [PEERS_MAX, 5 * PEERS_MAX];
    let statement = Statement::new(HEARS | RESTS, 42, lost.into_iter().chain(beyond));

    let probe = Probe::parse(&Probe::request(7, 8).saying(&statement).encode()).unwrap();
    let sighting = Sighting {
        request: probe.answer,
        ..Sighting::NONE
    };

    assert!(!probe.answer.is_answered());
    assert_eq!((probe.sequence(), probe.sent()), (7, 8));
    assert!([SPEAKS, HEARS, RESTS].iter().all(|it| sighting.says(*it)));
    assert!(!sighting.says(REFLECTS));
    assert_eq!(sighting.digest(), 42);
    assert_eq!(sighting.lost().collect::<Vec<_>>(), lost);
}

#[test]
fn a_node_of_an_earlier_version_sends_no_report() {
    let sighting = Sighting {
        request: Probe::request(1, 2).answer,
        ..Sighting::NONE
    };

    assert!(!sighting.says(SPEAKS));
    assert_eq!(sighting.lost().count(), 0);
}
