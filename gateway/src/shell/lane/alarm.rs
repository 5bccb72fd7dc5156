//! Decides which worker of a lane wakes up for the lane's next timeout.

use std::time::Instant;

/// The sleeping worker that wakes up for the next timeout, and the time of its wake-up.
#[derive(Debug, Default)]
pub(super) struct Alarm(Option<(usize, Instant)>);

impl Alarm {
    /// Cancels the wake-up of `worker`, which is awake now.
    pub(super) fn handle_wake_up(&mut self, worker: usize) {
        if self.0.is_some_and(|(sleeper, _)| sleeper == worker) {
            self.0 = None;
        }
    }

    /// Returns whether `worker`, which is about to sleep, must wake up at `due`.
    ///
    /// Returns false if another worker wakes up by then.
    pub(super) fn set(&mut self, worker: usize, due: Instant) -> bool {
        let is_set = self.0.is_none_or(|(_, at)| due < at);
        if is_set {
            self.0 = Some((worker, due));
        }

        is_set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn one_worker_wakes_up_for_the_next_timeout() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut alarm = Alarm::default();

        assert!(alarm.set(0, later));
        alarm.handle_wake_up(1);
        assert!(!alarm.set(1, later), "the other worker wakes up");
        alarm.handle_wake_up(1);
        assert!(alarm.set(1, now), "the other worker would be late");
        alarm.handle_wake_up(0);
        assert!(!alarm.set(0, later));
        alarm.handle_wake_up(1);
        assert!(alarm.set(0, later), "no worker wakes up");
    }
}
