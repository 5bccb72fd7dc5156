//! Host aliases of the consumer's API server.

use super::Side;
use super::side::{MOMENT, key, shadow_pod, spec};
use control_api::{Configuration, ShadowPod};
use control_runtime::Key;
use serde_json::{Value, json};
use std::time::Duration;

/// Returns a pod with the alias that virtual kubelets add, and another one.
fn aliased(cpu: &str) -> Value {
    let mut spec = spec(cpu);
    spec["hostAliases"] = json!([
        {"hostnames": ["kubernetes.default", "kubernetes.default.svc"], "ip": "10.70.0.1"},
        {"hostnames": ["printer"], "ip": "10.70.0.2"},
    ]);
    spec
}

fn addresses(milan: &mut Side, name: &str) -> Vec<String> {
    let aliases = milan.pod(name).unwrap()["spec"]["hostAliases"].clone();
    let aliases = aliases.as_array().unwrap().iter();
    let addresses = aliases.map(|alias| alias["ip"].as_str().unwrap().to_owned());
    addresses.collect()
}

#[test]
fn the_address_is_remapped_by_the_configuration_of_the_consumer() {
    let mut milan = Side::new(1);
    milan.put_configuration("rome");
    let mut large = aliased("1");
    large["containers"][0]["args"] = json!(["x".repeat(66_000)]);
    milan.put::<ShadowPod>(shadow_pod("a", 1, &aliased("1")));
    milan.put::<ShadowPod>(shadow_pod("large", 2, &large));
    milan.run(MOMENT);

    for name in ["a", "large"] {
        assert_eq!(
            addresses(&mut milan, name),
            ["10.68.0.1", "10.70.0.2"],
            "{name}"
        );
    }
    assert!(milan.replanned().is_empty());
}

#[test]
fn a_pod_waits_for_the_cidrs_of_its_consumer_and_holds_no_quota_meanwhile() {
    for enforces_resources in [true, false] {
        let mut milan = Side::with_enforcement(1, enforces_resources);
        milan.put_consumer("turin", "demo-turin");
        milan.put_configuration("turin");
        milan.put::<ShadowPod>(shadow_pod("a", 1, &aliased("3")));
        milan.request("b", 2, "1");
        milan.run(MOMENT);
        assert_eq!(milan.pods(), ["b"]);
        let event = milan.events("a").pop().unwrap();
        assert!(
            event.starts_with("FailedCreatePod: spec.pod.hostAliases") && event.contains("`rome`"),
            "{event}"
        );

        milan.put_configuration("rome");
        milan.run(MOMENT);
        assert_eq!(milan.pods(), ["a", "b"]);
        assert_eq!(addresses(&mut milan, "a")[0], "10.68.0.1");
    }
    let mut milan = Side::new(1);
    milan.put::<ShadowPod>(shadow_pod("a", 1, &aliased("4")));
    milan.request("b", 2, "4");
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["b"]);
}

/// The addresses of a pod cannot be changed.
#[test]
fn a_pod_waits_while_cidrs_are_allocated_again() {
    let mut milan = Side::new(1);
    milan.put_configuration("rome");
    let configuration = Key::new("liqo-tenant-rome", "rome");
    milan.edit::<Configuration>(&configuration, |it| it["metadata"]["generation"] = json!(2));
    milan.put::<ShadowPod>(shadow_pod("a", 1, &aliased("1")));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), [""; 0]);

    milan.edit::<Configuration>(&configuration, |it| {
        it["status"]["conditions"][0]["observedGeneration"] = json!(2);
        it["status"]["remote"]["cidr"]["external"] = json!(["10.69.0.0/16"]);
    });
    milan.run(MOMENT);
    assert_eq!(addresses(&mut milan, "a"), ["10.69.0.1", "10.70.0.2"]);
}

#[test]
fn an_alias_that_changes_while_a_large_pod_is_read_is_remapped() {
    let large = |mut spec: Value| {
        spec["containers"][0]["args"] = json!(["x".repeat(66_000)]);
        spec
    };
    let (plain, aliased) = (large(spec("1")), large(aliased("1")));
    let mut aliased_pods = 0;
    for seed in 0..96 {
        let (before, after) = match seed % 2 {
            0 => (&plain, &aliased),
            _ => (&aliased, &plain),
        };
        let mut milan = Side::new(seed);
        milan.put_configuration("rome");
        milan.run(MOMENT);
        milan.put::<ShadowPod>(shadow_pod("a", 1, before));
        milan.run(Duration::from_millis(seed / 2 % 12));
        milan.edit::<ShadowPod>(&key("a"), |it| it["spec"]["pod"] = after.clone());
        milan.run(MOMENT);

        if !milan.pod("a").unwrap()["spec"]["hostAliases"].is_null() {
            assert_eq!(
                addresses(&mut milan, "a"),
                ["10.68.0.1", "10.70.0.2"],
                "seed {seed}"
            );
            aliased_pods += 1;
        }
    }
    assert!((1..96).contains(&aliased_pods), "{aliased_pods}");
}

#[test]
fn other_pods_need_no_configuration() {
    let mut milan = Side::new(1);
    milan.put::<ShadowPod>(shadow_pod("a", 1, &spec("1")));
    milan.edit::<ShadowPod>(&key("a"), |it| {
        let aliases = json!([{"hostnames": ["printer"], "ip": "10.70.0.2"}]);
        it["spec"]["pod"]["hostAliases"] = aliases;
    });
    milan.run(MOMENT);

    assert_eq!(addresses(&mut milan, "a"), ["10.70.0.2"]);
}
