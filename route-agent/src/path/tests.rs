use super::*;
use crate::testing::ip;

const MS: Duration = Duration::from_millis(1);

#[test]
fn an_answered_way_is_whole_and_asked_every_second() {
    let mut lab = Lab::new(1);

    lab.run(Duration::from_secs(10), |_| true);

    let report = lab.paths.report("c000").unwrap();
    assert_eq!((report.phase, report.rtt), (Phase::Whole, Some(lab.rtt)));
    assert!((10..=11).contains(&lab.asked), "{}", lab.asked);
    assert_eq!(lab.changes, [lab.start + 5 * MS]);
}

#[test]
fn a_broken_way_is_known_within_three_seconds_and_whole_with_the_first_answer() {
    let mut lab = Lab::new(1);
    lab.run(Duration::from_secs(5), |_| true);
    lab.changes.clear();

    let broken = lab.now;
    lab.run(Duration::from_secs(20), |_| false);
    assert_eq!(lab.paths.lost(), BTreeSet::from(["c000".to_owned()]));
    assert!(
        lab.changes[0] - broken <= 2300 * MS,
        "{:?}",
        lab.changes[0] - broken
    );

    lab.changes.clear();
    let mended = lab.now;
    lab.run(Duration::from_secs(5), |_| true);
    assert_eq!(lab.paths.lost(), BTreeSet::new());
    assert!(lab.changes[0] - mended <= 1100 * MS);
}

#[test]
fn two_lost_questions_are_no_broken_way() {
    let mut lab = Lab::new(1);

    lab.run(Duration::from_secs(60), |number| number % 3 == 0);

    assert_eq!(lab.changes.len(), 1);
    assert!(lab.paths.lost().is_empty());
}

#[test]
fn a_way_of_a_second_and_a_half_is_whole() {
    let mut lab = Lab::new(1);
    lab.rtt = 1500 * MS;

    lab.run(Duration::from_secs(5), |_| true);
    lab.changes.clear();
    lab.run(Duration::from_secs(30), |_| true);

    assert_eq!(lab.paths.report("c000").unwrap().phase, Phase::Whole);
}

#[test]
fn who_never_answers_is_asked_rarely() {
    let mut lab = Lab::new(1);

    lab.run(Duration::from_secs(100), |_| false);

    assert_eq!(lab.paths.lost().len(), 1);
    assert!(lab.asked <= 8 + 10, "{}", lab.asked);
}

#[test]
fn many_clusters_take_turns() {
    let mut lab = Lab::new(1000);

    lab.run(Duration::from_secs(60), |_| true);

    assert!(lab.asked <= 60 * 50 + 1, "{}", lab.asked);
    let is_whole = |id: &String| lab.paths.report(id).unwrap().phase == Phase::Whole;
    assert!(lab.targets.keys().all(is_whole));
}

#[test]
fn one_broken_way_among_many_is_found() {
    let mut lab = Lab::new(40);
    lab.run(Duration::from_secs(5), |_| true);
    lab.changes.clear();

    lab.broken = lab.targets.get("c007").copied();
    let broken = lab.now;
    lab.run(Duration::from_secs(4), |_| true);

    assert_eq!(lab.paths.lost(), BTreeSet::from(["c007".to_owned()]));
    assert!(lab.changes[0] - broken <= 2500 * MS);
}

#[test]
fn answers_that_nobody_asked_for_change_nothing() {
    let mut lab = Lab::new(1);
    lab.paths.handle_timeout(lab.now);
    let question = lab.paths.poll_transmit().unwrap();
    let Some(message::Message::Question(token)) = message::parse(&question.payload) else {
        panic!("a question");
    };

    lab.paths.handle_answer(ip("10.9.9.9"), token, lab.now);
    lab.paths
        .handle_answer(question.to, Token::new(99), lab.now);
    assert_eq!(lab.paths.report("c000").unwrap().phase, Phase::Unknown);

    lab.paths.handle_answer(question.to, token, lab.now);
    assert_eq!(lab.paths.report("c000").unwrap().phase, Phase::Whole);
}

#[test]
fn a_cluster_that_is_reached_again_begins_anew() {
    let mut lab = Lab::new(1);
    lab.run(Duration::from_secs(30), |_| false);
    assert_eq!(lab.paths.lost().len(), 1);
    lab.paths.poll_change();

    lab.paths.set_targets(&BTreeMap::new(), lab.now);
    assert!(lab.paths.poll_change());
    assert_eq!(lab.paths.poll_timeout(), None);
    lab.paths.set_targets(&lab.targets, lab.now);

    assert_eq!(lab.paths.report("c000").unwrap().phase, Phase::Unknown);
    assert_eq!(lab.paths.poll_timeout(), Some(lab.now.max(lab.paths.next)));
}

/// A node and clusters that answer, under virtual time.
struct Lab {
    paths: Paths,
    targets: BTreeMap<String, Ipv4Addr>,
    start: Instant,
    now: Instant,
    rtt: Duration,
    /// The cluster that does not answer, whatever the others do.
    broken: Option<Ipv4Addr>,
    asked: usize,
    /// When the lost ways changed.
    changes: Vec<Instant>,
    answers: VecDeque<(Instant, Ipv4Addr, Token)>,
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
            asked: 0,
            changes: Vec::new(),
            answers: VecDeque::new(),
        }
    }

    /// Lets time pass; of the questions those are answered whose number `is_answered`.
    fn run(&mut self, time: Duration, is_answered: impl Fn(usize) -> bool) {
        let end = self.now + time;
        loop {
            let answer = self.answers.front().map(|(at, ..)| *at);
            let next = [answer, self.paths.poll_timeout()]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            while let Some((at, from, token)) = self.answers.front().copied()
                && at <= self.now
            {
                self.answers.pop_front();
                self.paths.handle_answer(from, token, self.now);
            }
            self.paths.handle_timeout(self.now);
            while let Some(question) = self.paths.poll_transmit() {
                let Some(message::Message::Question(token)) = message::parse(&question.payload)
                else {
                    panic!("a question");
                };
                if is_answered(self.asked) && self.broken != Some(question.to) {
                    self.answers
                        .push_back((self.now + self.rtt, question.to, token));
                }
                self.asked += 1;
            }
            if self.paths.poll_change() {
                self.changes.push(self.now);
            }
        }
    }
}
