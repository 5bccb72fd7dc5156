use super::*;

const RTT: Duration = Duration::from_millis(20);
const UPPER: u16 = 1_340;
const OVERHEAD: u16 = 60;

/// Runs the state machine over a path that carries inner packets of up to `path` bytes, and returns
/// the number of sent probes.
fn run(
    mtu: &mut PathMtu,
    now: &mut Instant,
    duration: Duration,
    path: u16,
    healthy: bool,
) -> usize {
    let end = *now + duration;
    let mut sent = 0;
    while *now < end {
        mtu.handle_timeout(healthy, RTT, *now);
        let probes: Vec<_> = std::iter::from_fn(|| mtu.poll_probe()).collect();
        sent += probes.len();
        *now += RTT;
        for size in probes {
            assert!(size <= UPPER);
            if size <= path && healthy {
                mtu.handle_arrival(size, *now);
            }
        }
        *now = (*now).max(mtu.poll_timeout());
    }
    sent
}

fn new() -> (PathMtu, Instant) {
    let now = Instant::now();
    (PathMtu::new(UPPER, OVERHEAD, now), now)
}

#[test]
fn a_wide_path_keeps_the_upper_bound_at_little_cost() {
    let (mut mtu, mut now) = new();

    let sent = run(&mut mtu, &mut now, Duration::from_secs(60), 9_000, true);

    assert_eq!(mtu.mtu(), UPPER);
    assert!(sent <= 13, "{sent}");
}

#[test]
fn a_narrow_path_is_found_in_three_seconds() {
    for (path, expected) in [(1_290, 1_280), (1_220, 1_220), (1_000, 964), (300, 516)] {
        let (mut mtu, mut now) = new();

        run(&mut mtu, &mut now, Duration::from_secs(3), path, true);

        assert_eq!(mtu.mtu(), expected);
    }
}

#[test]
fn a_path_that_narrows_later_is_found_too() {
    let (mut mtu, mut now) = new();
    run(&mut mtu, &mut now, Duration::from_secs(60), 9_000, true);

    run(&mut mtu, &mut now, Duration::from_secs(10), 1_220, true);

    assert_eq!(mtu.mtu(), 1_220);
}

#[test]
fn a_path_that_widens_is_used_within_minutes() {
    let (mut mtu, mut now) = new();
    run(&mut mtu, &mut now, Duration::from_secs(10), 1_220, true);

    run(
        &mut mtu,
        &mut now,
        RAISE_INTERVAL + Duration::from_secs(10),
        9_000,
        true,
    );

    assert_eq!(mtu.mtu(), UPPER);
}

#[test]
fn a_dead_path_does_not_lower_the_mtu() {
    let (mut mtu, mut now) = new();

    run(&mut mtu, &mut now, Duration::from_secs(60), 0, false);

    assert_eq!(mtu.mtu(), UPPER);
}

#[test]
fn two_losses_do_not_lower_the_mtu() {
    let (mut mtu, mut now) = new();
    for _ in 0..2 {
        mtu.handle_timeout(true, RTT, now);
        assert_eq!(mtu.poll_probe(), Some(UPPER));
        now = mtu.poll_timeout();
    }

    run(&mut mtu, &mut now, Duration::from_secs(10), 9_000, true);

    assert_eq!(mtu.mtu(), UPPER);
}

#[test]
fn a_bound_below_all_candidates_is_never_exceeded() {
    let now = Instant::now();
    let mut mtu = PathMtu::new(400, OVERHEAD, now);

    mtu.handle_arrival(1_400, now);

    assert_eq!(mtu.mtu(), 400);
}
