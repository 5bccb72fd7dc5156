//! Quotas.

use super::side::{MOMENT, Side, key, settings};
use super::{Edit, golden};
use control_api::offloading::quota::LimitsEnforcement;
use control_api::{Quota, ResourceSlice};
use control_runtime::Key;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

const USER: &str = "milan-a8a4c692b93b";

fn slice_key() -> Key {
    key("rome", "milan")
}

fn quota_key() -> Key {
    key("rome", USER)
}

/// Returns `milan`, which has accepted a slice of `rome`.
fn milan() -> Side {
    let mut milan = Side::new(7);
    milan.put_peer("rome");
    milan.put::<ResourceSlice>(golden::replicated());
    milan.run(MOMENT);
    assert_eq!(milan.count::<Quota>(), 1);
    assert_eq!(milan.events(), [""; 0]);

    milan
}

fn deny(slice: &mut Value, condition: usize) {
    slice["status"]["conditions"][condition]["status"] = json!("Denied");
}

#[test]
fn a_quota_follows_the_status_of_its_slice() {
    let mut milan = milan();
    milan.edit_slice(&slice_key(), |slice| {
        slice["status"]["resources"] = json!({"cpu": 30, "nvidia.com/gpu": "1"});
    });
    milan.run(MOMENT);

    let resources = &milan.spec::<Quota>(&quota_key())["resources"];
    assert_eq!(*resources, json!({"cpu": "30", "nvidia.com/gpu": "1"}));
    assert_eq!(milan.requests::<Quota>(), 2, "one creation and one change");
    assert!(
        milan.is_guarded::<Quota>(),
        "another leader may decide meanwhile"
    );
    assert!(milan.replanned().is_empty());
}

#[test]
fn each_of_two_annotations_cordons_a_quota() {
    for annotation in ["liqo.io/cordon", "liqo.io/cordon-tenant"] {
        let mut milan = milan();
        for (value, is_cordoned) in [
            ("true", true),
            ("false", false),
            ("", true),
            ("False", false),
            ("no", true),
            ("0", false),
        ] {
            milan.edit_slice(&slice_key(), |slice| {
                slice["metadata"]["annotations"] = json!({annotation: value});
            });
            milan.run(MOMENT);
            let cordoned = &milan.spec::<Quota>(&quota_key())["cordoned"];
            let expected = if is_cordoned {
                json!(true)
            } else {
                Value::Null
            };
            assert_eq!(*cordoned, expected, "{annotation}={value}");
        }
        assert!(milan.replanned().is_empty());
    }
}

#[test]
fn the_default_limits_enforcement_is_a_setting() {
    let mut settings = settings();
    settings.limits_enforcement = LimitsEnforcement::Hard;
    let mut milan = Side::with_settings(7, settings);
    milan.put_peer("rome");
    milan.put::<ResourceSlice>(golden::replicated());
    milan.run(MOMENT);

    assert_eq!(
        milan.spec::<Quota>(&quota_key())["limitsEnforcement"],
        "Hard"
    );
}

#[test]
fn a_quota_exists_while_identity_and_resources_are_accepted() {
    for condition in [0, 1] {
        let mut milan = milan();
        milan.edit_slice(&slice_key(), |slice| deny(slice, condition));
        milan.run(MOMENT);
        assert_eq!(milan.count::<Quota>(), 0, "condition {condition}");

        milan.put::<ResourceSlice>(golden::replicated());
        milan.run(MOMENT);
        assert_eq!(milan.count::<Quota>(), 1);
    }
}

#[test]
fn a_class_on_which_nothing_decides_has_no_quota() {
    let mut milan = Side::new(7);
    milan.put_peer("rome");
    let mut slice = golden::replicated();
    slice["spec"]["class"] = json!("unknown");
    slice["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .truncate(1);
    milan.put::<ResourceSlice>(slice);
    milan.run(MOMENT);
    assert_eq!(milan.count::<Quota>(), 0);

    let mut slice = golden::replicated();
    slice["spec"]["class"] = json!("unknown");
    milan.put::<ResourceSlice>(slice);
    milan.run(MOMENT);
    assert_eq!(
        milan.count::<Quota>(),
        1,
        "another controller has accepted the class"
    );
}

#[test]
fn a_slice_of_this_cluster_has_no_quota() {
    let mut rome = Side::new(7);
    rome.put_peer("milan");
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);

    assert_eq!(rome.count::<Quota>(), 0);
}

#[test]
fn a_quota_goes_with_its_slice() {
    let mut milan = milan();
    milan.remove::<ResourceSlice>(&slice_key());
    milan.run(MOMENT);

    assert_eq!(milan.count::<Quota>(), 0);
}

/// A finalizer of another controller delays the deletion of the slice.
#[test]
fn a_quota_goes_when_the_deletion_of_its_slice_is_requested() {
    let mut milan = milan();
    milan.edit_slice(&slice_key(), |slice| {
        slice["metadata"]["finalizers"] = json!(["example.com/x"]);
    });
    milan.remove::<ResourceSlice>(&slice_key());
    milan.run(MOMENT);

    assert_eq!(milan.count::<ResourceSlice>(), 1);
    assert_eq!(milan.count::<Quota>(), 0);
}

#[test]
fn a_quota_goes_if_its_slice_went_while_no_manager_ran() {
    let mut milan = milan();
    milan.simulation.crash(0);
    milan.simulation.crash(1);
    milan.remove::<ResourceSlice>(&slice_key());
    milan.run(MOMENT);

    assert_eq!(milan.count::<Quota>(), 0);
}

#[test]
fn a_slice_that_is_created_again_gets_the_quota_of_the_earlier_one() {
    let mut milan = milan();
    milan.simulation.crash(0);
    milan.simulation.crash(1);
    milan.remove::<ResourceSlice>(&slice_key());
    milan.put::<ResourceSlice>(golden::replicated());
    milan.run(MOMENT);

    let slice = milan.object::<ResourceSlice>(&slice_key()).unwrap();
    let quota = milan.object::<Quota>(&quota_key()).unwrap();
    let owners = quota["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0]["uid"], slice["metadata"]["uid"]);
}

#[test]
fn changes_and_deletions_of_a_quota_by_users_are_reverted() {
    let mut milan = milan();
    milan.edit::<Quota>(&quota_key(), |quota| {
        quota["spec"]["resources"]["cpu"] = json!("1000");
        quota["spec"]["resources"]["nvidia.com/gpu"] = json!("1000");
        quota["spec"]["cordoned"] = json!(true);
        quota["metadata"]["labels"] = json!({"a": "b"});
    });
    milan.run(MOMENT);
    let quota = milan.object::<Quota>(&quota_key()).unwrap();
    assert_eq!(quota["spec"], golden::quota()["spec"]);
    assert_eq!(
        quota["metadata"]["labels"],
        json!({"a": "b", "liqo.io/managed": "true"})
    );

    milan.remove::<Quota>(&quota_key());
    milan.run(MOMENT);
    assert_eq!(milan.spec::<Quota>(&quota_key()), golden::quota()["spec"]);
}

#[test]
fn a_quota_that_is_not_of_the_slice_is_not_overwritten() {
    let owner = |api_version: &str, kind: &str, is_controller: bool| {
        json!([{
            "apiVersion": api_version,
            "kind": kind,
            "name": "milan",
            "uid": "1",
            "controller": is_controller,
        }])
    };
    let slices = "authentication.liqo.io/v1beta1";
    for owners in [
        json!([]),
        owner("v1", "ConfigMap", true),
        owner("example.com/v1", "ResourceSlice", true),
        owner(slices, "Tenant", true),
        owner(slices, "ResourceSlice", false),
    ] {
        let mut milan = Side::new(7);
        milan.put_peer("rome");
        let mut quota = golden::quota();
        quota["metadata"]["ownerReferences"] = owners.clone();
        quota["spec"]["resources"] = json!({"cpu": "1"});
        milan.put::<Quota>(quota);
        milan.put::<ResourceSlice>(golden::replicated());
        milan.run(MOMENT);

        let resources = &milan.spec::<Quota>(&quota_key())["resources"];
        assert_eq!(*resources, json!({"cpu": "1"}), "{owners}");
        let events = milan.events();
        assert_eq!(events.len(), 1, "{events:?}");
        let expected = "ResourceSlice milan QuotaExists: Quota liqo-tenant-rome/milan-";
        assert!(events[0].starts_with(expected), "{events:?}");

        milan.remove::<Quota>(&quota_key());
        milan.run(MOMENT);
        assert_eq!(milan.spec::<Quota>(&quota_key()), golden::quota()["spec"]);
    }
}

#[test]
fn a_leftover_of_another_slice_makes_room() {
    let mut milan = Side::new(7);
    milan.put_peer("rome");
    let mut quota = golden::quota();
    quota["metadata"]["ownerReferences"][0]["name"] = json!("other");
    quota["spec"]["resources"] = json!({"cpu": "1"});
    milan.put::<Quota>(quota);
    milan.put::<ResourceSlice>(golden::replicated());
    milan.run(MOMENT);

    assert_eq!(milan.spec::<Quota>(&quota_key()), golden::quota()["spec"]);
}

/// The user of a Quota is that of the tenant namespace's cluster, whatever a slice names.
#[test]
fn a_slice_that_names_another_consumer_has_no_quota() {
    let edits: [Edit; 4] = [
        ("spec.consumerClusterID", |slice| {
            slice["spec"]["consumerClusterID"] = json!("naples")
        }),
        ("liqo.io/originID", |slice| {
            slice["metadata"]["labels"]["liqo.io/originID"] = json!("naples");
        }),
        ("liqo.io/remote-cluster-id", |slice| {
            slice["metadata"]["labels"]["liqo.io/remote-cluster-id"] = json!("naples");
        }),
        ("namespace other", |slice| {
            slice["metadata"]["namespace"] = json!("other")
        }),
    ];
    for (named, edit) in edits {
        let mut milan = Side::new(7);
        milan.put_peer("rome");
        milan.put_peer("naples");
        milan.put::<Namespace>(json!({"metadata": {"name": "other"}}));
        let mut slice = golden::replicated();
        edit(&mut slice);
        milan.put::<ResourceSlice>(slice);
        milan.run(MOMENT);

        assert_eq!(milan.count::<Quota>(), 0, "{named}");
        let events = milan.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(
            events[0].starts_with("ResourceSlice milan NotTenantNamespace: "),
            "{events:?}"
        );
        assert!(events[0].contains(named), "{events:?}");
    }
}

#[test]
fn a_quota_goes_when_its_namespace_becomes_that_of_another_consumer() {
    let mut milan = milan();
    milan.edit::<Namespace>(&Key::cluster("liqo-tenant-rome"), |namespace| {
        namespace["metadata"]["labels"]["liqo.io/remote-cluster-id"] = json!("naples");
    });
    milan.run(MOMENT);

    assert_eq!(milan.count::<Quota>(), 0);
}

#[test]
fn consumers_with_slices_of_one_name_have_a_quota_each() {
    let mut milan = milan();
    milan.put_peer("naples");
    let mut slice = golden::replicated();
    slice["metadata"]["namespace"] = json!("liqo-tenant-naples");
    slice["metadata"]["labels"]["liqo.io/originID"] = json!("naples");
    slice["metadata"]["labels"]["liqo.io/remote-cluster-id"] = json!("naples");
    slice["spec"]["consumerClusterID"] = json!("naples");
    milan.put::<ResourceSlice>(slice);
    milan.run(MOMENT);
    assert_eq!(milan.count::<Quota>(), 2);

    milan.remove::<ResourceSlice>(&key("naples", "milan"));
    milan.run(MOMENT);
    assert_eq!(milan.spec::<Quota>(&quota_key()), golden::quota()["spec"]);
    assert_eq!(milan.count::<Quota>(), 1);
}

#[test]
fn a_name_that_is_too_long_is_refused() {
    let mut milan = Side::new(7);
    milan.put_peer("rome");
    for len in [240, 241] {
        let mut slice = golden::replicated();
        slice["metadata"]["name"] = json!("a".repeat(len));
        milan.put::<ResourceSlice>(slice);
    }
    milan.run(MOMENT);

    assert_eq!(milan.count::<Quota>(), 1);
    let events = milan.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        events[0]
            .contains("NameTooLong: the name of the slice has 241 characters: use 240 at most")
    );
}

#[test]
fn nothing_is_created_in_a_namespace_that_is_being_deleted() {
    let mut milan = Side::new(7);
    milan.put_peer("rome");
    milan.edit::<Namespace>(&Key::cluster("liqo-tenant-rome"), |namespace| {
        namespace["metadata"]["finalizers"] = json!(["example.com/x"]);
    });
    milan.remove::<Namespace>(&Key::cluster("liqo-tenant-rome"));
    milan.put::<ResourceSlice>(golden::replicated());
    milan.run(MOMENT);

    assert_eq!(milan.requests::<Quota>(), 0);
    assert_eq!(milan.events(), [""; 0]);
}

#[test]
fn a_quota_that_is_being_deleted_is_created_again_when_it_is_gone() {
    let mut milan = milan();
    milan.edit::<Quota>(&quota_key(), |quota| {
        quota["metadata"]["finalizers"] = json!(["example.com/x"]);
    });
    milan.remove::<Quota>(&quota_key());
    milan.edit_slice(&slice_key(), |slice| {
        slice["status"]["resources"] = json!({"cpu": "1"})
    });
    milan.run(MOMENT);
    assert_eq!(milan.spec::<Quota>(&quota_key()), golden::quota()["spec"]);

    milan.edit::<Quota>(&quota_key(), |quota| {
        quota["metadata"]["finalizers"] = json!([])
    });
    milan.run(MOMENT);
    let resources = &milan.spec::<Quota>(&quota_key())["resources"];
    assert_eq!(*resources, json!({"cpu": "1"}));
}

#[test]
fn quotas_converge_after_crashes_and_changes_of_the_leader() {
    for seed in 0..40 {
        let mut milan = Side::new(seed);
        milan.put_peer("rome");
        milan.put::<ResourceSlice>(golden::replicated());
        milan.run_with_faults();
        assert_eq!(
            milan.spec::<Quota>(&quota_key()),
            golden::quota()["spec"],
            "seed {seed}"
        );

        milan.edit_slice(&slice_key(), |slice| {
            slice["metadata"]["annotations"] = json!({"liqo.io/cordon-tenant": "true"});
            slice["status"]["resources"] = json!({"cpu": "1"});
        });
        milan.run_with_faults();
        let spec = milan.spec::<Quota>(&quota_key());
        assert_eq!(
            (&spec["cordoned"], &spec["resources"]),
            (&json!(true), &json!({"cpu": "1"}))
        );

        milan.edit_slice(&slice_key(), |slice| deny(slice, 1));
        milan.run_with_faults();
        assert_eq!(milan.count::<Quota>(), 0, "seed {seed}");

        assert!(milan.replanned().is_empty(), "seed {seed}");
        assert!(milan.redundant().is_empty(), "{:?}", milan.redundant());
    }
}
