//! The Quota decision, without a controller.

use crate::shadow_pod::demand::Demand;
use crate::shadow_pod::ledger::{Group, Ledger, Rank, State};
use crate::shadow_pod::terms::{Excess, Terms};
use control_api::QuotaSpec;
use control_api::quantity::{Amount, amount};
use control_runtime::Key;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, from_value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

fn terms(quota: &Value) -> Terms {
    let mut whole = json!({"user": "u", "resources": {"cpu": "4", "memory": "4Gi", "pods": "10"}});
    let fields = quota.as_object().unwrap().clone();
    whole.as_object_mut().unwrap().extend(fields);
    Terms::of(&from_value::<QuotaSpec>(whole).unwrap())
}

fn demand(resources: &Value) -> Demand {
    let spec = json!({"containers": [{"name": "c", "resources": resources}]});
    Demand::of(&from_value::<PodSpec>(spec).unwrap()).unwrap()
}

fn check(quota: &Value, resources: &Value) -> Result<(), Excess> {
    terms(quota).check(&Default::default(), &demand(resources), true)
}

#[test]
fn soft_enforcement_needs_requests_and_hard_enforcement_equal_limits() {
    let missing = |field: &str| {
        let field = format!("spec.pod.containers[c].resources.{field}");
        Err(Excess::NoRequest { field })
    };
    let unequal = |field: &str| {
        let field = format!("spec.pod.containers[c].resources.{field}");
        Err(Excess::UnequalLimit { field })
    };
    let none = json!({});
    let cpu = json!({"requests": {"cpu": "1"}});
    let requests = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
    let higher =
        json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}});
    let equal = json!({"requests": {"cpu": "1000m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    let limits = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    for (resources, soft, hard) in [
        (&none, missing("cpu"), missing("cpu")),
        (&cpu, missing("memory"), missing("memory")),
        (&requests, Ok(()), unequal("cpu")),
        (&higher, Ok(()), unequal("memory")),
        (&equal, Ok(()), Ok(())),
        (&limits, Ok(()), Ok(())),
    ] {
        assert_eq!(
            check(&json!({"limitsEnforcement": "None"}), resources),
            Ok(())
        );
        assert_eq!(
            check(&json!({"limitsEnforcement": "Soft"}), resources),
            soft,
            "{resources}"
        );
        assert_eq!(
            check(&json!({"limitsEnforcement": "Hard"}), resources),
            hard,
            "{resources}"
        );
    }
}

#[test]
fn a_missing_resource_is_refused_unless_none_of_it_is_requested() {
    let gpus = |count| json!({"requests": {"nvidia.com/gpu": count}});
    assert_eq!(check(&json!({}), &gpus("0")), Ok(()));
    let refused = check(&json!({}), &gpus("1")).unwrap_err();
    assert!(matches!(refused, Excess::NotGranted { .. }), "{refused}");
}

/// Upstream's provider does not count pods, and grants no such amount unless the consumer has requested it.
#[test]
fn without_an_amount_of_pods_their_number_is_not_limited() {
    let terms = |pods: Option<&str>| {
        let mut resources = json!({"cpu": "1"});
        resources["pods"] = pods.into();
        resources
            .as_object_mut()
            .unwrap()
            .retain(|_, it| !it.is_null());
        terms(&json!({"resources": resources}))
    };
    let used = [("pods".to_owned(), amount("100000").unwrap())].into();
    let cpu = demand(&json!({"requests": {"cpu": "1"}}));

    assert_eq!(terms(None).check(&used, &cpu, true), Ok(()));
    let refused = terms(Some("100000")).check(&used, &cpu, true).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("pods, requested 1, used 100000"),
        "{refused}"
    );
}

#[test]
fn a_cordon_refuses_new_pods_only() {
    let terms = terms(&json!({"cordoned": true}));
    let cpu = demand(&json!({"requests": {"cpu": "1"}}));

    assert_eq!(
        terms.check(&Default::default(), &cpu, true),
        Err(Excess::Cordoned)
    );
    assert_eq!(terms.check(&Default::default(), &cpu, false), Ok(()));
    let large = demand(&json!({"requests": {"cpu": "5"}}));
    let refused = terms.check(&Default::default(), &large, false);
    assert!(
        matches!(refused, Err(Excess::Exceeded { .. })),
        "{refused:?}"
    );
}

#[test]
fn an_amount_of_a_quota_that_is_no_quantity_counts_as_none() {
    let quota = json!({"resources": {"cpu": "lots", "pods": "1"}});
    let refused = check(&quota, &json!({"requests": {"cpu": "1m"}})).unwrap_err();
    assert!(refused.to_string().contains("limited 0"), "{refused}");
}

fn group() -> Group {
    Group {
        tenant: "t".to_owned(),
        creator: "u".to_owned(),
    }
}

fn key(number: usize) -> Key {
    Key::new("n", number.to_string())
}

fn cpus(millis: u32) -> Arc<Demand> {
    Arc::new(demand(&json!({"requests": {"cpu": format!("{millis}m")}})))
}

fn wait(ledger: &mut Ledger, number: usize, (second, uid): (i64, u8), millis: u32) {
    let rank = Rank {
        is_new: true,
        created: Timestamp::from_second(second).ok(),
        uid: uid.to_string(),
    };
    ledger.waits(&key(number), group(), rank, cpus(millis));
}

fn used(ledger: &Ledger) -> Amount {
    ledger
        .used(&group())
        .get("cpu")
        .copied()
        .unwrap_or_default()
}

/// ShadowPods: seconds of their creation, UIDs and requests of CPU, in 0.001.
fn arrivals() -> impl Strategy<Value = Vec<((i64, u8), u32)>> {
    prop::collection::vec(((0..3_i64, any::<u8>()), 1..3000_u32), 1..20)
}

proptest! {
    /// Nothing but the objects decides: not the order in which a leader learns of them, and not when it decides.
    #[test]
    fn leaders_decide_alike_from_the_same_objects(
        arrivals in arrivals(), order in any::<u64>(), pods in 0_usize..5,
    ) {
        let of_order = |order: u64| {
            let mut ledger = Ledger::default();
            let mut numbers: Vec<_> = (0..arrivals.len()).collect();
            // Fisher-Yates with a linear congruential generator.
            let mut random = order;
            for last in (1..numbers.len()).rev() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = usize::try_from(random >> 33).unwrap() % (last + 1);
                numbers.swap(last, at);
            }
            for number in numbers {
                let (rank, millis) = arrivals[number];
                if number < pods {
                    ledger.exists(&key(number), group(), cpus(millis));
                } else {
                    // UIDs are unique.
                    wait(&mut ledger, number, (rank.0, rank.1), millis);
                }
            }
            let claimed = ledger.decide(&group(), Some(&terms(&json!({}))));
            claimed.into_iter().collect::<BTreeSet<_>>()
        };
        let mut uids = BTreeSet::new();
        prop_assume!(arrivals.iter().all(|(rank, _)| uids.insert(*rank)));

        prop_assert_eq!(of_order(0), of_order(order));
    }

    /// The classes of ShadowPods are an optimization only.
    #[test]
    fn each_shadow_pod_is_decided_in_its_order(
        arrivals in prop::collection::vec(((0..3_i64, any::<u8>()), 1..5_u32), 1..30),
        batch in 1_usize..30,
        freed in 0..4000_u32,
    ) {
        let mut uids = BTreeSet::new();
        prop_assume!(arrivals.iter().all(|(rank, _)| uids.insert(*rank)));
        let terms = terms(&json!({"resources": {"cpu": "4", "pods": "100"}}));
        let mut ledger = Ledger::default();
        let pod = Key::new("n", "pod");
        ledger.exists(&pod, group(), cpus(freed));
        let mut claimed = BTreeSet::new();
        for (number, (rank, size)) in arrivals.iter().enumerate() {
            wait(&mut ledger, number, *rank, size * 500);
            if number % batch == batch - 1 {
                claimed.extend(ledger.decide(&group(), Some(&terms)));
            }
        }
        claimed.extend(ledger.decide(&group(), Some(&terms)));

        let mut expected = BTreeSet::new();
        let mut used = freed;
        let mut decide = |numbers: &[usize], used: &mut u32| {
            let mut waiting: Vec<_> = numbers.iter().filter(|it| !expected.contains(&key(**it))).collect();
            waiting.sort_by_key(|number| (arrivals[**number].0.0, arrivals[**number].0.1.to_string()));
            for number in waiting {
                let millis = arrivals[*number].1 * 500;
                if *used + millis <= 4000 {
                    *used += millis;
                    expected.insert(key(*number));
                }
            }
        };
        let numbers: Vec<_> = (0..arrivals.len()).collect();
        for end in (batch..=arrivals.len()).step_by(batch) {
            decide(&numbers[..end], &mut used);
        }
        decide(&numbers, &mut used);
        ledger.remove(&pod);
        claimed.extend(ledger.decide(&group(), Some(&terms)));
        used -= freed;
        decide(&numbers, &mut used);

        prop_assert_eq!(claimed, expected);
    }

    /// Pods that exist stay counted, whatever happens to Quota and ShadowPods, and the sum of pods and claims fits whenever
    /// a claim is added.
    #[test]
    fn claims_fit_and_existing_pods_stay(
        steps in prop::collection::vec((0_u8..7, 0_usize..8, 1..3000_u32, 1..8_u8), 1..60),
    ) {
        let mut ledger = Ledger::default();
        let mut cpu = 4;
        let mut requested = [0; 8];
        for (action, number, millis, cpu_of_quota) in steps {
            let key = key(number);
            let state = ledger.state(&key);
            match action {
                0 | 1 if state != Some(State::Existing) => {
                    requested[number] = millis;
                    wait(&mut ledger, number, (1, 0), millis);
                }
                2 if state == Some(State::Claimed) => {
                    let before = used(&ledger);
                    let freed = ledger.exists(&key, group(), cpus(requested[number]));
                    prop_assert!(freed.is_empty() && used(&ledger) == before);
                }
                3 => {
                    ledger.remove(&key);
                }
                4 => {
                    ledger.park(&key);
                }
                5 => ledger.retry(&key),
                6 => {
                    cpu = cpu_of_quota;
                    ledger.reconsider(&group());
                }
                _ => {}
            }
            if state == Some(State::Existing) && action != 3 {
                prop_assert_eq!(ledger.state(&key), state, "an existing pod is never revoked");
            }
            let before = used(&ledger);
            let quota = json!({"resources": {"cpu": cpu.to_string(), "pods": "100"}});
            let claimed = ledger.decide(&group(), Some(&terms(&quota)));
            let limit = amount(&cpu.to_string()).unwrap();
            prop_assert!(used(&ledger) <= limit.max(before), "{}", used(&ledger));
            prop_assert!(claimed.is_empty() || used(&ledger) <= limit);
            for number in 0..8 {
                // Only what does not fit waits.
                if ledger.state(&self::key(number)) == Some(State::Waiting) {
                    prop_assert!(ledger.excess(&self::key(number), Some(&terms(&quota))).is_some());
                }
            }
        }
        (0..8).for_each(|number| { ledger.remove(&key(number)); });
        prop_assert_eq!(used(&ledger), Amount::default(), "nothing is left over");
    }
}

#[test]
fn existing_pods_and_those_that_existed_come_before_older_shadow_pods() {
    let mut ledger = Ledger::default();
    let terms = terms(&json!({}));
    wait(&mut ledger, 1, (1, 1), 1000);
    let again = Rank {
        is_new: false,
        created: Timestamp::from_second(2).ok(),
        uid: "2".to_owned(),
    };
    ledger.waits(&key(2), group(), again, cpus(1000));
    ledger.exists(&key(3), group(), cpus(3000));

    assert_eq!(ledger.decide(&group(), Some(&terms)), [key(2)]);
    let refused = ledger.excess(&key(1), Some(&terms)).unwrap();
    assert!(
        refused.to_string().contains("cpu, requested 1, used 4"),
        "{refused}"
    );
}

#[test]
fn a_shadow_pod_that_was_replaced_waits_at_its_new_position() {
    let mut ledger = Ledger::default();
    let terms = terms(&json!({}));
    ledger.exists(&key(3), group(), cpus(4000));
    wait(&mut ledger, 1, (1, 1), 4000);
    wait(&mut ledger, 2, (2, 2), 4000);
    assert_eq!(ledger.decide(&group(), Some(&terms)), []);
    wait(&mut ledger, 1, (3, 3), 4000);
    ledger.remove(&key(3));

    assert_eq!(ledger.decide(&group(), Some(&terms)), [key(2)]);
}

#[test]
fn a_refused_pod_frees_its_claim_for_others_until_the_next_attempt() {
    let mut ledger = Ledger::default();
    let terms = terms(&json!({}));
    wait(&mut ledger, 1, (1, 1), 4000);
    wait(&mut ledger, 2, (2, 2), 4000);
    assert_eq!(ledger.decide(&group(), Some(&terms)), [key(1)]);

    assert_eq!(ledger.park(&key(1)), [group()]);
    assert_eq!(ledger.decide(&group(), Some(&terms)), [key(2)]);
    ledger.retry(&key(1));
    assert_eq!(ledger.decide(&group(), Some(&terms)), []);
    ledger.remove(&key(2));
    assert_eq!(ledger.decide(&group(), Some(&terms)), [key(1)]);
}
