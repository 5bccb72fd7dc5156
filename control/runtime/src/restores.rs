//! Limits how often a state is written again that another field manager changes.

use crate::digest::Digest;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A state that was restored this often within [`WINDOW`] is contested: another field manager insists on its own.
const RESTORES_MAX: usize = 3;

/// Time within which restorations count together.
const WINDOW: Duration = Duration::from_secs(10);

/// Shortest interval between writes of a contested state.
const CONTESTED_INTERVAL: Duration = Duration::from_secs(60);

/// Time without a change by others after which a state is no longer contested.
const CALM: Duration = Duration::from_secs(120);

/// Interval at which the Event about a contest is repeated. Kubernetes deletes Events after an hour.
const REPORT_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// Number of remembered states from which older ones are dropped.
const REMEMBERED_MAX: usize = 256;

/// Longest name of a field manager that the API server accepts, in characters.
const MANAGER_LEN_MAX: usize = 128;

/// Most remembered states, some 3 MiB. Writes of further ones are not limited, until older ones are dropped or forgotten.
const TRACKED_MAX: usize = 16_384;

/// The last written states of objects, which another field manager may change. `I` names an object.
///
/// A state that was restored three times within 10 s is contested: it is written at most once a minute, until no other field
/// manager has changed it for two minutes. Another state is written at once.
#[derive(Debug)]
pub struct Restores<I> {
    items: BTreeMap<I, Written>,
    /// When older states were dropped last. Nothing becomes outdated within [`WINDOW`] of its write.
    pruned_at: Option<Instant>,
}

#[derive(Debug)]
struct Written {
    state: Digest,
    at: Instant,
    /// When the state was restored, the last times only.
    restored: Vec<Instant>,
    is_contested: bool,
    /// The field manager that changes the object, as a part of a sentence; `None` until it is known.
    other_manager: Option<String>,
    /// When the contest was reported last.
    reported: Option<Instant>,
}

impl<I> Default for Restores<I> {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            pruned_at: None,
        }
    }
}

impl<I: Ord + Clone> Restores<I> {
    /// Notes that a state was written.
    pub fn wrote(&mut self, item: &I, state: Digest, at: Instant) {
        self.prune(at);
        let known = self.items.get_mut(item);
        let known = known.filter(|it| it.state == state && !it.is_calm(at));
        let Some(written) = known else {
            let written = Written {
                state,
                at,
                restored: Vec::new(),
                is_contested: false,
                other_manager: None,
                reported: None,
            };
            if self.items.len() < TRACKED_MAX || self.items.contains_key(item) {
                self.items.insert(item.clone(), written);
            }
            return;
        };
        written.at = at;
        written.restored.push(at);
        if written.restored.len() > RESTORES_MAX {
            written.restored.remove(0);
        }
        let is_often = written.restored.len() == RESTORES_MAX
            && at.saturating_duration_since(written.restored[0]) <= WINDOW;
        written.is_contested |= is_often;
    }

    /// Drops older states if there are many, at intervals, so that this costs little per write.
    fn prune(&mut self, now: Instant) {
        let is_recent = |it: Instant| now.saturating_duration_since(it) <= WINDOW;
        if self.items.len() >= REMEMBERED_MAX && !self.pruned_at.is_some_and(is_recent) {
            self.items.retain(|_, it| !it.is_outdated(now));
            self.pruned_at = Some(now);
        }
    }

    /// Returns how long to wait before a contested state is written again.
    pub fn wait(&self, item: &I, state: Digest, now: Instant) -> Option<Duration> {
        let written = self.contest(item).filter(|it| it.state == state)?;
        let rest = CONTESTED_INTERVAL.checked_sub(now.saturating_duration_since(written.at))?;

        (!rest.is_zero()).then_some(rest)
    }

    /// Ends the contest about a state that others have not changed for some time. Returns for how long it must stay so otherwise;
    /// `None` if there is no contest.
    pub fn calm(&mut self, item: &I, now: Instant) -> Option<Duration> {
        let written = self.contest(item)?;
        if written.is_calm(now) {
            self.forget(item);
            return None;
        }
        let waited = now.saturating_duration_since(written.at);

        Some(CALM.saturating_sub(waited))
    }

    /// Returns whether the last written state of an object is contested.
    pub fn is_contested(&self, item: &I) -> bool {
        self.contest(item).is_some()
    }

    /// Notes the field manager that changes a contested object: the first one of `managers`, the [latest](crate::Entry::managers) first, but `own`.
    pub fn name<'a>(&mut self, item: &I, managers: impl IntoIterator<Item = &'a str>, own: &str) {
        if let Some(written) = self.items.get_mut(item).filter(|it| it.is_contested) {
            let other = managers.into_iter().find(|it| *it != own);
            written.other_manager = Some(described(other));
        }
    }

    /// Returns the field manager that changes a contested object, as the beginning of a sentence: `the field manager kubectl-edit`, or `a client` if the
    /// object names none. `None` until it is [known](Self::name).
    pub fn other_manager(&self, item: &I) -> Option<&str> {
        self.contest(item)?.other_manager.as_deref()
    }

    /// Takes whether the Event about a contested object is published now although it is the last one about it.
    pub fn take_report(&mut self, item: &I, now: Instant) -> bool {
        let written = self.items.get_mut(item).filter(|it| it.is_contested);
        let is_recent = |it: Instant| now.saturating_duration_since(it) < REPORT_INTERVAL;
        let due = written.filter(|it| !it.reported.is_some_and(is_recent));

        due.map(|it| it.reported = Some(now)).is_some()
    }

    /// Drops the state of an object.
    pub fn forget(&mut self, item: &I) {
        self.items.remove(item);
    }

    fn contest(&self, item: &I) -> Option<&Written> {
        self.items.get(item).filter(|it| it.is_contested)
    }
}

impl Written {
    fn is_calm(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) >= CALM
    }

    /// Returns whether nothing depends on the state any more.
    fn is_outdated(&self, now: Instant) -> bool {
        !self.is_contested && now.saturating_duration_since(self.at) > WINDOW
    }
}

/// Describes a field manager. An untrusted API server may return any name, and it is shown on terminals.
fn described(manager: Option<&str>) -> String {
    let Some(manager) = manager else {
        return "a client".to_owned();
    };
    let name = manager.chars().take(MANAGER_LEN_MAX);
    let name: String = name
        .map(|it| if it.is_control() { ' ' } else { it })
        .collect();

    format!("the field manager {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str) -> String {
        name.to_owned()
    }

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn a_state_is_contested_after_three_restorations_within_ten_seconds() {
        let (item, state, start) = (item("web"), Digest::of(&"blue"), Instant::now());
        for (times, expected) in [
            ([0, 1_000, 2_000, 3_000], true),
            ([0, 1, 2, 10_001], true),
            ([0, 1_000, 2_000, 12_000], false),
        ] {
            let mut restores = Restores::default();
            let contested = times.map(|it| {
                restores.wrote(&item, state, after(start, it));
                restores.is_contested(&item)
            });
            assert_eq!(contested, [false, false, false, expected], "{times:?}");
            let last = after(start, times[3]);
            let wait = restores.wait(&item, state, last);
            assert_eq!(wait, expected.then_some(CONTESTED_INTERVAL));
            assert_eq!(restores.wait(&item, Digest::of(&"red"), last), None);
        }
    }

    #[test]
    fn another_state_is_written_at_once_and_begins_anew() {
        let (item, start) = (item("web"), Instant::now());
        let mut restores = Restores::default();
        for millis in 0..10_u64 {
            let state = Digest::of(&(millis % 2));
            restores.wrote(&item, state, after(start, millis));
            assert!(!restores.is_contested(&item));
        }
    }

    #[test]
    fn a_contest_ends_when_the_state_stays() {
        let (item, state, start) = (item("web"), Digest::of(&"blue"), Instant::now());
        let mut restores = Restores::default();
        for millis in 0..4 {
            restores.wrote(&item, state, after(start, millis));
        }
        restores.name(&item, ["ours", "theirs"], "ours");
        // A restoration each minute keeps it contested.
        for minute in 1..10 {
            let now = after(start, minute * 60_003);
            assert_eq!(restores.wait(&item, state, now), None);
            restores.wrote(&item, state, now);
            assert_eq!(restores.wait(&item, state, now), Some(CONTESTED_INTERVAL));
        }
        let last = after(start, 9 * 60_003);
        assert_eq!(
            restores.other_manager(&item),
            Some("the field manager theirs")
        );
        assert!(restores.take_report(&item, last) && !restores.take_report(&item, last));
        assert!(restores.take_report(&item, last + REPORT_INTERVAL));
        assert_eq!(restores.calm(&item, last), Some(CALM));
        assert_eq!(restores.calm(&item, last + CALM), None);
        assert_eq!(restores.other_manager(&item), None);
        assert_eq!(restores.wait(&item, state, last + CALM), None);
    }

    #[test]
    fn the_name_of_another_manager_is_printable_and_short() {
        assert_eq!(described(None), "a client");
        assert_eq!(described(Some("a\x1b[2Jb")), "the field manager a [2Jb");
        let long = "x".repeat(4 * MANAGER_LEN_MAX);
        assert!(described(Some(&long)).len() < 2 * MANAGER_LEN_MAX);
    }

    #[test]
    fn a_limited_number_of_states_is_remembered_and_contests_stay() {
        let (state, start) = (Digest::of(&"blue"), Instant::now());
        let mut restores = Restores::default();
        for millis in 0..4 {
            restores.wrote(&item("web"), state, after(start, millis));
        }
        for number in 0..3 * REMEMBERED_MAX as u64 {
            let other = item(&number.to_string());
            restores.wrote(&other, state, after(start, 60_000 + number * 1_000));
        }

        assert!(restores.items.len() <= REMEMBERED_MAX);
        assert!(restores.is_contested(&item("web")));
    }

    #[test]
    fn many_objects_that_are_written_at_once_are_not_all_remembered() {
        let (state, start) = (Digest::of(&"blue"), Instant::now());
        let mut restores = Restores::default();
        for number in 0..2 * TRACKED_MAX {
            restores.wrote(&item(&number.to_string()), state, start);
        }
        assert_eq!(restores.items.len(), TRACKED_MAX);

        // A known one is still counted, and later ones are remembered again.
        for millis in 0..3 {
            restores.wrote(&item("0"), state, after(start, millis));
        }
        assert!(restores.is_contested(&item("0")));
        let later = after(start, 60_000);
        for number in 0..2 * TRACKED_MAX {
            restores.wrote(&item(&number.to_string()), state, later);
            restores.forget(&item(&number.to_string()));
        }
        restores.wrote(&item("web"), state, later);
        assert!(restores.items.contains_key("web"));
    }
}
