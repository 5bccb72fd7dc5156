use super::*;
use crate::testing::ip;

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_path_with_replies_is_up_and_gets_a_request_every_second() {
    let mut lab = Lab::new(1);

    lab.run(Duration::from_secs(10), |_| true);

    let report = lab.paths.report("c000").unwrap();
    assert_eq!((report.phase, report.rtt), (Phase::Up, Some(lab.rtt)));
    assert!((10..=11).contains(&lab.requests), "{}", lab.requests);
    assert_eq!(lab.changes, [lab.start + 5 * MS]);
}

#[test]
fn a_failed_path_is_down_within_three_seconds_and_up_with_the_first_reply() {
    let mut lab = Lab::new(1);
    lab.run(Duration::from_secs(5), |_| true);
    lab.changes.clear();

    let broken = lab.now;
    lab.run(Duration::from_secs(20), |_| false);
    assert_eq!(lab.paths.down(), BTreeSet::from(["c000".to_owned()]));
    assert!(
        lab.changes[0] - broken <= 2300 * MS,
        "{:?}",
        lab.changes[0] - broken
    );

    lab.changes.clear();
    let repaired = lab.now;
    lab.run(Duration::from_secs(5), |_| true);
    assert_eq!(lab.paths.down(), BTreeSet::new());
    assert!(lab.changes[0] - repaired <= 1100 * MS);
}

#[test]
fn two_consecutive_misses_leave_a_path_up() {
    let mut lab = Lab::new(1);

    lab.run(Duration::from_secs(60), |number| number % 3 == 0);

    assert_eq!(lab.changes.len(), 1);
    assert!(lab.paths.down().is_empty());
}

#[test]
fn a_path_with_a_round_trip_time_of_a_second_and_a_half_is_up() {
    let mut lab = Lab::new(1);
    lab.rtt = 1500 * MS;

    lab.run(Duration::from_secs(5), |_| true);
    lab.changes.clear();
    lab.run(Duration::from_secs(30), |_| true);

    assert_eq!(lab.paths.report("c000").unwrap().phase, Phase::Up);
}

#[test]
fn a_cluster_that_never_replies_gets_few_requests() {
    let mut lab = Lab::new(1);

    lab.run(Duration::from_secs(100), |_| false);

    assert_eq!(lab.paths.down().len(), 1);
    assert!(lab.requests <= 8 + 10, "{}", lab.requests);
}

#[test]
fn the_request_rate_is_limited_with_many_clusters() {
    let mut lab = Lab::new(1000);

    lab.run(Duration::from_secs(60), |_| true);

    assert!(lab.requests <= 60 * 50 + 1, "{}", lab.requests);
    let is_up = |id: &String| lab.paths.report(id).unwrap().phase == Phase::Up;
    assert!(lab.targets.keys().all(is_up));
}

#[test]
fn one_failed_path_among_many_is_detected() {
    let mut lab = Lab::new(40);
    lab.run(Duration::from_secs(5), |_| true);
    lab.changes.clear();

    lab.broken = lab.targets.get("c007").copied();
    let broken = lab.now;
    lab.run(Duration::from_secs(4), |_| true);

    assert_eq!(lab.paths.down(), BTreeSet::from(["c007".to_owned()]));
    assert!(lab.changes[0] - broken <= 2500 * MS);
}

#[test]
fn unsolicited_replies_change_nothing() {
    let mut lab = Lab::new(1);
    lab.paths.handle_timeout(lab.now);
    let request = lab.paths.poll_transmit().unwrap();
    let token = token(&request);

    lab.paths.handle_reply(ip("10.9.9.9"), token, lab.now);
    lab.paths.handle_reply(request.to, Token::new(99), lab.now);
    assert_eq!(lab.paths.report("c000").unwrap().phase, Phase::Unknown);

    lab.paths.handle_reply(request.to, token, lab.now);
    assert_eq!(lab.paths.report("c000").unwrap().phase, Phase::Up);
}

#[test]
fn a_cluster_that_is_reached_again_starts_as_unknown() {
    let mut lab = Lab::new(1);
    lab.run(Duration::from_secs(30), |_| false);
    assert_eq!(lab.paths.down().len(), 1);
    lab.paths.poll_change();

    lab.paths.set_targets(&BTreeMap::new(), lab.now);
    assert!(lab.paths.poll_change());
    assert_eq!(lab.paths.poll_timeout(), None);
    lab.paths.set_targets(&lab.targets, lab.now);

    assert_eq!(lab.paths.report("c000").unwrap().phase, Phase::Unknown);
    assert_eq!(lab.paths.poll_timeout(), Some(lab.now.max(lab.paths.next)));
}

/// A node and remote clusters that reply, with a clock that the test advances.
struct Lab {
    paths: Paths,
    targets: BTreeMap<String, Ipv4Addr>,
    start: Instant,
    now: Instant,
    rtt: Duration,
    /// Echo address of a cluster that never replies.
    broken: Option<Ipv4Addr>,
    requests: usize,
    /// Times at which the phase of a path changed.
    changes: Vec<Instant>,
    replies: VecDeque<(Instant, Ipv4Addr, Token)>,
}

impl Lab {
    fn new(clusters: u32) -> Self {
        let now = Instant::now();
        let address = |number: u32| Ipv4Addr::from_bits(0x0a46_ffff + (number << 16));
        let targets = (0..clusters)
            .map(|number| (format!("c{number:03}"), address(number)))
            .collect();
        let mut paths = Paths::new(7, now);
        paths.set_targets(&targets, now);

        Self {
            paths,
            targets,
            start: now,
            now,
            rtt: 5 * MS,
            broken: None,
            requests: 0,
            changes: Vec::new(),
            replies: VecDeque::new(),
        }
    }

    /// Advances the clock by `time`. The request with number N gets a reply if `is_answered(N)`
    /// returns `true`.
    fn run(&mut self, time: Duration, is_answered: impl Fn(usize) -> bool) {
        let end = self.now + time;
        loop {
            let reply = self.replies.front().map(|(at, ..)| *at);
            let next = [reply, self.paths.poll_timeout()]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            while let Some((at, from, token)) = self.replies.front().copied()
                && at <= self.now
            {
                self.replies.pop_front();
                self.paths.handle_reply(from, token, self.now);
            }
            self.paths.handle_timeout(self.now);
            while let Some(request) = self.paths.poll_transmit() {
                if is_answered(self.requests) && self.broken != Some(request.to) {
                    let arrival = self.now + self.rtt;
                    self.replies
                        .push_back((arrival, request.to, token(&request)));
                }
                self.requests += 1;
            }
            if self.paths.poll_change() {
                self.changes.push(self.now);
            }
        }
    }
}

fn token(request: &Transmit) -> Token {
    let Some(message::Message::Request(token)) = message::parse(&request.payload) else {
        panic!("{request:?} is no request");
    };

    token
}
