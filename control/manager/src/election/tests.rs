use super::*;
use proptest::prelude::*;

fn record(holder: &str, version: u64) -> Record {
    Record {
        holder: holder.to_owned(),
        version: version.to_string(),
        duration: Timing::default().lease_duration,
    }
}

fn candidate(identity: &str) -> Election {
    Election::new(identity, Timing::default())
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_free_lease_is_taken_at_once() {
    let now = Instant::now();
    let mut election = candidate("a");

    assert_eq!(election.step(now), Step::Write);
    election.observe(Some(record("", 1)), now);
    assert_eq!(election.step(now), Step::Write);
    election.observe(Some(record("a", 2)), now);
    assert_eq!(election.step(now), Step::Write, "a process that came back");
}

#[test]
fn anothers_lease_is_taken_when_it_has_not_changed_for_its_duration() {
    let start = Instant::now();
    let mut election = candidate("b");

    election.observe(Some(record("a", 1)), start);
    election.observe(Some(record("a", 2)), start + seconds(10));
    election.observe(Some(record("a", 2)), start + seconds(20));

    assert_eq!(election.step(start + seconds(24)), Step::Wait(seconds(1)));
    assert_eq!(election.step(start + seconds(25)), Step::Write);
}

#[test]
fn a_leader_renews_retries_and_stops_in_time() {
    let start = Instant::now();
    let mut election = candidate("a");
    election.written(record("a", 1), start);

    assert_eq!(election.step(start), Step::Wait(seconds(5)));
    assert_eq!(election.step(start + seconds(5)), Step::Write);
    election.failed(start + seconds(5));
    assert_eq!(election.step(start + seconds(6)), Step::Wait(seconds(1)));
    assert_eq!(election.step(start + seconds(7)), Step::Write);
    election.failed(start + seconds(9));
    assert_eq!(election.step(start + seconds(9)), Step::Wait(seconds(1)));
    assert_eq!(election.step(start + seconds(10)), Step::Lost);
}

#[test]
fn a_leader_whose_lease_another_holds_stops() {
    let start = Instant::now();
    let mut election = candidate("a");
    election.written(record("a", 1), start);

    election.observe(Some(record("b", 2)), start);

    assert_eq!(election.step(start), Step::Lost);
}

#[test]
fn a_manager_that_has_stepped_down_leads_again_when_its_lease_is_its_own_still() {
    let start = Instant::now();
    let mut election = candidate("a");
    election.written(record("a", 1), start);
    let later = start + seconds(300);
    assert_eq!(election.step(later), Step::Lost);

    election.step_down();
    assert!(!election.is_leader());
    assert_eq!(election.step(later), Step::Write, "as far as it knows");
    election.observe(Some(record("b", 9)), later);

    assert_eq!(election.step(later), Step::Wait(seconds(5)));
    assert_eq!(election.step(later + seconds(15)), Step::Write);
}

proptest! {
    /// Two managers and a Lease under virtual time: whatever gets lost, never do both act.
    #[test]
    fn there_is_one_leader_at_most(
        losses in prop::collection::vec((any::<bool>(), any::<bool>()), 200),
        reborn: bool,
    ) {
        let start = Instant::now();
        let mut lease: Option<Record> = None;
        let mut version = 0;
        let mut managers = [candidate("a"), candidate("b")];

        for (second, lost) in losses.iter().enumerate() {
            let now = start + seconds(second as u64);
            for (index, manager) in managers.iter_mut().enumerate() {
                if manager.step(now) == Step::Lost {
                    if reborn {
                        // The process ends and another one begins.
                        *manager = candidate(["a2", "b2"][index]);
                    } else {
                        manager.step_down();
                    }
                }
                if [lost.0, lost.1][index] {
                    manager.failed(now);
                    continue;
                }
                if !manager.is_leader() {
                    manager.observe(lease.clone(), now);
                }
                if manager.step(now) == Step::Write {
                    version += 1;
                    let written = record(&manager.identity, version);
                    lease = Some(written.clone());
                    manager.written(written, now);
                }
            }
            let acting = managers.iter().filter(|it| it.is_leader() && it.step(now) != Step::Lost);
            prop_assert!(acting.count() <= 1, "at {second} s");
        }
    }
}
