use super::*;
use crate::testing::ip;
use ebpf_common::probe::{Heartbeat, Sighting};

const MS: Duration = Duration::from_millis(1);

#[test]
fn an_answer_brings_a_replica_up() {
    let mut lab = Lab::new(&["milan", "turin"]);

    lab.answer(&[true, false]);

    assert_eq!(lab.reached(), ["milan"]);
    assert_eq!(lab.report().rtt, Some(MS));
}

#[test]
fn a_silent_replica_is_a_last_resort_and_then_dead() {
    let mut lab = Lab::new(&["milan"]);
    lab.answer(&[true]);
    let sent_at = lab.now - MS;

    let suspect_at = lab.run_until(|lab| lab.reached().is_empty());
    assert_eq!(suspect_at - sent_at, (150 + 3 * 75) * MS);
    assert_eq!(lab.report().phase, Phase::Suspect);
    assert_eq!(lab.resort(), ["gw"]);

    let dead_at = lab.run_until(|lab| lab.resort().is_empty());
    assert_eq!(dead_at - sent_at, (150 + 20 * 75) * MS);
    assert_eq!(lab.report().phase, Phase::Dead);
}

#[test]
fn a_suspect_that_answers_late_serves_again() {
    let mut lab = Lab::new(&["milan"]);
    lab.answer(&[true]);
    let late = lab.next_probe();
    lab.run_until(|lab| lab.reached().is_empty());

    lab.answer_to(late, &[true], |_| {});

    assert_eq!(lab.reached(), ["milan"]);
}

#[test]
fn two_lost_probes_make_nobody_a_suspect() {
    let mut lab = Lab::new(&["milan"]);
    lab.answer(&[true]);

    for _ in 0..20 {
        lab.next_probe();
        lab.next_probe();
        lab.answer(&[true]);
        assert_eq!(lab.reached(), ["milan"]);
    }
}

#[test]
fn a_late_answer_counts() {
    let mut lab = Lab::new(&["milan"]);
    lab.answer(&[true]);
    let late = lab.next_probe();
    lab.next_probe();

    lab.answer_to(late, &[true], |_| {});
    lab.next_probe();
    lab.next_probe();

    assert_eq!(lab.reached(), ["milan"]);
}

#[test]
fn a_dead_replica_comes_back_with_its_first_answer() {
    let mut lab = Lab::new(&["milan"]);
    lab.answer(&[true]);
    lab.run_until(|lab| lab.resort().is_empty());

    lab.answer(&[true]);

    assert_eq!(lab.reached(), ["milan"]);
}

#[test]
fn a_stall_of_this_process_makes_nobody_a_suspect() {
    let mut lab = Lab::new(&["milan"]);
    lab.answer(&[true]);
    lab.next_probe();

    lab.now += Duration::from_secs(60);
    lab.liveness.handle_timeout(lab.now);

    assert_eq!(lab.reached(), ["milan"]);
}

#[test]
fn a_leaving_replica_serves_no_more_at_once_and_again_if_it_stays() {
    let mut lab = Lab::new(&["milan"]);
    lab.answer(&[true]);
    lab.liveness.poll_change();

    lab.answer_with(&[true], |heartbeat| *heartbeat = leaving());
    let view = lab.liveness.poll_change().unwrap();
    assert_eq!(lab.report().phase, Phase::Leaving);
    assert!(view.serving().is_empty());
    assert_eq!(view.replicas_of("milan"), BTreeSet::from(["gw"]));

    lab.answer(&[true]);
    assert_eq!(lab.reached(), ["milan"]);
}

#[test]
fn a_replica_with_another_list_of_clusters_keeps_its_last_view() {
    let mut lab = Lab::new(&["milan", "turin"]);
    lab.answer(&[true, false]);

    lab.liveness
        .set_clusters(vec!["genoa".into(), "milan".into(), "turin".into()]);
    lab.answer_with(&[false, true], |_| {});

    assert_eq!(lab.reached(), ["milan"]);
    assert_eq!(lab.report().same_clusters, Some(false));
}

#[test]
fn a_removed_cluster_is_not_reached() {
    let mut lab = Lab::new(&["milan", "turin"]);
    lab.answer(&[true, true]);

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
fn answers_that_nobody_asked_for_change_nothing() {
    let mut lab = Lab::new(&["milan"]);
    let (_, request) = lab.next_probe();
    let mut answer = request;
    answer.answer = heartbeat(lab.digest(), &[true]).answer;

    let stranger = ip("169.254.19.99");
    lab.liveness
        .handle_datagram(stranger, &answer.encode(), lab.now);
    let mut forged = answer;
    forged.sequence = 9999u32.to_be_bytes();
    lab.liveness
        .handle_datagram(ADDRESS, &forged.encode(), lab.now);
    let mut forged = answer;
    forged.sent[7] ^= 1;
    lab.liveness
        .handle_datagram(ADDRESS, &forged.encode(), lab.now);
    lab.liveness
        .handle_datagram(ADDRESS, &request.encode(), lab.now);
    lab.liveness
        .handle_datagram(ADDRESS, &answer.encode()[1..], lab.now);

    assert_eq!(lab.report().answered, 0);
    assert_eq!(lab.liveness.poll_change(), None);
}

#[test]
fn a_repeated_answer_counts_once() {
    let mut lab = Lab::new(&["milan"]);
    let probe = lab.next_probe();

    lab.answer_to(probe, &[true], |_| {});
    lab.answer_to(probe, &[true], |_| {});

    assert_eq!(lab.report().answered, 1);
}

#[test]
fn a_slow_path_is_given_four_round_trips() {
    let mut lab = Lab::new(&["milan"]);
    let probe = lab.next_probe();
    lab.now += 30 * MS;
    lab.answer_to(probe, &[true], |_| {});

    let (sent_at, _) = lab.next_probe();
    let (again_at, _) = lab.next_probe();

    assert_eq!(again_at - sent_at, 120 * MS + 4 * MS);
}

#[test]
fn clusters_beyond_the_bitmap_are_taken_to_be_reached() {
    let ids: Vec<_> = (0..PEERS_MAX + 1).map(|n| format!("c{n:05}")).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let mut lab = Lab::new(&ids);

    lab.answer(&[false; PEERS_MAX]);

    assert_eq!(lab.reached(), [ids[PEERS_MAX]]);
}

#[test]
fn a_replica_of_another_address_must_prove_itself_and_one_of_another_slot_need_not() {
    let mut lab = Lab::new(&["milan"]);
    lab.answer(&[true]);

    let mut set = |slot, replica| {
        let targets = BTreeMap::from([("gw".to_owned(), target(slot, replica))]);
        lab.liveness.set_replicas(&targets, lab.now);
        lab.liveness.view().replicas_of("milan").len()
    };

    assert_eq!(set(2, 1), 1);
    assert_eq!(set(2, 2), 0);
}

#[test]
fn a_probe_says_whether_the_replica_is_heard() {
    let mut lab = Lab::new(&["milan"]);
    assert!(!lab.says(HEARS));

    lab.answer(&[true]);
    assert!(lab.says(HEARS));

    let heard = lab.now;
    while lab.says(HEARS) {
        assert!(lab.now - heard < Duration::from_secs(1));
    }
    assert!(lab.now - heard < Duration::from_millis(1300));
}

#[test]
fn a_probe_says_which_clusters_are_lost_by_their_rank() {
    let mut lab = Lab::new(&["milan", "paris", "turin"]);

    lab.liveness
        .set_lost(["turin".into(), "gone".into()].into());
    assert_eq!(lab.sighting().lost().collect::<Vec<_>>(), [2]);
    assert_eq!(lab.sighting().digest(), lab.digest());

    lab.liveness
        .set_clusters(vec!["milan".into(), "turin".into()]);
    assert_eq!(lab.sighting().lost().collect::<Vec<_>>(), [1]);
    assert_eq!(lab.sighting().digest(), lab.digest());
    assert!(!lab.sighting().says(REFLECTS));
    lab.liveness.set_reflects(true);
    assert!(lab.sighting().says(REFLECTS));
}

#[test]
fn an_agent_that_stops_says_so_at_once() {
    let mut lab = Lab::new(&["milan"]);
    lab.answer(&[true]);
    while lab.liveness.poll_transmit().is_some() {}

    lab.liveness.rest(lab.now);

    let probe = lab.liveness.poll_transmit().unwrap().probe;
    assert!(sighting(probe).says(RESTS));
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

/// A node with one replica, under virtual time.
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

    /// Waits for the next probe.
    fn next_probe(&mut self) -> (Instant, Probe) {
        self.now = self.now.max(self.liveness.poll_timeout().unwrap());
        self.liveness.handle_timeout(self.now);
        let transmit = self.liveness.poll_transmit().unwrap();
        assert_eq!(transmit.to, ADDRESS);

        (self.now, transmit.probe)
    }

    /// Answers the next probe after a millisecond.
    fn answer(&mut self, up: &[bool]) {
        self.answer_with(up, |_| {});
    }

    fn answer_with(&mut self, up: &[bool], change: impl FnOnce(&mut Heartbeat)) {
        // What the gateway knows does not follow what the node knows.
        let probe = self.next_probe();
        self.answer_to(probe, up, change);
    }

    fn answer_to(
        &mut self,
        (_, mut probe): (Instant, Probe),
        up: &[bool],
        change: impl FnOnce(&mut Heartbeat),
    ) {
        let mut heartbeat = heartbeat(self.digest_of(up.len()), up);
        change(&mut heartbeat);
        probe.answer = heartbeat.answer;
        self.now += MS;
        self.liveness
            .handle_datagram(ADDRESS, &probe.encode(), self.now);
    }

    /// What the next probe says.
    fn sighting(&mut self) -> Sighting {
        sighting(self.next_probe().1)
    }

    fn says(&mut self, flag: u16) -> bool {
        self.sighting().says(flag)
    }

    fn run_until(&mut self, condition: impl Fn(&Self) -> bool) -> Instant {
        for _ in 0..100 {
            self.next_probe();
            if condition(self) {
                return self.now;
            }
        }
        panic!("never came");
    }

    fn reached(&self) -> Vec<String> {
        let view = self.liveness.view();
        view.serving().values().flatten().cloned().collect()
    }

    /// The replicas that packets go to, as a last resort too.
    fn resort(&self) -> Vec<String> {
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

    /// The digest of a gateway that knows `count` clusters: the node's, if those are as many.
    fn digest_of(&self, count: usize) -> u64 {
        let ids = self.liveness.clusters.iter();
        let is_partial = count < ids.len() && ids.len() <= PEERS_MAX;
        digest(
            ids.take(if is_partial { count } else { usize::MAX })
                .map(String::as_str),
        )
    }
}

fn sighting(probe: Probe) -> Sighting {
    Sighting {
        request: probe.answer,
        ..Sighting::NONE
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
