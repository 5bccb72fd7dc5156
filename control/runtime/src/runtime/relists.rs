//! When all objects of a cluster are listed again because its versions went back.

use std::time::{Duration, Instant};

/// Shortest interval between two such lists of one cluster. It doubles each time: a hostile API server
/// can send lower versions at any time, and etcd is restored rarely.
const INTERVAL_MIN: Duration = Duration::from_secs(10);

/// Longest interval. The interval is the shortest again if versions did not go back for as long after it.
const INTERVAL_MAX: Duration = Duration::from_secs(320);

/// The lists of one cluster.
#[derive(Debug, Default)]
pub(super) struct Relists {
    last: Option<Instant>,
    /// Interval after the last list.
    interval: Duration,
    /// Time of the next list, if one was requested.
    pub(super) due: Option<Instant>,
}

impl Relists {
    /// Requests a list, which is due when the interval has ended.
    pub(super) fn request(&mut self, now: Instant) {
        let end = self.last.map_or(now, |last| last + self.interval);
        if now >= end + INTERVAL_MAX {
            self.interval = Duration::ZERO;
        }
        self.due.get_or_insert(end.max(now));
    }

    /// Returns whether a list is due, which begins the next interval.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let is_due = self.due.take_if(|due| *due <= now).is_some();
        if is_due {
            self.last = Some(now);
            self.interval = (self.interval * 2).clamp(INTERVAL_MIN, INTERVAL_MAX);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times of the lists if versions go back each second, in seconds.
    fn times(relists: &mut Relists, begin: Instant, seconds: u64) -> Vec<u64> {
        let is_listed = |second: &u64| {
            let now = begin + Duration::from_secs(*second);
            relists.request(now);
            relists.take(now)
        };
        (0..seconds).filter(is_listed).collect()
    }

    #[test]
    fn intervals_double_to_a_limit_while_versions_go_back() {
        let (mut relists, begin) = (Relists::default(), Instant::now());

        let listed = times(&mut relists, begin, 1_300);

        assert_eq!(listed, [0, 10, 30, 70, 150, 310, 630, 950, 1_270]);
        let later = begin + Duration::from_secs(1_270) + INTERVAL_MAX * 2;
        assert_eq!(times(&mut relists, later, 20), [0, 10]);
    }

    #[test]
    fn versions_that_go_back_within_the_interval_cause_one_list_at_its_end() {
        let (mut relists, begin) = (Relists::default(), Instant::now());
        relists.request(begin);
        assert!(relists.take(begin));
        let soon = begin + INTERVAL_MIN / 2;

        relists.request(soon);
        relists.request(soon);

        assert!(!relists.take(soon));
        assert_eq!(relists.due, Some(begin + INTERVAL_MIN));
        assert!(relists.take(begin + INTERVAL_MIN));
        assert_eq!(relists.due, None);
    }
}
