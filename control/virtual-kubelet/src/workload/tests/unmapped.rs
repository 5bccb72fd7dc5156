//! Pods whose namespace the provider does not have.

use super::*;
use std::collections::BTreeSet;

#[test]
fn nothing_is_created_before_the_provider_has_the_namespace() {
    let mut rome = Side::new(2);
    rome.put_map("CreationLoopBackOff");
    rome.put_pod("web");
    rome.pass();
    assert_eq!(rome.shadow("web"), Value::Null);
    let status = rome.pod("web")["status"].clone();
    assert_eq!(status["phase"], "Pending");
    assert_eq!(status["reason"], "OffloadingBackOff");
    let cause = "the provider does not create the namespace shop-rome: its name may be taken or refused there";
    assert_eq!(status["message"], cause);
    let events = BTreeSet::from_iter(rome.events());
    assert_eq!(events, [format!("FailedReflection: {cause}")].into());

    rome.put_map("Accepted");
    rome.pass();
    assert!(rome.shadow("web").is_object());
    rome.put_remote("web", &running("10.244.1.7"));
    assert_eq!(rome.pod("web")["status"]["message"], Value::Null);
}

#[test]
fn a_pod_that_never_started_is_deleted_while_the_provider_refuses_the_namespace() {
    let mut rome = Side::new(4);
    rome.put_map("CreationLoopBackOff");
    rome.put_pod("web");
    rome.pass();
    assert_eq!(rome.pod("web")["status"]["reason"], "OffloadingBackOff");

    rome.simulation.local().remove::<Pod>(&pod_key());
    rome.pass();

    assert!(rome.pod("web").is_null());
}

#[test]
fn a_pod_whose_namespace_is_not_offloaded_waits() {
    let mut rome = Side::new(3);
    rome.put_pod("web");
    rome.pass();
    assert_eq!(rome.pod("web")["status"]["reason"], "OffloadingBackOff");

    rome.put_map("Accepted");
    rome.pass();
    rome.put_remote("web", &running("10.244.1.7"));
    assert_eq!(rome.pod("web")["status"]["phase"], "Running");
    assert_eq!(rome.pod("web")["status"]["reason"], Value::Null);
}
