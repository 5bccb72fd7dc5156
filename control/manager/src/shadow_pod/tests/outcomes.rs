//! Quotas while outcomes of requests are unknown, and while the leader changes.

use super::Side;
use super::side::{MOMENT, USER, key, shadow_pod, spec};
use control_api::quantity::amount;
use control_api::{Quota, ShadowPod};
use control_runtime::{Cluster, Key};
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::json;
use std::time::Duration;

/// A response is lost, the ShadowPod is deleted, and another one takes its place: a late pod counts.
#[test]
fn a_creation_with_unknown_outcome_counts() {
    for seed in 0..60 {
        let mut milan = Side::new(seed);
        milan.run(MOMENT);
        milan.request("a", 1, "3");
        milan.run(Duration::from_millis(seed % 12));
        milan.simulation.partition(&Cluster::Local);
        milan.remove::<ShadowPod>("a");
        milan.request("b", 2, "3");
        milan.run_within_quota(20);
        milan.simulation.swap_credentials(&Cluster::Local);
        milan.run(Duration::from_secs(40));
        milan.simulation.heal(&Cluster::Local);
        milan.run_within_quota(200);
        milan.remove::<Pod>("a");
        milan.run(Duration::from_secs(120));

        assert_eq!(milan.pods(), ["b"], "seed {seed}");
    }
}

/// The ShadowPod is deleted while its pod is being created, and the connection breaks. The pod may exist, or not.
#[test]
fn a_creation_that_had_no_effect_frees_its_claim() {
    for seed in 0..120 {
        let mut milan = Side::new(seed);
        milan.run(MOMENT);
        milan.request("a", 1, "3");
        milan.run(Duration::from_millis(seed % 6));
        milan.remove::<ShadowPod>("a");
        milan.request("b", 2, "3");
        milan.run_within_quota(usize::try_from(seed % 5).unwrap());
        milan.simulation.swap_credentials(&Cluster::Local);
        milan.run_within_quota(100);
        milan.run(Duration::from_secs(60));
        milan.remove::<Pod>("a");
        milan.run(Duration::from_secs(60));

        assert_eq!(milan.pods(), ["b"], "seed {seed}");
    }
}

/// The claim is that of the former request, whose outcome is unknown.
#[test]
fn a_shadow_pod_that_changes_while_its_pod_is_created_is_not_charged_for_less() {
    for seed in 0..60 {
        let mut milan = Side::new(seed);
        milan.run(MOMENT);
        milan.request("a", 1, "1");
        milan.request("b", 2, "3");
        milan.run(Duration::from_millis(seed % 6));
        milan.edit::<ShadowPod>(&key("a"), |it| it["spec"]["pod"] = spec("4"));
        milan.run_within_quota(usize::try_from(seed % 5).unwrap());
        milan.simulation.swap_credentials(&Cluster::Local);
        milan.run_within_quota(300);
        milan.run(Duration::from_secs(60));

        assert!(milan.used() <= amount("4").unwrap(), "seed {seed}");
        assert!(!milan.pods().is_empty(), "seed {seed}");
    }
}

#[test]
fn a_large_pod_that_changes_while_it_is_read_is_charged_as_it_is_created() {
    let large = |cpu: &str| {
        let mut large = spec(cpu);
        large["containers"][0]["args"] = json!(["x".repeat(66_000)]);
        large
    };
    for seed in 0..48 {
        let mut milan = Side::new(seed);
        milan.run(MOMENT);
        milan.put::<ShadowPod>(shadow_pod("a", 1, &large("1")));
        milan.run(Duration::from_millis(seed % 12));
        milan.edit::<ShadowPod>(&key("a"), |it| it["spec"]["pod"] = large("500m"));
        milan.request("b", 2, "3500m");
        milan.run_within_quota(60);
        milan.run(MOMENT);

        assert!(milan.pods().contains(&"a".to_owned()), "seed {seed}");
    }
}

/// A standby may have decided before it knew of an earlier ShadowPod. Its decisions have no effect when it leads.
#[test]
fn a_new_leader_decides_from_the_objects() {
    for seed in 0..120 {
        let mut milan = Side::new(seed);
        milan
            .simulation
            .local()
            .remove::<Quota>(&Key::new("liqo-tenant-rome", USER));
        milan.run(MOMENT);
        milan.request("late", 2, "3");
        milan.put_quota("rome", USER, &json!({"cpu": "4", "pods": "100"}));
        milan.request("early", 1, "3");
        milan.run(MOMENT);
        assert_eq!(milan.pods().len(), 1);
        milan.simulation.hand_over(1);
        milan.run_within_quota(100);
        milan.run(MOMENT);

        assert_eq!(milan.pods().len(), 1, "seed {seed}");
    }
}

/// The API server may carry out a request whose response was lost until its time limit ends.
#[test]
fn the_outcome_of_a_lost_creation_is_read_after_its_time_limit() {
    let mut reads = 0;
    for seed in 0..40 {
        let mut milan = Side::new(seed);
        milan.run(MOMENT);
        milan.request("a", 1, "1");
        milan.run(Duration::from_millis(seed % 6));
        milan.simulation.swap_credentials(&Cluster::Local);
        milan.remove::<ShadowPod>("a");
        milan.run(Duration::from_secs(4));
        assert_eq!(milan.reads::<Pod>(), 0, "seed {seed}");
        milan.run(Duration::from_secs(10));
        reads += milan.reads::<Pod>();
    }

    assert!(reads > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// ShadowPods arrive in any order and change or go at any time, requests are lost, and replicas crash.
    #[test]
    fn the_pods_fit_into_the_quota_at_every_instant(
        seed in any::<u64>(),
        steps in prop::collection::vec((0_u8..7, 0_u8..6, 1_u8..9, 0_usize..8), 1..30),
    ) {
        let mut milan = Side::new(seed);
        for (action, number, size, time) in steps {
            let name = format!("p{number}");
            let has = milan.object::<ShadowPod>(&key(&name)).is_some();
            match action {
                0..3 if !has => milan.request(&name, number, &format!("{}m", 500 * u32::from(size))),
                3 if has => milan.remove::<ShadowPod>(&name),
                4 => milan.remove::<Pod>(&name),
                5 => milan.simulation.swap_credentials(&Cluster::Local),
                6 if has => milan.edit::<ShadowPod>(&key(&name), |it| {
                    it["spec"]["pod"] = spec(&format!("{}m", 500 * u32::from(size)));
                }),
                _ => {}
            }
            milan.run_within_quota(time);
        }
        milan.run_within_quota(50);
        milan.run(Duration::from_secs(300));
        prop_assert!(milan.used() <= amount("4").unwrap());
    }
}
