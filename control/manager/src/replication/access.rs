//! Whether a provider permits the requests of this cluster.
//!
//! A provider may withdraw the rights, for example because it drains the Tenant. Then all requests to it wait, but for one
//! SelfSubjectAccessReview at a time, which asks whether the rights are back.

use control_runtime::{Action, Cluster, Key, Outcome, Ref, Request, Resource, Write};
use serde_json::json;
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// First and longest interval between two reviews. An API server may apply new rights some milliseconds after it has
/// stored them.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// Parts of the messages of admission policies, webhooks and quotas.
const ADMISSION: [&str; 3] = [" denied request", " denied the request", "exceeded quota"];

/// Time without refusal after which the reviews of the next one begin with the first interval again. A provider whose
/// reviews do not agree with its refusals causes no more requests than one that refuses all.
const RESET: Duration = Duration::from_secs(60);

/// Longest part of a provider's message that is taken over, in characters.
const MESSAGE_LEN_MAX: usize = 300;

/// A right at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Right {
    resource: Resource,
    verb: &'static str,
}

impl Right {
    /// Returns the right to create objects.
    pub(super) fn create(resource: Resource) -> Self {
        let verb = "create";
        Self { resource, verb }
    }

    /// Returns the right that a request needs.
    fn of(request: &Request) -> Option<Self> {
        let verb = match request {
            Request::Write(write) => write.action.verb(),
            Request::Read(_) | Request::Probe(_) => "get",
        };
        let resource = request.object()?.resource.clone();

        Some(Self { resource, verb })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Refused {
    right: Right,
    /// Message of the provider.
    message: String,
}

/// Access to a provider's API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    /// The right that is refused.
    refused: Option<Refused>,
    /// The right that the last review is about.
    reviewed: Option<Right>,
    /// Number of reviews since the first refusal.
    reviews: u32,
    /// When the requests were permitted again; `None` if they are refused, or never were.
    permitted: Option<Instant>,
    /// When the next review is due; `None` if one is under way.
    due: Option<Instant>,
}

impl Access {
    /// Returns the provider's message if requests are refused.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_ref().map(|it| it.message.as_str())
    }

    /// Takes the outcome of a request, which may be a refusal. Returns whether none was refused before.
    pub(super) fn refuse(&mut self, request: &Request, outcome: &Outcome) -> bool {
        let right = Right::of(request);
        let (Some(right), Some(message), None) = (right, refusal(outcome), &self.refused) else {
            return false;
        };
        // It is shown on terminals.
        let shown = message
            .chars()
            .map(|it| if it.is_control() { ' ' } else { it });
        let message = shown.take(MESSAGE_LEN_MAX).collect();
        self.refused = Some(Refused { right, message });

        true
    }

    /// Returns the request for a review: whether this cluster has a right in the namespace.
    pub(super) fn review(&mut self, provider: &Cluster, namespace: &str, right: Right) -> Write {
        let object = Ref::new(provider, &reviews(), &Key::cluster(""));
        let create = Action::Create(json!({
            "spec": {"resourceAttributes": {
                "group": right.resource.group,
                "resource": right.resource.plural,
                "verb": right.verb,
                "namespace": namespace,
            }},
        }));
        self.reviewed = Some(right);

        Write::new(object, create)
    }

    /// Takes the outcome of a review. Returns whether the access has changed.
    pub(super) fn take(&mut self, outcome: &Outcome) -> bool {
        let before = self.refused.is_some();
        let allowed = if let Outcome::Answer(answer) = outcome {
            answer.0["status"]["allowed"].as_bool()
        } else {
            refusal(outcome).map(|_| false)
        };
        self.reviews = self.reviews.saturating_add(u32::from(before));
        self.due = None;
        let right = self.reviewed.take();
        match (allowed, right) {
            (Some(true), _) if before => (self.refused, self.permitted) = (None, None),
            (Some(false), Some(right)) if !before => {
                let Right { resource, verb } = &right;
                let message = format!("no right to {verb} {}.{}", resource.plural, resource.group);
                self.refused = Some(Refused { right, message });
            }
            // No right was refused, or there is no answer.
            (Some(_) | None, _) => {}
        }

        before != self.refused.is_some()
    }

    /// Returns whether to review now, or how long to wait.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let Some(refused) = &self.refused else {
            self.permitted.get_or_insert(now);
            return Next::Permitted;
        };
        let permitted = self.permitted.take();
        if permitted.is_some_and(|since| now.saturating_duration_since(since) >= RESET) {
            self.reviews = 0;
        }
        let interval = INTERVAL
            .0
            .saturating_mul(1 << self.reviews.min(10))
            .min(INTERVAL.1);
        let due = *self.due.get_or_insert(now + interval);
        match due.checked_duration_since(now) {
            Some(rest) if !rest.is_zero() => Next::Wait(rest),
            Some(_) | None => {
                self.due = Some(now + INTERVAL.1);
                Next::Review(refused.right.clone())
            }
        }
    }
}

/// Next step of an access that may be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing is refused.
    Permitted,
    /// The next review is due after this time.
    Wait(Duration),
    /// A review of this right is due.
    Review(Right),
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

    fn slices() -> Resource {
        Resource::of::<control_api::ResourceSlice>()
    }

    fn request(verb: Action) -> Request {
        let object = Ref::new(&Cluster::remote("milan"), &slices(), &Key::new("a", "b"));
        Request::Write(Write::new(object, verb))
    }

    fn answer(allowed: bool) -> Outcome {
        Outcome::Answer(control_runtime::Answer(
            json!({"status": {"allowed": allowed}}),
        ))
    }

    /// Refuses the right to delete.
    fn refuse(access: &mut Access) -> bool {
        access.refuse(&request(Action::Delete), &outcome(403, "cannot delete"))
    }

    /// Returns the time until the next review.
    fn wait(access: &mut Access, now: &mut Instant) -> u128 {
        let Next::Wait(wait) = access.next(*now) else {
            panic!("a review without delay");
        };
        *now += wait;
        let Next::Review(right) = access.next(*now) else {
            panic!("no review");
        };
        assert_eq!(right.verb, "delete");
        access.review(&Cluster::remote("milan"), "a", right);
        wait.as_millis()
    }

    #[test]
    fn reviews_are_repeated_at_growing_intervals_and_by_the_clock() {
        let mut access = Access::default();
        let mut now = Instant::now();
        assert_eq!(access.next(now), Next::Permitted);
        assert!(refuse(&mut access) && !refuse(&mut access));
        assert_eq!(access.refused(), Some("cannot delete"));
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push(wait(&mut access, &mut now));
            assert!(!access.take(&Outcome::TimedOut));
        }
        assert_eq!(
            waits,
            [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]
        );
        assert!(access.take(&answer(true)) && access.refused().is_none());
    }

    /// A provider may answer that the right is given, and refuse it again.
    #[test]
    fn a_provider_that_contradicts_itself_is_asked_at_growing_intervals() {
        let mut access = Access::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(refuse(&mut access));
            waits.push(wait(&mut access, &mut now));
            assert!(access.take(&answer(true)));
            assert_eq!(access.next(now), Next::Permitted);
        }
        assert_eq!(waits[6..], [15_000, 15_000]);

        now += RESET;
        assert_eq!(access.next(now), Next::Permitted);
        assert!(refuse(&mut access));
        assert_eq!(wait(&mut access, &mut now), 250);
    }

    #[test]
    fn a_review_without_a_refused_request_names_the_right() {
        let mut access = Access::default();
        access.review(&Cluster::remote("milan"), "a", Right::create(slices()));
        assert!(access.take(&answer(false)));
        let message = "no right to create resourceslices.authentication.liqo.io";
        assert_eq!(access.refused(), Some(message));
    }
}
