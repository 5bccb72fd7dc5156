//! TenantPolicies: what all ResourceSlices of a consumer get together.

use super::ed25519;
use super::side::{MOMENT, Side};
use super::slices::{condition, provider, put, put_condition, slice, slice_key, status};
use control_api::{ResourceSlice, Tenant, TenantPolicy};
use control_runtime::Key;
use proptest::prelude::*;
use serde_json::{Value, json};

fn put_policy(milan: &mut Side, name: &str, resources: &Value) {
    milan.put::<TenantPolicy>(json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "TenantPolicy",
        "metadata": {"name": name, "namespace": "liqo"},
        "spec": {"resources": resources},
    }));
    milan.run(2 * MOMENT);
}

/// Requests an amount of CPU, and returns whether it is granted.
fn request(milan: &mut Side, name: &str, cpu: &str) -> bool {
    put(milan, &slice(name, &ed25519(1), &json!({"cpu": cpu})));
    is_granted(milan, name)
}

fn is_granted(milan: &mut Side, name: &str) -> bool {
    let status = status(milan, name);
    assert_eq!(condition(&status, "Authentication").0, "Accepted", "{name}");
    let is_accepted = condition(&status, "Resources").0 == "Accepted";
    assert_eq!(is_accepted, !status["resources"].is_null(), "{status}");
    is_accepted
}

/// Changes the requested CPU of a ResourceSlice.
fn change(milan: &mut Side, name: &str, cpu: &str) {
    let mut slice = milan.object::<ResourceSlice>(&slice_key(name)).unwrap();
    slice["spec"]["resources"]["cpu"] = json!(cpu);
    milan.put::<ResourceSlice>(slice);
    milan.run(2 * MOMENT);
}

fn remove(milan: &mut Side, name: &str) {
    milan.remove::<ResourceSlice>(&slice_key(name));
    milan.run(2 * MOMENT);
}

#[test]
fn older_slices_come_first_and_the_sum_does_not_exceed_the_bound() {
    let (mut milan, _) = provider();
    put_policy(&mut milan, "rome", &json!({"cpu": 10}));
    assert!(request(&mut milan, "c", "6"));
    assert!(!request(&mut milan, "b", "5000m"));
    assert!(request(&mut milan, "a", "4"), "what fits is granted");

    let denied = status(&mut milan, "b")["conditions"][1].clone();
    assert_eq!(denied["reason"], "ResourceSliceResourcesDenied");
    let message = denied["message"].as_str().unwrap();
    let expected = "spec.resources.cpu is 5000m, which exceeds what the provider's TenantPolicy rome permits: 4 is left of 10";
    assert!(message.starts_with(expected), "{message}");
    assert!(milan.reasons().contains(&"ResourceSliceResourcesDenied"));
    assert!(milan.redundant().is_empty(), "{:?}", milan.redundant());

    // The older one takes precedence when it requests less, and when others leave.
    change(&mut milan, "b", "4");
    assert!(is_granted(&mut milan, "b") && !is_granted(&mut milan, "a"));
    remove(&mut milan, "c");
    assert!(is_granted(&mut milan, "b") && is_granted(&mut milan, "a"));
    milan.hand_over();
    milan.run(2 * MOMENT);
    assert!(is_granted(&mut milan, "b") && is_granted(&mut milan, "a"));
}

#[test]
fn defaults_and_amounts_of_other_resources_count() {
    let (mut milan, _) = provider();
    put_policy(&mut milan, "rome", &json!({"memory": "12Gi"}));
    assert!(
        request(&mut milan, "first", "1000"),
        "of CPU, there is no bound"
    );
    assert!(!request(&mut milan, "second", "1"), "the default is 8Gi");
    let message = status(&mut milan, "second")["conditions"][1]["message"].clone();
    assert!(
        message.to_string().contains("4294967296 is left of 12Gi"),
        "{message}"
    );
}

#[test]
fn the_policy_of_a_consumer_replaces_the_default_one_and_applies_to_present_slices() {
    let (mut milan, _) = provider();
    assert!(request(&mut milan, "old", "6") && request(&mut milan, "young", "6"));
    put_policy(&mut milan, "default", &json!({"cpu": "6"}));
    assert!(is_granted(&mut milan, "old") && !is_granted(&mut milan, "young"));
    put_policy(&mut milan, "turin", &json!({"cpu": "0"}));
    assert!(
        is_granted(&mut milan, "old"),
        "the policy of another consumer"
    );

    put_policy(&mut milan, "rome", &json!({"cpu": "12"}));
    assert!(is_granted(&mut milan, "old") && is_granted(&mut milan, "young"));
    put_policy(&mut milan, "rome", &json!({"cpu": "5"}));
    assert!(!is_granted(&mut milan, "old") && !is_granted(&mut milan, "young"));
    for name in ["rome", "default"] {
        milan.remove::<TenantPolicy>(&Key::new("liqo", name));
        milan.run(2 * MOMENT);
    }
    assert!(is_granted(&mut milan, "old") && is_granted(&mut milan, "young"));
}

#[test]
fn a_policy_outside_of_liqos_namespace_and_the_tenants_annotations_have_no_effect() {
    let (mut milan, _) = provider();
    put_policy(&mut milan, "default", &json!({"cpu": "4"}));
    milan.put::<TenantPolicy>(json!({
        "metadata": {"name": "rome", "namespace": "liqo-tenant-rome"},
        "spec": {"resources": {"cpu": "100"}},
    }));
    let mut tenant = milan.only::<Tenant>();
    let policy =
        json!({"liqo.io/tenant-policy": "open", "authentication.liqo.io/resources": "cpu=100"});
    tenant["metadata"]["annotations"] = policy.clone();
    tenant["metadata"]["labels"] = policy;
    tenant["spec"]["resources"] = json!({"cpu": "100"});
    milan.put::<Tenant>(tenant);
    milan.run(2 * MOMENT);

    assert!(!request(&mut milan, "milan", "8"));
}

#[test]
fn grants_of_other_classes_count_and_a_cordoned_tenant_keeps_its_own() {
    let (mut milan, spec) = provider();
    put_policy(&mut milan, "rome", &json!({"cpu": "10"}));
    let mut gold = slice("gold", &ed25519(1), &json!({"cpu": "100"}));
    gold["spec"]["class"] = json!("gold");
    put(&mut milan, &gold);
    assert!(
        request(&mut milan, "milan", "8"),
        "no controller has granted the other class"
    );
    let mut decided = milan.object::<ResourceSlice>(&slice_key("gold")).unwrap();
    decided["status"]["resources"] = json!({"cpu": "4"});
    let accepted = json!({"type": "Resources", "status": "Accepted", "message": "by hand"});
    let conditions = decided["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|it| it["type"] != "Resources");
    conditions.push(accepted);
    milan.put::<ResourceSlice>(decided.clone());
    milan.run(2 * MOMENT);
    assert!(!is_granted(&mut milan, "milan"));

    change(&mut milan, "milan", "6");
    assert!(is_granted(&mut milan, "milan"));
    put_condition(&mut milan, &spec, "Cordoned");
    put_policy(&mut milan, "rome", &json!({"cpu": "1"}));
    assert!(
        is_granted(&mut milan, "milan"),
        "the verdict stays while the Tenant is cordoned"
    );
    put_condition(&mut milan, &spec, "Active");
    milan.run(MOMENT);
    assert!(!is_granted(&mut milan, "milan"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// After any changes, and whichever replica leads, the oldest ResourceSlices that fit are granted.
    #[test]
    fn the_grants_are_those_of_the_oldest_slices_that_fit(
        steps in prop::collection::vec((0_usize..4, 0_u32..8, any::<bool>()), 1..12), bound in 1_u32..16,
    ) {
        let (mut milan, _) = provider();
        put_policy(&mut milan, "default", &json!({"cpu": bound}));
        let mut present: Vec<(usize, u32)> = Vec::new();
        for (index, cpu, is_removal) in steps {
            let name = format!("slice-{index}");
            let position = present.iter().position(|(other, _)| *other == index);
            match position {
                Some(position) if is_removal => {
                    remove(&mut milan, &name);
                    present.remove(position);
                }
                Some(position) => {
                    change(&mut milan, &name, &cpu.to_string());
                    present[position].1 = cpu;
                }
                None => {
                    request(&mut milan, &name, &cpu.to_string());
                    present.push((index, cpu));
                }
            }
            if is_removal {
                milan.hand_over();
            }
            let mut left = bound;
            for (index, cpu) in &present {
                let fits = *cpu <= left;
                prop_assert_eq!(is_granted(&mut milan, &format!("slice-{index}")), fits, "{:?}", present);
                left -= if fits { *cpu } else { 0 };
            }
        }
    }
}
