//! The life of the certificates, with two replicas.

use crate::certificates::controller::{CertificateController, Settings};
use crate::certificates::decision::{Data, bundle, certified_key, decide};
use crate::certificates::issue::{
    AUTHORITY_VALIDITY, Issue, IssueError, Order, Pair, SERVING_VALIDITY, issue,
};
use crate::certificates::{WEBHOOKS, registrations};
use control_runtime::simulation::Simulation;
use control_runtime::{Action, Cluster, Key, Request, Resource};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

const NAMESPACE: &str = "liqo";
const DAY: Duration = Duration::from_secs(86_400);
const MOMENT: Duration = Duration::from_secs(5);

fn secret_key() -> Key {
    Key::new(NAMESPACE, WEBHOOKS.secret)
}

fn configuration_key() -> Key {
    Key::new("", "liqo-webhook")
}

/// Returns a configuration as the chart creates it, besides a webhook that an administrator has added.
fn configuration(webhooks: &[&str]) -> Value {
    let webhook = |name: &str, service: &str| {
        json!({"name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": service, "namespace": NAMESPACE}}})
    };
    let webhooks = webhooks.iter().map(|name| webhook(name, "liqo-webhook"));
    json!({"metadata": {"name": "liqo-webhook"}, "webhooks": Vec::from_iter(webhooks)})
}

fn controller(issue: Issue) -> CertificateController {
    CertificateController::new(Settings {
        namespace: NAMESPACE.to_owned(),
        installation: None,
        servers: vec![&WEBHOOKS],
        further: Vec::new(),
        issue,
    })
}

struct Replicas(Simulation);

impl Replicas {
    fn new(seed: u64) -> Self {
        let make = || controller(issue);
        let mut simulation = Simulation::new(seed).host(make).replicas(2);
        let local = simulation.local();
        local.put_namespace(NAMESPACE);
        let (pod, nsoff) = ("pod.mutate.liqo.io", "shadowpod.validate.liqo.io");
        local.put::<MutatingWebhookConfiguration>(configuration(&[pod, "daemonset"]));
        local.put::<ValidatingWebhookConfiguration>(configuration(&[nsoff]));
        Self(simulation)
    }

    /// Runs for a time. Then the configurations have their Services again: the simulation replaces the list of
    /// webhooks, while an API server merges its entries by name.
    fn run(&mut self, time: Duration) {
        self.0.pass(time);
        self.merge::<MutatingWebhookConfiguration>();
        self.merge::<ValidatingWebhookConfiguration>();
        self.0.pass(MOMENT);
    }

    fn merge<K: kube::Resource<DynamicType = ()>>(&mut self) {
        let Some(mut object) = self.0.local().get::<K>(&configuration_key()).cloned() else {
            return;
        };
        for webhook in object["webhooks"].as_array_mut().unwrap() {
            let service = json!({"name": "liqo-webhook", "namespace": NAMESPACE});
            webhook["clientConfig"]["service"] = service;
        }
        self.0.local().put::<K>(object);
    }

    fn data(&mut self) -> Data {
        let secret = self.0.local().get::<Secret>(&secret_key()).unwrap();
        serde_json::from_value(secret["data"].clone()).unwrap()
    }

    /// Returns `caBundle` of all webhooks.
    fn bundles(&mut self) -> Vec<Value> {
        let local = self.0.local();
        let key = configuration_key();
        let mutating = local.get::<MutatingWebhookConfiguration>(&key);
        let validating = local.get::<ValidatingWebhookConfiguration>(&key);
        let webhooks = mutating.into_iter().chain(validating);
        let webhooks = webhooks.flat_map(|it| it["webhooks"].as_array().unwrap());
        webhooks
            .map(|it| it["clientConfig"]["caBundle"].clone())
            .collect()
    }

    /// Checks that API servers trust the certificate that the replicas serve at `now`.
    #[track_caller]
    fn assert_trusted(&mut self, now: Timestamp) {
        let data = self.data();
        assert!(is_settled(&data, now), "the certificate is invalid");
        let ca = json!(data["ca"]);
        assert_eq!(self.bundles(), [ca.clone(), ca.clone(), ca]);
    }
}

/// Returns whether nothing is to be issued.
fn is_settled(data: &Data, now: Timestamp) -> bool {
    let decision = decide(data, true, &WEBHOOKS.names(NAMESPACE), now, no_issue).ok();
    decision.is_some_and(|it| it.data.is_empty())
}

fn no_issue(_: &Order<'_>, _: Timestamp) -> Result<Pair, IssueError> {
    Err(IssueError::Clock)
}

fn after(time: Duration) -> Timestamp {
    Timestamp::UNIX_EPOCH.checked_add(time).unwrap()
}

fn count(text: &ByteString) -> usize {
    String::from_utf8_lossy(&text.0)
        .matches("BEGIN CERTIFICATE")
        .count()
}

#[test]
fn the_leader_creates_the_secret_and_publishes_the_authority_once() {
    for seed in 0..8 {
        let mut replicas = Replicas::new(seed);

        replicas.run(MOMENT);

        replicas.assert_trusted(after(MOMENT));
        let secret = replicas
            .0
            .local()
            .get::<Secret>(&secret_key())
            .unwrap()
            .clone();
        assert_eq!(secret["type"], "Opaque");
        let metadata = &secret["metadata"];
        let service = &metadata["annotations"]["liqo.io/webhook-service-name"];
        assert_eq!(service, "liqo-webhook");
        assert_eq!(metadata["labels"]["liqo.io/webhook"], "true");
        let requests = replicas.0.log().len();
        assert_eq!(requests, 3, "{:?}", replicas.0.log());
        replicas.0.replay();
        replicas.0.pass(MOMENT);
        assert_eq!(replicas.0.log().len(), requests);
    }
}

#[test]
fn a_serving_certificate_is_renewed_after_two_thirds_of_its_life_by_the_same_authority() {
    let mut replicas = Replicas::new(1);
    replicas.run(MOMENT);
    let first = replicas.data();

    let due = SERVING_VALIDITY * 2 / 3;
    replicas.run(due - DAY);
    assert_eq!(replicas.data(), first);
    replicas.run(2 * DAY);

    let second = replicas.data();
    assert_ne!(second["tls.crt"], first["tls.crt"]);
    assert_ne!(second["tls.key"], first["tls.key"]);
    assert_eq!(second["ca"], first["ca"]);
    replicas.assert_trusted(after(due + DAY));
}

#[test]
fn a_renewed_authority_is_published_with_the_old_one_and_the_certificate_follows() {
    let mut replicas = Replicas::new(2);
    replicas.run(MOMENT);
    let first = replicas.data();

    replicas.run(AUTHORITY_VALIDITY * 2 / 3 + DAY);
    replicas.run(MOMENT);

    let data = replicas.data();
    assert_eq!(count(&data["ca"]), 2);
    assert!(
        data["ca"].0.ends_with(&first["ca"].0),
        "the new authority is first"
    );
    replicas.assert_trusted(after(AUTHORITY_VALIDITY * 2 / 3 + DAY));
}

#[test]
fn crashes_and_changes_of_the_leader_end_with_one_trusted_certificate() {
    for seed in 0..10 {
        let mut replicas = Replicas::new(seed);
        for leader in [1, 0, 1] {
            replicas.0.pass(Duration::from_millis(3));
            replicas.0.crash(leader);
            replicas.0.pass(Duration::from_millis(2));
            replicas.0.hand_over(leader);
            replicas.0.pass(Duration::from_millis(2));
            replicas.0.partition(&Cluster::Local);
            replicas.0.pass(Duration::from_millis(5));
            replicas.0.heal(&Cluster::Local);
        }
        let long = Duration::from_secs(600);
        replicas.run(long);

        replicas.assert_trusted(after(long));
        let log = replicas.0.log().iter();
        let created = log.filter(|it| it.is_success && it.request.verb() == "create");
        assert_eq!(created.count(), 1);
    }
}

#[test]
fn an_apply_has_the_declared_fields_only() {
    let mut replicas = Replicas::new(3);
    replicas.run(MOMENT);

    let registrations = registrations(NAMESPACE, &[&WEBHOOKS]);
    let mut applies = 0;
    for sent in replicas.0.log() {
        let Request::Write(write) = &sent.request else {
            continue;
        };
        if let Action::Apply(fields) = &write.action {
            let of = |it: &&control_runtime::Registration| it.resource == write.object.resource;
            let registration = registrations.iter().find(of).unwrap();
            assert_eq!(registration.undeclared(fields), None);
            for webhook in fields["webhooks"].as_array().unwrap() {
                let names: Vec<_> = webhook.as_object().unwrap().keys().collect();
                assert_eq!(names, ["clientConfig", "name"]);
                let client = webhook["clientConfig"].as_object().unwrap();
                assert_eq!(client.keys().collect::<Vec<_>>(), ["caBundle"]);
            }
            applies += 1;
        }
    }
    assert_eq!(applies, 2);
}

#[test]
fn webhooks_of_other_services_keep_their_authority() {
    let mut replicas = Replicas::new(4);
    let mut foreign = configuration(&["a.example.com"]);
    foreign["webhooks"][0]["clientConfig"]["service"]["name"] = "other".into();
    replicas
        .0
        .local()
        .put::<ValidatingWebhookConfiguration>(foreign.clone());
    replicas.0.pass(MOMENT);

    let resource = Resource::of::<ValidatingWebhookConfiguration>();
    let log = replicas.0.log().iter();
    let mut objects = log.filter_map(|it| it.request.object());
    assert!(objects.all(|it| it.resource != resource));
}

#[test]
fn a_replaced_configuration_gets_the_authority_again() {
    let mut replicas = Replicas::new(5);
    replicas.run(MOMENT);

    let webhooks = ["pod.mutate.liqo.io", "daemonset"];
    let fresh = configuration(&webhooks);
    replicas
        .0
        .local()
        .put::<MutatingWebhookConfiguration>(fresh);
    replicas.run(MOMENT);

    replicas.assert_trusted(after(4 * MOMENT));
}

#[test]
fn content_that_is_no_certificate_is_replaced() {
    let absurd = [
        ("ca", ByteString(b"absurd".to_vec())),
        ("ca.key", ByteString(Vec::new())),
        (
            "tls.crt",
            ByteString(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec()),
        ),
        ("tls.key", ByteString(vec![0xff; 300_000])),
        ("all", ByteString(Vec::new())),
    ];
    for (key, content) in absurd {
        let mut replicas = Replicas::new(6);
        replicas.run(MOMENT);
        let mut secret = replicas
            .0
            .local()
            .get::<Secret>(&secret_key())
            .unwrap()
            .clone();
        match key {
            "all" => secret["data"] = json!({}),
            key => secret["data"][key] = json!(content),
        }
        replicas.0.local().put::<Secret>(secret);
        replicas.run(MOMENT);
        replicas.run(MOMENT);

        replicas.assert_trusted(after(6 * MOMENT));
    }
}

#[test]
fn a_new_authority_issues_nothing_before_it_is_published() {
    let (names, now) = (WEBHOOKS.names(NAMESPACE), Timestamp::now());
    let first = decide(&Data::new(), false, &names, now, issue)
        .unwrap()
        .data;
    let mut data = first.clone();
    // As in an upstream installation, whose Secret has no key of the authority.
    data.remove("ca.key");

    // The configurations have the former authority.
    let unpublished = decide(&data, true, &names, now, issue).unwrap();
    assert_eq!(Vec::from_iter(unpublished.data.keys()), ["ca", "ca.key"]);
    assert!(unpublished.data["ca"].0.ends_with(&first["ca"].0));
    data.extend(unpublished.data);
    let waiting = decide(&data, false, &names, now, issue).unwrap();
    assert!(waiting.data.is_empty());
    let published = decide(&data, true, &names, now, issue).unwrap();
    assert_eq!(
        Vec::from_iter(published.data.keys()),
        ["tls.crt", "tls.key"]
    );
    data.extend(published.data);

    assert!(is_settled(&data, now));
}

#[test]
fn a_certificate_for_another_name_and_an_expired_one_are_replaced_at_once() {
    let (ours, now) = (WEBHOOKS.names(NAMESPACE), Timestamp::now());
    let data = decide(&Data::new(), true, &WEBHOOKS.names("other"), now, issue)
        .unwrap()
        .data;
    let renamed = decide(&data, false, &ours, now, issue).unwrap();
    assert_eq!(Vec::from_iter(renamed.data.keys()), ["tls.crt", "tls.key"]);

    let data = decide(&Data::new(), true, &ours, now, issue).unwrap().data;
    let later = now.checked_add(SERVING_VALIDITY + DAY).unwrap();
    let expired = decide(&data, false, &ours, later, issue).unwrap();
    assert_eq!(Vec::from_iter(expired.data.keys()), ["tls.crt", "tls.key"]);
}

#[test]
fn expired_authorities_leave_and_there_are_at_most_three() {
    let names = WEBHOOKS.names(NAMESPACE);
    let start = Timestamp::now();
    let mut data = Data::new();
    for period in 0..6 {
        let now = start.checked_add(period * DAY).unwrap();
        data.remove("ca.key");
        data.extend(decide(&data, false, &names, now, issue).unwrap().data);
        assert_eq!(count(&data["ca"]), usize::min(period as usize + 1, 3));
    }

    let end = start.checked_add(AUTHORITY_VALIDITY + 6 * DAY).unwrap();
    assert!(bundle(&data, end).is_none());
    data.extend(decide(&data, false, &names, end, issue).unwrap().data);
    assert_eq!(count(&data["ca"]), 1);
    assert!(certified_key(&data).is_some());
}

#[test]
fn a_failure_to_issue_is_reported_and_repeated() {
    let make = || controller(no_issue);
    let mut simulation = Simulation::new(1).host(make);
    simulation.local().put_namespace(NAMESPACE);
    simulation.pass(MOMENT);

    let events = simulation.events(0);
    assert!(events.len() > 1);
    assert!(
        events
            .iter()
            .all(|it| it.is_warning && it.reason == "CertificateNotIssued")
    );
    assert!(
        events[0].note.contains(WEBHOOKS.secret),
        "{}",
        events[0].note
    );
}
