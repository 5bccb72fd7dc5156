//! Limits how often a state is written again that another field manager of the provider changes.

use super::item::WorkItem;
use control_runtime::Digest;
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

/// Number of remembered states from which older ones are dropped.
const REMEMBERED_MAX: usize = 256;

/// The last written state of objects.
#[derive(Debug, Default)]
pub(super) struct Restores {
    items: BTreeMap<WorkItem, Written>,
    /// Number of states from which older ones are dropped, so that this costs O(1) per write.
    prune_at: usize,
}

#[derive(Debug)]
struct Written {
    state: Digest,
    at: Instant,
    /// When the state was restored, the last times only.
    restored: Vec<Instant>,
    is_contested: bool,
    /// The field manager that changes the object; `None` until it is known.
    other_manager: Option<String>,
}

impl Restores {
    /// Notes that a state was written.
    pub(super) fn wrote(&mut self, item: &WorkItem, state: Digest, at: Instant) {
        if self.items.len() >= self.prune_at.max(REMEMBERED_MAX) {
            self.items.retain(|_, it| !it.is_outdated(at));
            self.prune_at = 2 * self.items.len();
        }
        let known = self.items.get_mut(item);
        let known = known.filter(|it| it.state == state && !it.is_calm(at));
        let Some(written) = known else {
            let written = Written {
                state,
                at,
                restored: Vec::new(),
                is_contested: false,
                other_manager: None,
            };
            self.items.insert(item.clone(), written);
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

    /// Returns how long to wait before a contested state is written again.
    pub(super) fn wait(&self, item: &WorkItem, state: Digest, now: Instant) -> Option<Duration> {
        let written = self.contest(item).filter(|it| it.state == state)?;
        let rest = CONTESTED_INTERVAL.checked_sub(now.saturating_duration_since(written.at))?;

        (!rest.is_zero()).then_some(rest)
    }

    /// Ends the contest about a state that others have not changed for some time. Returns for how long it must stay so otherwise;
    /// `None` if there is no contest.
    pub(super) fn calm(&mut self, item: &WorkItem, now: Instant) -> Option<Duration> {
        let written = self.contest(item)?;
        if written.is_calm(now) {
            self.forget(item);
            return None;
        }
        let waited = now.saturating_duration_since(written.at);

        Some(CALM.saturating_sub(waited))
    }

    /// Returns whether the last written state of an object is contested.
    pub(super) fn is_contested(&self, item: &WorkItem) -> bool {
        self.contest(item).is_some()
    }

    /// Notes the field manager that changes an object.
    pub(super) fn name(&mut self, item: &WorkItem, other_manager: String) {
        if let Some(written) = self.items.get_mut(item).filter(|it| it.is_contested) {
            written.other_manager = Some(other_manager);
        }
    }

    /// Returns the field manager that changes an object, if it is known.
    pub(super) fn other_manager(&self, item: &WorkItem) -> Option<&str> {
        self.contest(item)?.other_manager.as_deref()
    }

    /// Drops the state of an object.
    pub(super) fn forget(&mut self, item: &WorkItem) {
        self.items.remove(item);
    }

    fn contest(&self, item: &WorkItem) -> Option<&Written> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reflection::kind::Kind;
    use control_runtime::Key;

    fn item(name: &str) -> WorkItem {
        WorkItem::Object(Kind::ConfigMap, Key::new("shop", name))
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
        restores.name(&item, "theirs".to_owned());
        // A restoration each minute keeps it contested.
        for minute in 1..10 {
            let now = after(start, minute * 60_003);
            assert_eq!(restores.wait(&item, state, now), None);
            restores.wrote(&item, state, now);
            assert_eq!(restores.wait(&item, state, now), Some(CONTESTED_INTERVAL));
        }
        let last = after(start, 9 * 60_003);
        assert_eq!(restores.other_manager(&item), Some("theirs"));
        assert_eq!(restores.calm(&item, last), Some(CALM));
        assert_eq!(restores.calm(&item, last + CALM), None);
        assert_eq!(restores.other_manager(&item), None);
        assert_eq!(restores.wait(&item, state, last + CALM), None);
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
}
