use super::*;
use crate::cache::{Cache, CacheLimits, Change};
use crate::controller::{Controller, Env, Outcome};
use crate::injector::Injector;
use crate::registration::{Registration, Scope};
use crate::worker::{Effects, TypedWorker, Worker as _};
use control_client::object::{Cluster, Key};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

const FINALIZER: Finalizer = Finalizer {
    name: "liqo.io/test",
    wait_max: Duration::from_secs(300),
};

/// Protects ConfigMaps. Their clean-up has ended when a test says so.
struct Protector {
    is_clean: bool,
}

impl Controller for Protector {
    type Item = Key;
    const NAME: &'static str = "protector";
    const FIELD_MANAGER: &'static str = "protector";

    fn resources(&self) -> Vec<Registration> {
        vec![Registration::whole::<ConfigMap>(Scope::All)]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<Key> {
        vec![change.object.key.clone()]
    }

    fn plan(&mut self, key: &Key, cache: &Cache, env: &mut Env<'_>) -> Plan<Key> {
        let mut plan = Plan::default();
        let object = Ref::of::<ConfigMap>(&Cluster::Local, key);
        if let Some(entry) = cache.entry(&object) {
            let object = (&object, entry);
            FINALIZER.apply(&mut plan, object, key.clone(), self.is_clean, env.now);
        }
        plan
    }
}

/// A worker under virtual time: `elapsed` since the object was requested to be deleted.
struct Fixture {
    worker: TypedWorker<Protector>,
    cache: Cache,
    start: Instant,
    elapsed: Duration,
    version: u64,
}

impl Fixture {
    fn new(is_clean: bool) -> Self {
        let worker = TypedWorker::new(Protector { is_clean }, Injector::new(Arc::default()));
        let mut cache = Cache::default();
        cache.add_cluster(Cluster::Local, CacheLimits::LOCAL);
        for registration in worker.registrations() {
            cache.register(registration).unwrap();
            cache.add_watch(registration.watch_id().unwrap());
        }
        Self {
            worker,
            cache,
            start: Instant::now(),
            elapsed: Duration::ZERO,
            version: 0,
        }
    }

    /// Stores the object, which is being deleted since the start of the time if `is_deleted`.
    fn store(&mut self, finalizers: &[&str], is_deleted: bool) {
        self.version += 1;
        let deleted_at = is_deleted.then_some("1970-01-01T00:00:00Z");
        let object = json!({"metadata": {"name": "a", "namespace": "b", "uid": "u", "finalizers": finalizers,
            "resourceVersion": self.version.to_string(), "deletionTimestamp": deleted_at}});
        let registration = &self.worker.registrations()[0];
        let entry = registration.decode(&object.to_string()).unwrap();
        let id = registration.watch_id().unwrap();
        let change = self.cache.put_watched(&id, entry, false).unwrap().unwrap();
        (self.worker).observe(&change.as_change(), &self.cache, self.start + self.elapsed);
    }

    fn step(&mut self) -> Option<Effects> {
        let now = Timestamp::UNIX_EPOCH + self.elapsed;
        let mut env = Env {
            now,
            at: self.start + self.elapsed,
            random: &mut || [0; 32],
        };
        (self.worker).step(&self.cache, &mut env)
    }

    /// Advances the time to when the worker plans next.
    fn advance(&mut self) {
        let now = self.start + self.elapsed;
        let at = self.worker.next_at(now).expect("an item is due later");
        self.elapsed = at - self.start;
    }

    /// Answers all requests by success.
    fn complete(&mut self, effects: &Effects) {
        for ready in &effects.requests {
            let now = self.start + self.elapsed;
            (self.worker).complete(ready.id, &Outcome::Gone, &self.cache, now);
        }
    }
}

fn finalizers(effects: &Effects) -> Vec<(Vec<String>, Option<String>)> {
    let requests = effects.requests.iter();
    let writes = requests.filter_map(|ready| match &ready.request {
        crate::Request::Write(write) => Some(write),
        crate::Request::Read(_) | crate::Request::Probe(_) => None,
    });
    let writes = writes.map(|write| {
        let Action::Finalize(finalizers) = &write.action else {
            panic!("another action: {:?}", write.action);
        };
        (finalizers.clone(), write.resource_version.clone())
    });
    writes.collect()
}

#[test]
fn a_finalizer_is_added_beside_others_and_with_the_version_that_was_seen() {
    let mut fixture = Fixture::new(false);
    fixture.store(&["other"], false);

    let added = fixture.step().unwrap();

    let expected = vec!["other".to_owned(), "liqo.io/test".to_owned()];
    assert_eq!(finalizers(&added), [(expected, Some("1".to_owned()))]);
    fixture.complete(&added);
    fixture.store(&["other", "liqo.io/test"], false);
    assert!(fixture.step().unwrap().requests.is_empty());
}

#[test]
fn an_object_that_is_being_deleted_gets_no_finalizer() {
    let mut fixture = Fixture::new(false);
    fixture.store(&["other"], true);

    assert!(fixture.step().unwrap().requests.is_empty());
    assert_eq!(fixture.worker.next_at(fixture.start), None);
}

#[test]
fn the_finalizer_is_removed_after_the_clean_up() {
    let mut fixture = Fixture::new(true);
    fixture.store(&["liqo.io/test", "other"], true);

    let removed = fixture.step().unwrap();

    let expected = vec!["other".to_owned()];
    assert_eq!(finalizers(&removed), [(expected, Some("1".to_owned()))]);
    assert!(removed.events.is_empty());
}

#[test]
fn the_finalizer_is_removed_at_the_limit_and_an_event_reports_it() {
    let mut fixture = Fixture::new(false);
    fixture.store(&["liqo.io/test"], true);
    fixture.elapsed = Duration::from_secs(100);
    // A replica that starts later waits for the rest of the time only.
    let waiting = fixture.step().unwrap();
    assert!(waiting.requests.is_empty() && waiting.events.is_empty());
    fixture.advance();
    assert_eq!(fixture.elapsed, FINALIZER.wait_max);

    let expired = fixture.step().unwrap();

    assert_eq!(finalizers(&expired), [(vec![], Some("1".to_owned()))]);
    assert_eq!(expired.events[0].reason, CLEANUP_TIMED_OUT);
    assert!(expired.events[0].is_warning);
    assert!(expired.events[0].note.contains("liqo.io/test"));
}

#[test]
fn a_clock_behind_that_of_the_server_does_not_shorten_the_limit() {
    let entry = Entry {
        key: Key::new("b", "a"),
        uid: "u".into(),
        version: Some(1),
        size: 0,
        labels: None,
        updaters: Vec::new(),
        managers: None,
        finalization: Some(Box::new(crate::entry::Finalization {
            finalizers: vec![FINALIZER.name.into()],
            deleted_at: Some(Timestamp::UNIX_EPOCH + Duration::from_secs(60)),
        })),
        kept: std::sync::Arc::new(()),
        full: None,
    };

    let protection = FINALIZER.protection(&entry, Timestamp::UNIX_EPOCH);

    assert_eq!(protection, Protection::CleaningUp(FINALIZER.wait_max));
}
