use crate::offloading::policy::{Marks, Policy};
use serde_json::json;

fn marks(annotations: &serde_json::Value) -> Marks {
    let annotations = serde_json::from_value(annotations.clone()).unwrap();
    Marks::of(Some(&annotations))
}

#[test]
fn each_value_but_false_sets_an_annotation() {
    for (value, is_set) in [
        ("true", true),
        ("", true),
        ("0", true),
        ("no", true),
        ("false", false),
        ("FALSE", false),
    ] {
        let skip = marks(&json!({"liqo.io/skip-reflection": value}));
        assert_eq!(skip.is_reflected(Policy::DenyList), !is_set, "{value}");
        let allow = marks(&json!({"liqo.io/allow-reflection": value}));
        assert_eq!(allow.is_reflected(Policy::AllowList), is_set, "{value}");
    }
}

#[test]
fn the_annotation_of_the_other_policy_has_no_effect() {
    assert!(marks(&json!({"liqo.io/allow-reflection": "true"})).is_reflected(Policy::DenyList));
    assert!(!marks(&json!({"liqo.io/skip-reflection": "false"})).is_reflected(Policy::AllowList));
    assert!(Marks::default().is_reflected(Policy::DenyList));
    assert!(!Marks::default().is_reflected(Policy::AllowList));
}

#[test]
fn the_annotation_of_a_slice_takes_precedence_over_that_of_its_service() {
    let skip = marks(&json!({"liqo.io/skip-reflection": "true"}));
    let allow = marks(&json!({"liqo.io/allow-reflection": "true"}));
    let none = Marks::default();
    for (slice, service, policy, expected) in [
        (none, None, Policy::DenyList, true),
        (none, None, Policy::AllowList, false),
        (none, Some(skip), Policy::DenyList, false),
        (none, Some(allow), Policy::AllowList, true),
        (allow, Some(skip), Policy::DenyList, true),
        (allow, None, Policy::AllowList, true),
        (skip, Some(allow), Policy::AllowList, false),
    ] {
        let is_reflected = slice.is_slice_reflected(service, policy).unwrap();
        assert_eq!(is_reflected, expected, "{slice:?} {service:?} {policy:?}");
    }
    let both = marks(&json!({"liqo.io/skip-reflection": "", "liqo.io/allow-reflection": ""}));
    assert!(both.is_slice_reflected(None, Policy::DenyList).is_err());
}
