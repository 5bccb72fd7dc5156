use super::*;
use crate::entry::Entry;
use crate::registration::Scope;
use control_client::object::{Cluster, Key, Ref};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::core::Status;
use serde_json::json;
use std::sync::Arc;

/// Returns the plans that a test sets, in turn.
#[derive(Default)]
struct Scripted {
    plans: Vec<Plan<String>>,
    done: Vec<&'static str>,
    /// Whether an outcome has the item planned again.
    continues: bool,
}

impl Controller for Scripted {
    type Item = String;
    const NAME: &'static str = "scripted";
    const FIELD_MANAGER: &'static str = "scripted";

    fn resources(&self) -> Vec<Registration> {
        Vec::new()
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<String> {
        vec![change.object.key.name.clone()]
    }

    fn plan(&mut self, _: &String, _: &Cache, _: &mut Env<'_>) -> Plan<String> {
        if self.plans.is_empty() {
            return Plan::default();
        }
        self.plans.remove(0)
    }

    fn done(&mut self, item: &String, request: &Request, _: &Outcome, _: &Cache) -> Vec<String> {
        self.done.push(request.verb());
        Vec::from_iter(self.continues.then(|| item.clone()))
    }
}

struct Fixture {
    worker: TypedWorker<Scripted>,
    cache: Cache,
    now: Instant,
}

impl Fixture {
    fn new(plans: Vec<Plan<String>>) -> Self {
        let controller = Scripted {
            plans,
            ..Scripted::default()
        };
        Self {
            worker: TypedWorker::new(controller, Injector::new(Arc::default())),
            cache: Cache::default(),
            now: Instant::now(),
        }
    }

    fn touch(&mut self, name: &str) {
        let object = Ref::of::<Secret>(&Cluster::Local, &Key::new("a", name));
        let change = Change {
            object: &object,
            old: None,
            new: None,
            seen_at: None,
        };
        self.worker.observe(&change, &self.cache, self.now);
    }

    /// Has the worker observe a version of an object of the item `x`.
    fn change(&mut self, entry: &Entry) {
        let object = Ref::of::<Secret>(&Cluster::Local, &entry.key);
        let change = Change {
            object: &object,
            old: None,
            new: Some(entry),
            seen_at: None,
        };
        self.worker.observe(&change, &self.cache, self.now);
    }

    fn step(&mut self) -> Option<Effects> {
        let mut env = Env {
            now: Timestamp::UNIX_EPOCH,
            at: self.now,
            random: &mut || [0; 32],
        };
        self.worker.step(&self.cache, &mut env)
    }

    fn complete(&mut self, ready: &Ready, outcome: &Outcome) -> Effects {
        self.worker
            .complete(ready.id, outcome, &self.cache, self.now)
    }
}

fn write<K: kube::Resource<DynamicType = ()>>(name: &str) -> Write {
    let object = Ref::of::<K>(&Cluster::Local, &Key::new("a", name));
    Write::new(object, Action::Create(json!({})))
}

fn plan(writes: Vec<Write>) -> Plan<String> {
    Plan {
        writes,
        ..Plan::default()
    }
}

fn names(effects: &Effects) -> Vec<&str> {
    let requests = effects.requests.iter();
    requests
        .map(|it| it.request.object().unwrap().key.name.as_str())
        .collect()
}

#[test]
fn writes_of_one_resource_are_ordered_and_others_are_concurrent() {
    let last = Write {
        is_last: true,
        ..write::<ConfigMap>("last")
    };
    let writes = vec![
        write::<Secret>("first"),
        write::<Secret>("second"),
        write::<ConfigMap>("beside"),
        last,
    ];
    let mut fixture = Fixture::new(vec![plan(writes)]);
    fixture.touch("x");

    let begun = fixture.step().unwrap();
    assert_eq!(names(&begun), ["first", "beside"]);
    let after_beside = fixture.complete(&begun.requests[1], &Outcome::Gone);
    assert!(names(&after_beside).is_empty());
    let after_first = fixture.complete(&begun.requests[0], &Outcome::Gone);
    assert_eq!(names(&after_first), ["second"]);
    let after_second = fixture.complete(&after_first.requests[0], &Outcome::Gone);
    assert_eq!(names(&after_second), ["last"]);
    let end = fixture.complete(&after_second.requests[0], &Outcome::Gone);
    assert_eq!(end.ended.len(), 1);
    assert!(end.ended[0].1);
    assert_eq!(fixture.worker.controller.done, ["create"; 4]);
}

#[test]
fn an_item_in_flight_is_planned_again_once_after_changes() {
    let mut fixture = Fixture::new(vec![plan(vec![write::<Secret>("x")])]);
    fixture.touch("x");
    let begun = fixture.step().unwrap();

    fixture.touch("x");
    fixture.touch("x");
    assert!(fixture.step().is_none());
    fixture.complete(&begun.requests[0], &Outcome::Gone);

    assert!(fixture.step().is_some());
    assert!(fixture.step().is_none());
}

#[test]
fn a_failed_write_does_not_stop_the_others_and_the_item_is_retried_with_backoff() {
    let mut fixture = Fixture::new(vec![plan(vec![
        write::<Secret>("refused"),
        write::<Secret>("after"),
    ])]);
    fixture.touch("x");
    let begun = fixture.step().unwrap();
    let refused = Outcome::Refused(Box::new(Status::failure("no", "Forbidden")));

    let after = fixture.complete(&begun.requests[0], &refused);
    assert_eq!(names(&after), ["after"]);
    let end = fixture.complete(&after.requests[0], &Outcome::Gone);

    assert!(!end.ended[0].1);
    assert!(fixture.step().is_none());
    let at = fixture.worker.next_at(fixture.now).unwrap();
    assert!(at > fixture.now);
    fixture.now = at;
    assert!(fixture.step().is_some());
    assert_eq!(fixture.worker.next_at(fixture.now), None);
}

#[test]
fn one_item_in_flight_does_not_delay_another() {
    let mut fixture = Fixture::new(vec![
        plan(vec![write::<Secret>("slow")]),
        plan(vec![write::<Secret>("fast")]),
    ]);
    fixture.touch("x");
    fixture.touch("y");

    assert_eq!(names(&fixture.step().unwrap()), ["slow"]);
    assert_eq!(names(&fixture.step().unwrap()), ["fast"]);
}

#[test]
fn a_missing_object_is_the_answer_to_a_read() {
    let object = Ref::of::<Secret>(&Cluster::Local, &Key::new("a", "x"));
    let reads = Plan {
        reads: vec![object],
        ..Plan::default()
    };
    let mut fixture = Fixture::new(vec![reads]);
    fixture.touch("x");
    let begun = fixture.step().unwrap();

    let end = fixture.complete(&begun.requests[0], &Outcome::Gone);

    assert!(end.ended[0].1);
    assert_eq!(fixture.worker.controller.done, ["get"]);
}

#[test]
fn a_requeued_item_is_planned_when_it_is_due() {
    let minute = Duration::from_secs(60);
    let later = Plan {
        requeue: vec![(minute, "x".to_owned())],
        ..Plan::default()
    };
    let mut fixture = Fixture::new(vec![later]);
    fixture.touch("x");
    fixture.step().unwrap();

    assert_eq!(
        fixture.worker.next_at(fixture.now),
        Some(fixture.now + minute)
    );
    fixture.now += minute;
    assert!(fixture.step().is_some());
}

#[test]
fn an_outcome_of_an_unknown_request_is_ignored() {
    let mut fixture = Fixture::new(Vec::new());
    let id = RequestId {
        plan: 7,
        request: 0,
    };

    let effects = fixture
        .worker
        .complete(id, &Outcome::Gone, &fixture.cache, fixture.now);

    assert!(effects.ended.is_empty());
}

#[test]
fn reads_without_end_are_slowed_down_and_others_are_not() {
    let read = || Plan {
        reads: vec![write::<Secret>("x").object],
        ..Plan::default()
    };
    let plans = (0..2 * REREADS_MAX).map(|_| read()).collect();
    let mut fixture = Fixture::new(plans);
    fixture.worker.controller.continues = true;
    fixture.touch("x");

    for attempt in 0..=REREADS_MAX {
        assert_eq!(fixture.worker.next_at(fixture.now), Some(fixture.now));
        let begun = fixture.step().unwrap();
        let end = fixture.complete(&begun.requests[0], &Outcome::Gone);
        assert_eq!(end.ended[0].1, attempt < REREADS_MAX);
    }
    let later = fixture.worker.next_at(fixture.now).unwrap();
    assert!(later > fixture.now);

    // A change is planned at once, and a plan that writes starts a new sequence.
    fixture.touch("x");
    fixture
        .worker
        .controller
        .plans
        .insert(0, plan(vec![write::<Secret>("x")]));
    let begun = fixture.step().unwrap();
    fixture.complete(&begun.requests[0], &Outcome::Gone);
    assert!(fixture.worker.rereads.is_empty());
    let begun = fixture.step().unwrap();
    let end = fixture.complete(&begun.requests[0], &Outcome::Gone);
    assert!(end.ended[0].1);
}

fn secret(name: &str, version: u64) -> Entry {
    let secret = json!({"metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": version.to_string()}});
    let registration = Registration::whole::<Secret>(Scope::All);
    registration.decode(&secret.to_string()).unwrap()
}

fn refused() -> Outcome {
    Outcome::Refused(Box::new(Status::failure("port 4711", "Forbidden")))
}

/// For instance the status of a pod, with the message of a refusal that differs each time.
#[test]
fn a_write_of_a_failed_plan_does_not_shorten_its_backoff() {
    // The watch reports the change before or after the response.
    for is_watch_first in [true, false] {
        let writes = || plan(vec![write::<Secret>("x"), write::<ConfigMap>("refused")]);
        let mut fixture = Fixture::new(vec![writes(), writes(), writes()]);
        fixture.touch("x");
        let mut backoffs = Vec::new();
        for version in 1..4 {
            let begun = fixture.step().unwrap();
            if is_watch_first {
                fixture.change(&secret("x", version));
                fixture.complete(&begun.requests[1], &refused());
            } else {
                fixture.complete(&begun.requests[1], &refused());
                fixture.change(&secret("x", version));
            }
            let stored = Outcome::Stored(secret("x", version));
            fixture.complete(&begun.requests[0], &stored);

            assert!(fixture.step().is_none());
            let at = fixture.worker.next_at(fixture.now).unwrap();
            backoffs.push(at - fixture.now);
            fixture.now = at;
        }
        assert!(
            backoffs.is_sorted() && backoffs[2] > backoffs[0] * 2,
            "{backoffs:?}"
        );
    }
}

/// A controller may join changes that follow each other, and send one write a moment later.
#[test]
fn a_plan_that_only_puts_its_item_off_does_not_end_the_backoff() {
    let put_off = Duration::from_secs(1);
    let mut plans = Vec::new();
    for _ in 0..12 {
        plans.push(plan(vec![write::<Secret>("x")]));
        plans.push(Plan {
            requeue: vec![(put_off, "x".to_owned())],
            ..Plan::default()
        });
    }
    let mut fixture = Fixture::new(plans);
    fixture.worker.jitter = || 0.5;
    fixture.touch("x");

    let mut backoffs = Vec::new();
    for _ in 0..12 {
        let effects = fixture.step().unwrap();
        fixture.complete(&effects.requests[0], &refused());
        let at = fixture.worker.next_at(fixture.now).unwrap();
        backoffs.push(at - fixture.now);
        fixture.now = at;
        assert!(fixture.step().unwrap().requests.is_empty());
        fixture.now += put_off;
    }

    assert_eq!(backoffs[1], backoffs[0] * 2);
    assert_eq!(backoffs[11], Duration::from_secs(60));
    let effects = fixture.step();
    assert!(effects.is_some(), "the last plan is empty, and succeeds");
    fixture.worker.controller.plans = vec![plan(vec![write::<Secret>("x")])];
    fixture.touch("x");
    let effects = fixture.step().unwrap();
    fixture.complete(&effects.requests[0], &refused());
    let at = fixture.worker.next_at(fixture.now).unwrap();
    assert_eq!(at - fixture.now, backoffs[0]);
}

#[test]
fn a_change_by_others_has_a_failed_item_planned_at_once() {
    let writes = vec![write::<Secret>("x"), write::<ConfigMap>("refused")];
    let mut fixture = Fixture::new(vec![plan(writes)]);
    fixture.touch("x");
    let begun = fixture.step().unwrap();
    fixture.change(&secret("x", 1));
    fixture.change(&secret("x", 2));
    fixture.complete(&begun.requests[0], &Outcome::Stored(secret("x", 2)));
    fixture.complete(&begun.requests[1], &refused());

    assert!(fixture.step().is_some());
}

#[test]
fn a_write_of_a_plan_that_has_succeeded_has_the_item_planned_again() {
    let mut fixture = Fixture::new(vec![plan(vec![write::<Secret>("x")])]);
    fixture.touch("x");
    let begun = fixture.step().unwrap();
    fixture.change(&secret("x", 1));
    fixture.complete(&begun.requests[0], &Outcome::Stored(secret("x", 1)));

    assert!(fixture.step().is_some());
}

#[test]
fn an_item_in_flight_remembers_a_limited_number_of_changes() {
    let writes = vec![write::<Secret>("x"), write::<ConfigMap>("refused")];
    let mut fixture = Fixture::new(vec![plan(writes)]);
    fixture.touch("x");
    let begun = fixture.step().unwrap();
    for version in 0..1000 {
        fixture.change(&secret("x", version));
    }
    assert_eq!(fixture.worker.flights["x"].changes.len(), CHANGES_MAX);
    begun.requests.iter().for_each(|it| {
        fixture.complete(it, &refused());
    });

    assert!(fixture.step().is_some());
}
