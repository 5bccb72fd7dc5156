//! The certificates of the metric agent, beside those of the webhooks.

use crate::certificates::controller::{CertificateController, Settings};
use crate::certificates::{METRIC_AGENT, WEBHOOKS, issue};
use control_runtime::simulation::Simulation;
use control_runtime::{Action, Key, Registration, Request};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde_json::{Value, json};
use std::time::Duration;

const NAMESPACE: &str = "liqo";
const MOMENT: Duration = Duration::from_secs(5);

fn key() -> Key {
    Key::new("", "v1beta1.metrics.liqo.io")
}

/// Returns the APIService as the chart creates it, at this Service.
fn api_service(service: &str) -> Value {
    json!({
        "metadata": {"name": "v1beta1.metrics.liqo.io"},
        "spec": {
            "group": "metrics.liqo.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
            "service": {"name": service, "namespace": NAMESPACE, "port": 443},
        },
    })
}

fn simulation(seed: u64) -> Simulation {
    let make = || {
        CertificateController::new(Settings {
            namespace: NAMESPACE.to_owned(),
            installation: None,
            servers: vec![&WEBHOOKS, &METRIC_AGENT],
            further: Vec::new(),
            issue,
        })
    };
    let mut simulation = Simulation::new(seed).host(make).replicas(2);
    simulation.local().put_namespace(NAMESPACE);
    simulation
}

fn secret(simulation: &mut Simulation, name: &str) -> Value {
    let key = Key::new(NAMESPACE, name);
    simulation.local().get::<Secret>(&key).unwrap().clone()
}

fn spec(simulation: &mut Simulation) -> Value {
    let object = simulation.local().get::<APIService>(&key());
    object.unwrap()["spec"].clone()
}

#[test]
fn the_authority_of_the_agent_is_in_its_api_service_and_another_one_than_that_of_the_webhooks() {
    for seed in 0..8 {
        let mut simulation = simulation(seed);
        let local = simulation.local();
        local.put::<APIService>(api_service("liqo-metric-agent"));
        simulation.pass(MOMENT);

        let agent = secret(&mut simulation, "liqo-metric-agent-certs");
        let webhooks = secret(&mut simulation, "liqo-webhook-certs");
        assert_eq!(spec(&mut simulation)["caBundle"], agent["data"]["ca"]);
        assert_ne!(agent["data"]["ca"], webhooks["data"]["ca"]);
        assert!(agent["data"]["tls.crt"].is_string());
        assert_eq!(
            agent["metadata"]["labels"],
            json!({"liqo.io/managed": "true"})
        );
        let requests = simulation.log().len();
        assert_eq!(requests, 3, "{:?}", simulation.log());
        simulation.replay();
        simulation.pass(MOMENT);
        assert_eq!(simulation.log().len(), requests);
    }
}

#[test]
fn an_api_service_of_upstream_is_verified_from_then_on() {
    let mut simulation = simulation(1);
    let mut upstream = api_service("liqo-metric-agent");
    upstream["spec"]["insecureSkipTLSVerify"] = true.into();
    simulation.local().put::<APIService>(upstream);
    simulation.pass(MOMENT);

    let spec = spec(&mut simulation);
    assert_eq!(spec["insecureSkipTLSVerify"], false);
    assert!(spec["caBundle"].is_string());
    assert_eq!(spec["service"]["name"], "liqo-metric-agent");
}

#[test]
fn an_api_service_of_another_installation_stays_as_it_is() {
    let mut simulation = simulation(2);
    simulation.local().put::<APIService>(api_service("other"));
    simulation.pass(MOMENT);

    assert_eq!(spec(&mut simulation), api_service("other")["spec"]);
    secret(&mut simulation, "liqo-metric-agent-certs");
}

#[test]
fn an_apply_to_the_api_service_has_the_declared_fields_only() {
    let mut simulation = simulation(3);
    let local = simulation.local();
    local.put::<APIService>(api_service("liqo-metric-agent"));
    simulation.pass(MOMENT);

    let registrations = crate::certificates::registrations(NAMESPACE, &[&METRIC_AGENT]);
    let mut applies = 0;
    for sent in simulation.log() {
        if let Request::Write(write) = &sent.request
            && let Action::Apply(fields) = &write.action
        {
            let of = |it: &&Registration| it.resource == write.object.resource;
            let registration = registrations.iter().find(of).unwrap();
            assert_eq!(registration.undeclared(fields), None);
            applies += 1;
        }
    }
    assert_eq!(applies, 1);
}
