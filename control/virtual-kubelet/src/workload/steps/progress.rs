//! The stages of one pod.
//!
//! ```text
//! Bound --shadow_pod--> Written --remote_pod--> Created --remote_ready--> RemoteReady --ready--> Ready
//!
//! any of these --deletionTimestamp--> Terminating --remote_deleted--> RemoteDeleted --deleted--> end
//! ```
//!
//! A pod passes each stage once: a pod that is no longer ready, or whose remote pod is replaced, keeps its stage.

use super::durations::{Sample, Step};
use std::time::Instant;

/// The furthest stage that a pod has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// It is bound to the Node.
    Bound,
    /// The provider has its ShadowPod.
    Written,
    /// The provider has created the remote pod.
    Created,
    /// The remote pod is ready.
    RemoteReady,
    /// The pod is ready.
    Ready,
    /// It is deleted, and the remote pod may still exist.
    Terminating,
    /// It is deleted, and there is no remote pod.
    RemoteDeleted,
}

impl Stage {
    const ALL: [Self; 7] = [
        Self::Bound,
        Self::Written,
        Self::Created,
        Self::RemoteReady,
        Self::Ready,
        Self::Terminating,
        Self::RemoteDeleted,
    ];

    /// Returns the step that begins with this stage.
    fn step(self) -> Option<Step> {
        match self {
            Self::Bound => Some(Step::ShadowPod),
            Self::Written => Some(Step::RemotePod),
            Self::Created => Some(Step::RemoteReady),
            Self::RemoteReady => Some(Step::Ready),
            Self::Ready => None,
            Self::Terminating => Some(Step::RemoteDeleted),
            Self::RemoteDeleted => Some(Step::Deleted),
        }
    }

    fn is_of_deletion(self) -> bool {
        self >= Self::Terminating
    }
}

/// The progress of the pod with one UID.
#[derive(Debug)]
pub(super) struct Progress {
    uid: String,
    stage: Stage,
    /// When the stage began; `None` if this was not seen.
    since: Option<Instant>,
}

impl Progress {
    /// Creates the progress of a pod that is first seen in a stage. Only the binding begins then.
    pub(super) fn new(uid: &str, stage: Stage, seen_at: Option<Instant>) -> Self {
        Self {
            uid: uid.to_owned(),
            stage,
            since: seen_at.filter(|_| stage == Stage::Bound),
        }
    }

    pub(super) fn is_of(&self, uid: &str) -> bool {
        self.uid == uid
    }

    /// Takes the stage after a change, and returns the steps that have ended by it. A change that was not seen makes the duration
    /// of the step in progress unknown, because this replica may have become the leader since.
    pub(super) fn advance(&mut self, stage: Stage, seen_at: Option<Instant>) -> Vec<Sample> {
        let Some(now) = seen_at else {
            self.stage = self.stage.max(stage);
            self.since = None;
            return Vec::new();
        };
        if stage <= self.stage {
            return Vec::new();
        }
        let (before, since) = (self.stage, self.since);
        self.stage = stage;
        self.since = Some(now);
        if stage.is_of_deletion() && !before.is_of_deletion() {
            // Without a remote pod, its end was not seen.
            self.since = seen_at.filter(|_| stage == Stage::Terminating);
            return Vec::new();
        }
        let Some(mut since) = since else {
            return Vec::new();
        };
        let passed = Stage::ALL.into_iter();
        let passed = passed.filter(|it| (before..stage).contains(it));
        let steps = passed.filter_map(Stage::step);

        steps
            .map(|step| {
                let duration = now.saturating_duration_since(since);
                // One change has ended this step and the next one.
                since = now;
                (step, duration)
            })
            .collect()
    }

    /// Takes the stage by objects that may have existed for a while.
    pub(super) fn find(&mut self, stage: Stage) {
        if stage > self.stage {
            self.stage = stage;
            self.since = None;
        }
    }

    /// Returns the step that has ended with the pod.
    pub(super) fn end(self, seen_at: Option<Instant>) -> Option<Sample> {
        let duration = seen_at?.saturating_duration_since(self.since?);

        (self.stage == Stage::RemoteDeleted).then_some((Step::Deleted, duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A pod under simulated time.
    struct Pod {
        progress: Progress,
        now: Instant,
    }

    impl Pod {
        /// Returns a pod whose binding is seen.
        fn bound() -> Self {
            let now = Instant::now();
            Self {
                progress: Progress::new("a", Stage::Bound, Some(now)),
                now,
            }
        }

        /// Returns a pod that was in a stage before this replica became the leader.
        fn existing(stage: Stage) -> Self {
            Self {
                progress: Progress::new("a", stage, None),
                now: Instant::now(),
            }
        }

        /// Returns the steps that end by a change `seconds` later.
        fn after(&mut self, seconds: u64, stage: Stage) -> Vec<(Step, u64)> {
            self.now += Duration::from_secs(seconds);
            let samples = self.progress.advance(stage, Some(self.now));
            let seconds = |(step, duration): Sample| (step, duration.as_secs());
            samples.into_iter().map(seconds).collect()
        }

        /// Returns the duration of the step that ends with the pod, `seconds` later.
        fn end_after(mut self, seconds: u64) -> Option<(Step, u64)> {
            self.now += Duration::from_secs(seconds);
            let sample = self.progress.end(Some(self.now));
            sample.map(|(step, duration)| (step, duration.as_secs()))
        }
    }

    #[test]
    fn each_step_lasts_from_the_end_of_the_one_before() {
        let mut pod = Pod::bound();

        assert_eq!(pod.after(1, Stage::Written), [(Step::ShadowPod, 1)]);
        assert_eq!(pod.after(2, Stage::Created), [(Step::RemotePod, 2)]);
        assert_eq!(pod.after(3, Stage::RemoteReady), [(Step::RemoteReady, 3)]);
        assert_eq!(pod.after(4, Stage::Ready), [(Step::Ready, 4)]);
        assert_eq!(pod.after(5, Stage::Terminating), [], "the pod has run");
        let deleted = pod.after(6, Stage::RemoteDeleted);
        assert_eq!(deleted, [(Step::RemoteDeleted, 6)]);
        assert_eq!(pod.end_after(7), Some((Step::Deleted, 7)));
    }

    #[test]
    fn a_change_that_ends_two_steps_counts_for_the_first_one() {
        let mut pod = Pod::bound();
        pod.after(1, Stage::Written);

        let ended = pod.after(2, Stage::RemoteReady);

        assert_eq!(ended, [(Step::RemotePod, 2), (Step::RemoteReady, 0)]);
        assert_eq!(pod.after(3, Stage::Ready), [(Step::Ready, 3)]);
    }

    #[test]
    fn a_step_whose_start_was_not_seen_yields_no_sample_and_the_next_one_does() {
        for stage in Stage::ALL {
            let mut pod = Pod::existing(stage);
            let next = Stage::ALL.into_iter().find(|it| *it > stage);
            if let Some(next) = next {
                assert_eq!(pod.after(9, next), [], "{stage:?}");
            }
        }
        assert_eq!(Pod::existing(Stage::RemoteDeleted).end_after(9), None);

        let mut pod = Pod::existing(Stage::Created);
        assert_eq!(pod.after(9, Stage::RemoteReady), []);
        assert_eq!(pod.after(1, Stage::Ready), [(Step::Ready, 1)]);
    }

    #[test]
    fn a_pod_that_is_first_seen_after_its_binding_has_no_start() {
        let now = Instant::now();
        let mut progress = Progress::new("a", Stage::Written, Some(now));

        assert_eq!(progress.advance(Stage::Created, Some(now)), []);
    }

    #[test]
    fn a_change_that_was_not_seen_ends_the_measurement_of_a_step() {
        let mut pod = Pod::bound();
        assert_eq!(pod.progress.advance(Stage::Bound, None), []);
        assert_eq!(pod.after(9, Stage::Written), []);

        assert_eq!(pod.progress.advance(Stage::Created, None), []);
        assert_eq!(pod.after(9, Stage::RemoteReady), []);
        assert_eq!(pod.after(1, Stage::Ready), [(Step::Ready, 1)]);
    }

    #[test]
    fn a_stage_is_passed_once() {
        let mut pod = Pod::bound();
        pod.after(1, Stage::Ready);

        assert_eq!(pod.after(1, Stage::RemoteReady), []);
        assert_eq!(pod.after(1, Stage::Bound), []);
        assert_eq!(pod.after(1, Stage::Ready), []);
    }

    #[test]
    fn a_list_reveals_the_stage_but_not_its_start() {
        let mut pod = Pod::bound();
        pod.progress.find(Stage::Bound);
        assert_eq!(pod.after(1, Stage::Written), [(Step::ShadowPod, 1)]);

        pod.progress.find(Stage::Created);
        assert_eq!(pod.after(2, Stage::RemoteReady), []);
        assert_eq!(pod.after(3, Stage::Ready), [(Step::Ready, 3)]);
    }

    #[test]
    fn a_deletion_abandons_the_step_in_progress() {
        let mut pod = Pod::bound();
        pod.after(1, Stage::Written);
        pod.after(1, Stage::Created);

        assert_eq!(pod.after(5, Stage::Terminating), []);
        let deleted = pod.after(6, Stage::RemoteDeleted);
        assert_eq!(deleted, [(Step::RemoteDeleted, 6)]);
    }

    #[test]
    fn a_pod_without_a_remote_pod_has_no_steps_of_a_deletion() {
        let mut pod = Pod::bound();
        pod.after(1, Stage::Written);

        assert_eq!(pod.after(5, Stage::RemoteDeleted), []);
        assert_eq!(pod.end_after(6), None);
    }

    #[test]
    fn a_pod_that_is_deleted_by_force_has_no_steps_of_a_deletion() {
        let mut pod = Pod::bound();
        pod.after(1, Stage::Ready);
        assert_eq!(pod.end_after(6), None);

        let mut pod = Pod::bound();
        pod.after(1, Stage::Terminating);
        assert_eq!(pod.end_after(6), None);
    }
}
