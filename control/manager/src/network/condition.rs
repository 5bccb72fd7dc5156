//! Conditions that keep the time of their last transition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// A condition without its transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) type_: &'static str,
    pub(crate) is_true: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Verdict {
    /// Replaces the condition of the same type in `conditions`, or adds it.
    pub(crate) fn set(
        self,
        conditions: &mut Vec<Condition>,
        generation: Option<i64>,
        now: Timestamp,
    ) {
        let status = if self.is_true { "True" } else { "False" };
        let old = conditions.iter().position(|old| old.type_ == self.type_);
        let kept = old
            .and_then(|index| conditions.get(index))
            .filter(|old| old.status == status)
            .map(|old| old.last_transition_time.clone());
        let condition = Condition {
            last_transition_time: kept.unwrap_or(Time(now)),
            message: self.message,
            observed_generation: generation,
            reason: self.reason.to_owned(),
            status: status.to_owned(),
            type_: self.type_.to_owned(),
        };
        // A list has one condition of each type.
        conditions.retain(|old| old.type_ != self.type_);
        let index = old.unwrap_or(conditions.len()).min(conditions.len());
        conditions.insert(index, condition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_is_kept_until_the_status_flips() {
        let mut conditions = Vec::new();
        let at = |second| Timestamp::from_second(second).unwrap();
        let verdict = |is_true, reason| Verdict {
            type_: "Ready",
            is_true,
            reason,
            message: String::new(),
        };

        verdict(false, "A").set(&mut conditions, Some(1), at(1));
        verdict(false, "B").set(&mut conditions, Some(2), at(2));
        let waiting = conditions.clone();
        verdict(true, "C").set(&mut conditions, Some(2), at(3));

        assert_eq!(waiting[0].last_transition_time, Time(at(1)));
        assert_eq!(waiting[0].reason, "B");
        assert_eq!(waiting[0].observed_generation, Some(2));
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].last_transition_time, Time(at(3)));
    }
}
