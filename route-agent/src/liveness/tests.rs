use super::*;
use crate::testing::ip;
use ebpf_common::probe::{Heartbeat, LastRequest};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_reply_brings_a_replica_up() {
    let mut lab = Lab::new(&["milan", "turin"]);

    lab.reply(&[true, false]);

    assert_eq!(lab.reached(), ["milan"]);
    assert_eq!(lab.report().rtt, Some(MS));
}

#[test]
fn a_replica_without_replies_becomes_suspect_and_then_dead() {
    let mut lab = Lab::new(&["milan"]);
    lab.reply(&[true]);
    let sent_at = lab.now - MS;

    let suspect_at = lab.run_until(|lab| lab.reached().is_empty());
    assert_eq!(suspect_at - sent_at, (150 + 3 * 75) * MS);
    assert_eq!(lab.report().phase, Phase::Suspect);
    assert_eq!(lab.used(), ["gw"]);

    let dead_at = lab.run_until(|lab| lab.used().is_empty());
    assert_eq!(dead_at - sent_at, (150 + 20 * 75) * MS);
    assert_eq!(lab.report().phase, Phase::Dead);
}

#[test]
fn a_suspect_that_replies_late_serves_again() {
    let mut lab = Lab::new(&["milan"]);
    lab.reply(&[true]);
    let late = lab.next_probe();
    lab.run_until(|lab| lab.reached().is_empty());

    lab.reply_to(late, &[true], |_| {});

    assert_eq!(lab.reached(), ["milan"]);
}

#[test]
fn two_misses_make_no_replica_a_suspect() {
    let mut lab = Lab::new(&["milan"]);
    lab.reply(&[true]);

    for _ in 0..20 {
        lab.next_probe();
        lab.next_probe();
        lab.reply(&[true]);
        assert_eq!(lab.reached(), ["milan"]);
    }
}

#[test]
fn a_late_reply_counts() {
    let mut lab = Lab::new(&["milan"]);
    lab.reply(&[true]);
    let late = lab.next_probe();
    lab.next_probe();

    lab.reply_to(late, &[true], |_| {});
    lab.next_probe();
    lab.next_probe();

    assert_eq!(lab.reached(), ["milan"]);
}

#[test]
fn a_dead_replica_serves_again_after_its_first_reply() {
    let mut lab = Lab::new(&["milan"]);
    lab.reply(&[true]);
    lab.run_until(|lab| lab.used().is_empty());

    lab.reply(&[true]);

    assert_eq!(lab.reached(), ["milan"]);
}

#[test]
fn a_stall_of_this_process_makes_no_replica_a_suspect() {
    let mut lab = Lab::new(&["milan"]);
    lab.reply(&[true]);
    lab.next_probe();

    lab.now += Duration::from_secs(60);
    lab.liveness.handle_timeout(lab.now);

    assert_eq!(lab.reached(), ["milan"]);
}

#[test]
fn a_leaving_replica_stops_serving_at_once_and_serves_again_if_it_stays() {
    let mut lab = Lab::new(&["milan"]);
    lab.reply(&[true]);
    lab.liveness.poll_change();

    lab.reply_with(&[true], |heartbeat| *heartbeat = leaving());
    let view = lab.liveness.poll_change().unwrap();
    assert_eq!(lab.report().phase, Phase::Leaving);
    assert!(view.serving().is_empty());
    assert_eq!(view.replicas_of("milan"), BTreeSet::from(["gw"]));

    lab.reply(&[true]);
    assert_eq!(lab.reached(), ["milan"]);
}

#[test]
fn a_reply_with_another_digest_leaves_the_reached_clusters_unchanged() {
    let mut lab = Lab::new(&["milan", "turin"]);
    lab.reply(&[true, false]);

    lab.liveness
        .set_clusters(vec!["genoa".into(), "milan".into(), "turin".into()]);
    lab.reply_with(&[false, true], |_| {});

    assert_eq!(lab.reached(), ["milan"]);
    assert_eq!(lab.report().same_clusters, Some(false));
}

#[test]
fn a_removed_cluster_is_not_reached() {
    let mut lab = Lab::new(&["milan", "turin"]);
    lab.reply(&[true, true]);

    lab.liveness.set_clusters(vec!["turin".into()]);

    assert_eq!(lab.reached(), ["turin"]);
}

#[test]
fn an_adopted_replica_serves_until_it_misses_its_probes() {
    let mut lab = Lab::new(&["milan"]);
    let mut view = View::default();
    view.reaches("gw", "milan");

    lab.liveness.adopt(&view);
    assert_eq!(lab.liveness.view(), view);

    lab.run_until(|lab| lab.reached().is_empty());
}

#[test]
fn unsolicited_replies_change_nothing() {
    let mut lab = Lab::new(&["milan"]);
    let (_, request) = lab.next_probe();
    let mut reply = request;
    reply.body = heartbeat(lab.digest(), &[true]).body;

    let unknown = ip("169.254.19.99");
    lab.liveness
        .handle_datagram(unknown, &reply.encode(), lab.now);
    let mut forged = reply;
    forged.sequence = 9999u32.to_be_bytes();
    lab.liveness
        .handle_datagram(ADDRESS, &forged.encode(), lab.now);
    let mut forged = reply;
    forged.sent[7] ^= 1;
    lab.liveness
        .handle_datagram(ADDRESS, &forged.encode(), lab.now);
    lab.liveness
        .handle_datagram(ADDRESS, &request.encode(), lab.now);
    lab.liveness
        .handle_datagram(ADDRESS, &reply.encode()[1..], lab.now);

    assert_eq!(lab.report().replies, 0);
    assert_eq!(lab.liveness.poll_change(), None);
}

#[test]
fn a_duplicate_reply_counts_once() {
    let mut lab = Lab::new(&["milan"]);
    let probe = lab.next_probe();

    lab.reply_to(probe, &[true], |_| {});
    lab.reply_to(probe, &[true], |_| {});

    assert_eq!(lab.report().replies, 1);
}

#[test]
fn the_reply_timeout_is_four_round_trips() {
    let mut lab = Lab::new(&["milan"]);
    let probe = lab.next_probe();
    lab.now += 30 * MS;
    lab.reply_to(probe, &[true], |_| {});

    let (sent_at, _) = lab.next_probe();
    let (again_at, _) = lab.next_probe();

    assert_eq!(again_at - sent_at, 120 * MS + 4 * MS);
}

#[test]
fn clusters_beyond_the_bitmap_count_as_reached() {
    let ids: Vec<_> = (0..PEERS_MAX + 1).map(|n| format!("c{n:05}")).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let mut lab = Lab::new(&ids);

    lab.reply(&[false; PEERS_MAX]);

    assert_eq!(lab.reached(), [ids[PEERS_MAX]]);
}

#[test]
fn a_new_address_resets_a_replica_and_a_new_slot_does_not() {
    let mut lab = Lab::new(&["milan"]);
    lab.reply(&[true]);

    let mut set = |slot, replica| {
        let targets = BTreeMap::from([("gw".to_owned(), target(slot, replica))]);
        lab.liveness.set_replicas(&targets, lab.now);
        lab.liveness.view().replicas_of("milan").len()
    };

    assert_eq!(set(2, 1), 1);
    assert_eq!(set(2, 2), 0);
}

#[test]
fn probes_report_whether_the_replicas_replies_arrive() {
    let mut lab = Lab::new(&["milan"]);
    assert!(!lab.has_flag(RECEIVES_REPLIES));

    lab.reply(&[true]);
    assert!(lab.has_flag(RECEIVES_REPLIES));

    let replied = lab.now;
    while lab.has_flag(RECEIVES_REPLIES) {
        assert!(lab.now - replied < Duration::from_secs(1));
    }
    assert!(lab.now - replied < Duration::from_millis(1300));
}

#[test]
fn probes_report_the_paths_that_are_down_by_the_rank_of_the_cluster() {
    let mut lab = Lab::new(&["milan", "paris", "turin"]);

    lab.liveness
        .set_down_paths(["turin".into(), "gone".into()].into());
    assert_eq!(lab.last_request().lost().collect::<Vec<_>>(), [2]);
    assert_eq!(lab.last_request().digest(), lab.digest());

    lab.liveness
        .set_clusters(vec!["milan".into(), "turin".into()]);
    assert_eq!(lab.last_request().lost().collect::<Vec<_>>(), [1]);
    assert_eq!(lab.last_request().digest(), lab.digest());
    assert!(!lab.last_request().has_flag(HAS_ECHO_RESPONDER));
    lab.liveness.set_echo_responder(true);
    assert!(lab.last_request().has_flag(HAS_ECHO_RESPONDER));
}

#[test]
fn a_stop_is_announced_at_once() {
    let mut lab = Lab::new(&["milan"]);
    lab.reply(&[true]);
    while lab.liveness.poll_transmit().is_some() {}

    lab.liveness.announce_stop(lab.now);

    let probe = lab.liveness.poll_transmit().unwrap().probe;
    assert!(last_request(probe).has_flag(STOPPING));
}

#[test]
fn sixty_four_replicas_are_probed_in_every_interval() {
    let now = Instant::now();
    let mut liveness = Liveness::new(Config::default(), 0, now);
    let probes = (1..=64u8)
        .map(|n| (format!("gw-{n}"), target(n, n)))
        .collect();
    liveness.set_replicas(&probes, now);

    liveness.handle_timeout(now);

    let sent = std::iter::from_fn(|| liveness.poll_transmit());
    assert_eq!(sent.map(|it| it.to).collect::<BTreeSet<_>>().len(), 64);
    assert!(liveness.poll_timeout() > Some(now));
}

const ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 19, 1);

/// A node with one gateway replica, whose clock the test advances.
struct Lab {
    liveness: Liveness,
    now: Instant,
}

impl Lab {
    fn new(clusters: &[&str]) -> Self {
        let now = Instant::now();
        let mut liveness = Liveness::new(Config::default(), 7, now);
        liveness.set_clusters(clusters.iter().map(ToString::to_string).collect());
        liveness.set_replicas(&BTreeMap::from([("gw".to_owned(), target(1, 1))]), now);

        Self { liveness, now }
    }

    /// Advances the clock to the next probe, and returns the time and the probe.
    fn next_probe(&mut self) -> (Instant, Probe) {
        self.now = self.now.max(self.liveness.poll_timeout().unwrap());
        self.liveness.handle_timeout(self.now);
        let transmit = self.liveness.poll_transmit().unwrap();
        assert_eq!(transmit.to, ADDRESS);

        (self.now, transmit.probe)
    }

    /// Replies to the next probe after a millisecond. `up` has an entry for each cluster, which is
    /// `true` if the replica reaches the cluster.
    fn reply(&mut self, up: &[bool]) {
        self.reply_with(up, |_| {});
    }

    fn reply_with(&mut self, up: &[bool], change: impl FnOnce(&mut Heartbeat)) {
        let probe = self.next_probe();
        self.reply_to(probe, up, change);
    }

    fn reply_to(
        &mut self,
        (_, mut probe): (Instant, Probe),
        up: &[bool],
        change: impl FnOnce(&mut Heartbeat),
    ) {
        let mut heartbeat = heartbeat(self.digest_of(up.len()), up);
        change(&mut heartbeat);
        probe.body = heartbeat.body;
        self.now += MS;
        self.liveness
            .handle_datagram(ADDRESS, &probe.encode(), self.now);
    }

    /// Returns the report of the next probe, in the form in which the gateway stores it.
    fn last_request(&mut self) -> LastRequest {
        last_request(self.next_probe().1)
    }

    fn has_flag(&mut self, flag: u16) -> bool {
        self.last_request().has_flag(flag)
    }

    fn run_until(&mut self, condition: impl Fn(&Self) -> bool) -> Instant {
        for _ in 0..100 {
            self.next_probe();
            if condition(self) {
                return self.now;
            }
        }
        panic!("the condition did not hold within 100 probes");
    }

    fn reached(&self) -> Vec<String> {
        let view = self.liveness.view();
        view.serving()
            .values()
            .flat_map(|it| it.iter())
            .cloned()
            .collect()
    }

    /// Returns the replicas to which the node sends packets for milan.
    fn used(&self) -> Vec<String> {
        let view = self.liveness.view();
        let replicas = view.replicas_of("milan").into_iter();
        replicas.map(str::to_owned).collect()
    }

    fn report(&self) -> Report {
        self.liveness.reports().next().unwrap().1
    }

    fn digest(&self) -> u64 {
        digest(self.liveness.clusters.iter().map(String::as_str))
    }

    /// Returns the digest of a gateway that has only the first `count` remote clusters of the node.
    /// With more than `PEERS_MAX` clusters, the gateway has all of them.
    fn digest_of(&self, count: usize) -> u64 {
        let ids = self.liveness.clusters.iter();
        let is_partial = count < ids.len() && ids.len() <= PEERS_MAX;
        digest(
            ids.take(if is_partial { count } else { usize::MAX })
                .map(String::as_str),
        )
    }
}

fn last_request(probe: Probe) -> LastRequest {
    LastRequest {
        body: probe.body,
        ..LastRequest::NONE
    }
}

fn target(slot: u8, replica: u8) -> Target {
    Target {
        probe: Ipv4Addr::new(169, 254, 19, slot),
        replica: Ipv4Addr::new(172, 16, 0, replica),
    }
}

fn heartbeat(digest: u64, up: &[bool]) -> Heartbeat {
    Heartbeat::new(false, digest, up.iter().copied())
}

fn leaving() -> Heartbeat {
    Heartbeat::new(true, digest(["milan"]), [true])
}
