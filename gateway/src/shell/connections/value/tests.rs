use super::*;
use std::collections::BTreeSet;

const NOW: Timestamp = Timestamp::constant(1_000_000, 0);

#[test]
fn a_connected_replica_writes_connected_if_it_is_missing() {
    for value in [None, Some(CONNECTING), Some(ERROR)] {
        let mut lab = Lab::new(&["gw-1"], value);

        assert!(lab.connects(0));

        assert_eq!(lab.value(), Some(CONNECTED));
        assert_eq!(lab.latency().value.as_deref(), Some("3ms"));
    }
}

#[test]
fn a_fresh_latency_is_not_written_again() {
    let mut lab = Lab::new(&["gw-1"], None);
    lab.connects(0);

    lab.pass(5);
    assert!(!lab.connects(0));
    lab.pass(5);
    assert!(!lab.writes(0), "nothing changed");
    assert!(lab.connects(0));
}

#[test]
fn a_lost_peer_is_an_error_if_no_replica_restores_the_latency() {
    let mut lab = Lab::new(&["gw-1", "gw-2"], None);
    lab.connects(0);

    assert!(lab.loses(0));
    assert_eq!(lab.value(), Some(CONNECTED), "only the latency changes");
    assert_eq!(lab.latency().timestamp, None);
    lab.writes(0);
    lab.pass(2);
    assert!(!lab.writes(0));
    lab.pass(1);
    assert!(lab.writes(0));

    assert_eq!(lab.value(), Some(ERROR));
    assert!(!lab.writes(0) && !lab.writes(1));
}

#[test]
fn a_loss_by_all_replicas_is_an_error_at_once() {
    let mut lab = Lab::new(&["gw-1", "gw-2"], None);
    lab.connects(0);
    lab.connects(1);

    assert!(lab.loses(0));
    assert_eq!(lab.value(), Some(CONNECTED));
    assert_eq!(lab.shown.lost_by, ["gw-1"]);
    assert!(!lab.writes(0), "one vote each");
    assert!(lab.loses(1));
    assert_eq!(lab.value(), Some(ERROR));
    assert_eq!(lab.shown.lost_by, [""; 0]);
    assert!(!lab.writes(0) && !lab.writes(1));

    let mut single = Lab::new(&["gw-1"], None);
    single.connects(0);
    assert!(single.loses(0));
    assert_eq!(single.value(), Some(ERROR));
}

#[test]
fn votes_of_before_do_not_count_after_the_latency_was_restored() {
    let mut lab = Lab::new(&["gw-1", "gw-2"], None);
    lab.connects(0);
    lab.connects(1);
    lab.loses(0);
    lab.writes(1);
    assert_eq!(lab.shown.lost_by, [""; 0], "gw-2 is connected");

    lab.connects(0);
    lab.loses(1);
    assert_eq!(lab.value(), Some(CONNECTED));
    assert_eq!(lab.shown.lost_by, ["gw-2"]);
}

#[test]
fn a_replica_that_has_ended_has_no_vote() {
    let mut lab = Lab::new(&["gw-1", "gw-2", "gw-3"], None);
    lab.connects(0);
    lab.loses(2);
    lab.loses(0);
    assert_eq!(lab.value(), Some(CONNECTED), "gw-2 may be connected");
    lab.live.remove("gw-2");
    lab.writes(0);
    assert_eq!(lab.value(), Some(ERROR));
}

#[test]
fn a_connected_replica_restores_a_removed_latency() {
    let mut lab = Lab::new(&["gw-1", "gw-2"], None);
    lab.connects(0);
    lab.connects(1);
    lab.writes(1);

    assert!(lab.loses(0));
    assert!(lab.writes(1), "gw-2 writes a new latency");
    for _ in 0..60 {
        lab.pass(1);
        lab.writes(0);
        if lab.second % 10 == 0 {
            lab.connects(1);
        }
        assert_eq!(lab.value(), Some(CONNECTED));
    }
}

#[test]
fn a_starting_replica_writes_error_only_while_no_other_is_connected() {
    let mut lab = Lab::new(&["gw-1", "gw-2"], None);
    lab.connects(0);
    for _ in 0..40 {
        lab.pass(1);
        if lab.second % 10 == 0 {
            lab.connects(0);
        }
        assert!(!lab.writes(1));
    }

    // gw-1 has crashed: from now on only gw-2 runs.
    let mut seen = BTreeSet::new();
    for _ in 0..24 {
        lab.pass(1);
        lab.writes(1);
        seen.insert(lab.value().unwrap().to_owned());
    }
    assert_eq!(lab.value(), Some(ERROR));
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[test]
fn a_short_loss_by_one_replica_is_not_shown() {
    let mut lab = Lab::new(&["gw-1", "gw-2"], None);
    lab.connects(0);

    lab.loses(0);
    lab.pass(1);
    lab.writes(0);
    assert!(lab.connects(0));

    assert_eq!(lab.value(), Some(CONNECTED));
    assert!(lab.latency().timestamp.is_some());
}

#[test]
fn an_object_without_status_shows_connecting() {
    let mut lab = Lab::new(&["gw-1"], None);

    assert!(lab.writes(0));
    assert_eq!(lab.value(), Some(CONNECTING));
    assert!(!lab.writes(0));
}

#[test]
fn latencies_are_formatted_as_upstream_does() {
    assert_eq!(text(Duration::from_micros(870)), "870\u{3bc}s");
    assert_eq!(text(Duration::from_micros(12_900)), "12ms");
}

/// The status of a peer's Connection, and the state of this peer in each replica.
struct Lab {
    own: Vec<Own>,
    names: Vec<String>,
    live: BTreeSet<String>,
    shown: ConnectionStatus,
    start: Instant,
    second: i64,
}

impl Lab {
    fn new(replicas: &[&str], value: Option<&str>) -> Self {
        let shown = ConnectionStatus {
            value: value.map(str::to_owned),
            ..ConnectionStatus::default()
        };
        Self {
            own: replicas.iter().map(|_| Own::new()).collect(),
            names: replicas.iter().map(|it| (*it).to_owned()).collect(),
            live: replicas.iter().map(|it| (*it).to_owned()).collect(),
            shown,
            start: Instant::now(),
            second: 0,
        }
    }

    fn pass(&mut self, seconds: i64) {
        self.second += seconds;
    }

    fn connects(&mut self, replica: usize) -> bool {
        let latency = Some(Duration::from_millis(3));
        self.own[replica].note(ConnectionState::Connected, latency);
        self.writes(replica)
    }

    fn loses(&mut self, replica: usize) -> bool {
        self.own[replica].note(ConnectionState::Error, None);
        self.writes(replica)
    }

    /// Applies the patch of a replica; returns whether there was a patch.
    fn writes(&mut self, replica: usize) -> bool {
        let seconds = Duration::from_secs(self.second.unsigned_abs());
        let now = Timestamp::from_second(NOW.as_second() + self.second).unwrap();
        let replicas = Replicas {
            own: &self.names[replica],
            live: &self.live,
        };
        let at = self.start + seconds;
        let written = self.own[replica].status(&self.shown, replicas, now, at);
        let Some(written) = written else {
            return false;
        };
        let status = serde_json::to_value(&self.shown).unwrap();
        let status = fake_apiserver::merged(status, written);
        self.shown = serde_json::from_value(status).unwrap();
        true
    }

    fn value(&self) -> Option<&str> {
        self.shown.value.as_deref()
    }

    fn latency(&self) -> control_api::networking::connection::Latency {
        self.shown.latency.clone().unwrap()
    }
}
