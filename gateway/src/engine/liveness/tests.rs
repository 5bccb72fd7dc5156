use super::*;

const MS: Duration = Duration::from_millis(1);

/// Sends due PINGs for `duration`, and returns when the session is lost. PONGs arrive after `rtt`,
/// or never if `rtt` is `None`.
fn run(
    liveness: &mut Liveness,
    kind: Kind,
    from: Instant,
    duration: Duration,
    rtt: Option<Duration>,
) -> Option<Instant> {
    let mut pending = VecDeque::new();
    let mut now = from;
    while now < from + duration {
        if liveness.poll_ping(kind, now) {
            let sent = (now - from).as_nanos() as i128 + 1_000_000_000_000;
            liveness.handle_sent(sent, None, now);
            pending.push_back((now, sent));
        }
        if let Some(rtt) = rtt {
            while pending.front().is_some_and(|(at, _)| *at + rtt <= now) {
                let (_, sent) = pending.pop_front().unwrap();
                liveness.handle_pong(sent, now);
            }
        }
        if liveness.is_lost(kind, from, now) {
            return Some(now);
        }
        now += 5 * MS;
    }
    None
}

#[test]
fn three_misses_lose_a_session_of_ours_within_half_a_second() {
    let start = Instant::now();
    let mut liveness = Liveness::new(start);
    assert_eq!(
        run(&mut liveness, Kind::Ours, start, 2_000 * MS, Some(10 * MS)),
        None
    );

    let silent = start + 2_000 * MS;
    let lost = run(&mut liveness, Kind::Ours, silent, 2_000 * MS, None).unwrap();

    assert!(lost - silent >= 250 * MS, "{:?}", lost - silent);
    assert!(lost - silent <= 550 * MS, "{:?}", lost - silent);
}

#[test]
fn a_peer_that_replies_gets_four_pings_a_second() {
    let start = Instant::now();
    let mut liveness = Liveness::new(start);

    run(&mut liveness, Kind::Ours, start, 10_000 * MS, Some(10 * MS));

    assert!((38..=42).contains(&liveness.pings), "{}", liveness.pings);
}

#[test]
fn traffic_with_upstream_causes_no_further_pings() {
    let start = Instant::now();
    let mut liveness = Liveness::new(start);
    for tick in 0..40 {
        let now = start + OURS_INTERVAL * tick;
        run(
            &mut liveness,
            Kind::Upstream,
            now,
            OURS_INTERVAL,
            Some(10 * MS),
        );
        liveness.set_interval(Kind::Upstream, OURS_INTERVAL);
    }

    assert!((4..=6).contains(&liveness.pings), "{}", liveness.pings);
}

#[test]
fn a_long_round_trip_is_no_miss() {
    let start = Instant::now();
    let mut liveness = Liveness::new(start);

    let lost = run(
        &mut liveness,
        Kind::Ours,
        start,
        20_000 * MS,
        Some(900 * MS),
    );

    assert_eq!(lost, None);
    assert!(liveness.rtt().unwrap() >= 800 * MS);
}

#[test]
fn a_peer_that_sends_is_alive_for_three_seconds() {
    let start = Instant::now();
    let mut liveness = Liveness::new(start);
    run(&mut liveness, Kind::Ours, start, 1_000 * MS, Some(10 * MS));
    let mut now = start + 1_000 * MS;

    let mut sent = 0;
    while !liveness.is_lost(Kind::Ours, now, now) {
        if liveness.poll_ping(Kind::Ours, now) {
            sent += 1;
            liveness.handle_sent(sent, None, now);
        }
        now += 5 * MS;
        assert!(now < start + 10_000 * MS, "the session is never lost");
    }

    assert!(now >= start + 3_500 * MS);
}

#[test]
fn upstream_is_lost_after_its_own_threshold() {
    let start = Instant::now();
    let mut liveness = Liveness::new(start);
    run(
        &mut liveness,
        Kind::Upstream,
        start,
        4_000 * MS,
        Some(10 * MS),
    );

    let silent = start + 4_000 * MS;
    let lost = run(&mut liveness, Kind::Upstream, silent, 20_000 * MS, None).unwrap();

    assert!(lost - silent > 7_900 * MS && lost - silent <= 10_100 * MS);
}

#[test]
fn a_peer_that_never_replies_gets_fewer_pings_and_is_never_lost() {
    let start = Instant::now();
    let mut liveness = Liveness::new(start);

    let lost = run(&mut liveness, Kind::Unknown, start, 60_000 * MS, None);

    assert_eq!(lost, None);
    assert!(liveness.pings < 45, "{}", liveness.pings);
    assert!(!liveness.has_reply());
}

#[test]
fn a_pong_counts_once_and_only_for_its_ping() {
    let start = Instant::now();
    let mut liveness = Liveness::new(start);
    liveness.handle_sent(7, None, start);

    assert_eq!(liveness.handle_pong(8, start + 3 * MS), None);
    let reply = liveness.handle_pong(7, start + 3 * MS).unwrap();
    assert_eq!(reply.rtt, 3 * MS);
    assert_eq!(liveness.handle_pong(7, start + 4 * MS), None);
}

#[test]
fn a_lost_padded_ping_is_no_miss() {
    let start = Instant::now();
    let mut liveness = Liveness::new(start);

    for sent in 0..10 {
        liveness.handle_sent(sent, Some(1_400), start);
    }

    assert_eq!(liveness.lost_at(Kind::Ours, start), None);
    let reply = liveness.handle_pong(4, start + MS).unwrap();
    assert_eq!(reply.size, Some(1_400));
}

#[test]
fn remembered_pings_are_limited() {
    let start = Instant::now();
    let mut liveness = Liveness::new(start);

    for sent in 0..1_000 {
        liveness.handle_sent(sent, None, start);
    }

    assert_eq!(liveness.outstanding.len(), OUTSTANDING_MAX);
}

#[test]
fn pings_are_aligned_with_ticks_at_the_same_rate() {
    let start = Instant::now();
    let mut liveness = Liveness::new(start + 77 * MS);
    let mut sent = Vec::new();

    for ms in 0..10_000_u32 {
        let now = start + ms * MS;
        if ms % 250 == 0 {
            liveness.handle_tick(Kind::Ours, now);
        }
        if liveness.poll_ping(Kind::Ours, now) {
            liveness.handle_sent(i128::from(ms), None, now);
            liveness.handle_pong(i128::from(ms), now + MS);
            sent.push(ms);
        }
    }

    assert_eq!(sent[0], 0);
    assert!(sent.iter().all(|ms| ms % 250 == 0), "{sent:?}");
    assert_eq!(sent.len(), 40);
}

#[test]
fn a_tick_advances_no_repeated_ping() {
    let start = Instant::now();
    let mut liveness = Liveness::new(start);
    assert!(liveness.poll_ping(Kind::Ours, start));
    liveness.handle_sent(1, None, start);

    liveness.handle_tick(Kind::Ours, start + 50 * MS);
    assert!(
        !liveness.poll_ping(Kind::Ours, start + 50 * MS),
        "a PONG may still arrive"
    );

    let mut upstream = Liveness::new(start);
    assert!(upstream.poll_ping(Kind::Upstream, start));
    upstream.handle_tick(Kind::Upstream, start + 1_900 * MS);
    assert!(
        !upstream.poll_ping(Kind::Upstream, start + 1_900 * MS),
        "upstream has its own interval"
    );
}
