//! Whether a provider permits the requests of this cluster.
//!
//! A provider may withdraw the rights, for example because it drains the Tenant. Then all requests to it wait, but for one
//! SelfSubjectAccessReview at a time, which asks whether the rights are back.

use control_runtime::{Action, Cluster, Key, Outcome, Ref, Resource, Write};
use serde_json::json;
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// First and longest interval between two reviews. An API server may apply new rights some milliseconds after it has
/// stored them.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// Parts of the messages of admission policies, webhooks and quotas.
const ADMISSION: [&str; 3] = [" denied request", " denied the request", "exceeded quota"];

/// Access to a provider's API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    /// Number of reviews since the refusal; `None` if nothing was refused.
    refused: Option<u32>,
    /// When the next review is due; `None` if one is under way.
    due: Option<Instant>,
}

impl Access {
    /// Returns whether requests are refused.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Notes that the provider has refused a request. Returns whether none was refused before.
    pub(super) fn refuse(&mut self) -> bool {
        let is_new = self.refused.is_none();
        self.refused.get_or_insert(0);
        is_new
    }

    /// Takes the outcome of a review. Returns whether the access has changed.
    pub(super) fn reviewed(&mut self, outcome: &Outcome) -> bool {
        let before = self.is_refused();
        let allowed = if let Outcome::Answer(answer) = outcome {
            answer.0["status"]["allowed"].as_bool()
        } else {
            refusal(outcome).map(|_| false)
        };
        match allowed {
            Some(true) => *self = Self::default(),
            Some(false) => {
                self.refused = Some(self.refused.map_or(0, |count| count.saturating_add(1)))
            }
            // The provider did not answer.
            None => self.refused = self.refused.map(|count| count.saturating_add(1)),
        }
        self.due = None;

        before != self.is_refused()
    }

    /// Returns whether to review now, or how long to wait.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let Some(count) = self.refused else {
            return Next::Permitted;
        };
        let interval = INTERVAL
            .0
            .saturating_mul(1 << count.min(10))
            .min(INTERVAL.1);
        let due = *self.due.get_or_insert(now + interval);
        match due.checked_duration_since(now) {
            Some(rest) if !rest.is_zero() => Next::Wait(rest),
            Some(_) | None => {
                self.due = Some(now + INTERVAL.1);
                Next::Review
            }
        }
    }
}

/// Next step of an access that may be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing is refused.
    Permitted,
    /// The next review is due after this time.
    Wait(Duration),
    /// A review is due.
    Review,
}

/// Returns the request for a review: whether this cluster may replicate into the namespace.
pub(super) fn review(provider: &Cluster, namespace: &str) -> Write {
    let object = Ref::new(provider, &reviews(), &Key::cluster(""));
    let create = Action::Create(json!({
        "spec": {"resourceAttributes": {
            "group": "authentication.liqo.io",
            "resource": "resourceslices",
            "verb": "create",
            "namespace": namespace,
        }},
    }));

    Write::new(object, create)
}

/// Returns the resource of the reviews.
pub(super) fn reviews() -> Resource {
    Resource {
        group: Cow::Borrowed("authorization.k8s.io"),
        version: Cow::Borrowed("v1"),
        kind: Cow::Borrowed("SelfSubjectAccessReview"),
        plural: Cow::Borrowed("selfsubjectaccessreviews"),
    }
}

/// Returns why a provider has refused a request for lack of rights.
pub(super) fn refusal(outcome: &Outcome) -> Option<&str> {
    let Outcome::Refused(status) = outcome else {
        return None;
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let is_terminating = causes
        .into_iter()
        .any(|it| it.reason == "NamespaceTerminating");
    // Admission refuses one object, not the client.
    let is_admission = ADMISSION
        .into_iter()
        .any(|text| status.message.contains(text));
    let is_refusal = [401, 403].contains(&status.code) && !is_terminating && !is_admission;

    is_refusal.then_some(status.message.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn outcome(code: u16, message: &str) -> Outcome {
        let status = Status::failure(message, "Forbidden").with_code(code);
        Outcome::Refused(Box::new(status))
    }

    #[test]
    fn missing_rights_are_a_refusal_and_admission_is_none() {
        let rights = "resourceslices is forbidden: User \"rome\" cannot create resource";
        assert!(refusal(&outcome(403, rights)).is_some());
        assert!(refusal(&outcome(401, "Unauthorized")).is_some());
        for message in [
            "ValidatingAdmissionPolicy 'a' with binding 'a' denied request: no",
            "admission webhook \"a\" denied the request: no",
            "pods is forbidden: exceeded quota: a",
        ] {
            assert!(refusal(&outcome(403, message)).is_none(), "{message}");
        }
        assert!(refusal(&outcome(500, rights)).is_none());
        assert!(refusal(&Outcome::TimedOut).is_none());
    }

    #[test]
    fn reviews_are_repeated_at_growing_intervals_and_by_the_clock() {
        let mut access = Access::default();
        let mut now = Instant::now();
        assert_eq!(access.next(now), Next::Permitted);
        assert!(access.refuse() && !access.refuse());
        let mut waits = Vec::new();
        for _ in 0..8 {
            let Next::Wait(wait) = access.next(now) else {
                panic!("a review without delay");
            };
            waits.push(wait.as_millis());
            now += wait;
            assert_eq!(access.next(now), Next::Review);
            assert!(!access.reviewed(&Outcome::TimedOut));
        }
        assert_eq!(
            waits,
            [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]
        );
        let allowed = Outcome::Answer(control_runtime::Answer(
            json!({"status": {"allowed": true}}),
        ));
        assert!(access.reviewed(&allowed) && !access.is_refused());
    }
}
