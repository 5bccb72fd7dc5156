//! Tests of the checks.

use super::super::detect::NodeFacts;
use super::*;

fn observed(kernel: &str) -> Observed {
    Observed {
        nodes: vec![NodeFacts {
            name: "worker".into(),
            pod_cidrs: vec!["10.244.1.0/24".parse().unwrap()],
            addresses: vec!["172.18.1.3".parse().unwrap()],
            kernel: kernel.into(),
        }],
        ..Observed::default()
    }
}

fn parameters(pods: &str, services: &str) -> Parameters {
    Parameters {
        pod_cidrs: vec![pods.parse().unwrap()],
        service_cidr: Some(services.parse().unwrap()),
        ..Parameters::default()
    }
}

fn kernel_of(kernel_version: &str, kernel_is_checked: bool) -> Outcome {
    kernel(&Facts {
        kubernetes: "v1.35.4",
        missing_rights: &[],
        observed: &observed(kernel_version),
        parameters: &Parameters::default(),
        kernel_is_checked,
        installed_version: None,
        version: None,
    })
}

#[test]
fn kernels_are_compared_by_number() {
    assert_eq!(release("6.1.0-28-amd64"), Some((6, 1)));
    assert_eq!(release("5.10"), Some((5, 10)));
    assert_eq!(release("weird"), None);
    assert!(matches!(kernel_of("5.9.1", true), Outcome::Fail(_)));
    assert!(matches!(kernel_of("5.10.0-8", true), Outcome::Pass(_)));
    assert!(matches!(kernel_of("4.19.0", false), Outcome::Note(_)));
}

#[test]
fn a_kernel_without_tcx_is_reported() {
    let Outcome::Pass(text) = kernel_of("6.1.0", true) else {
        panic!("6.1 is new enough");
    };
    assert!(text.contains("worker has 6.1.0"), "{text}");
}

#[test]
fn a_pod_cidr_without_the_nodes_cidrs_is_refused() {
    let correct = parameters("10.244.0.0/16", "10.96.0.0/16");
    let wrong = parameters("10.200.0.0/16", "10.96.0.0/16");

    assert!(matches!(
        pod_cidr(&observed("6.1"), &correct),
        Outcome::Pass(_)
    ));
    let Outcome::Fail(text) = pod_cidr(&observed("6.1"), &wrong) else {
        panic!("the node's CIDR is not within the pod CIDRs");
    };
    assert!(
        text.contains("node worker has pods in 10.244.1.0/24"),
        "{text}"
    );
}

#[test]
fn overlaps_are_named() {
    let none = parameters("10.244.0.0/16", "10.96.0.0/16");
    let services = parameters("10.0.0.0/8", "10.96.0.0/16");
    let mut reserved = none.clone();
    reserved.reserved = vec!["10.244.7.0/24".parse().unwrap()];
    let node = parameters("172.18.0.0/16", "10.96.0.0/16");

    let observed = observed("6.1");
    assert!(matches!(overlap(&observed, &none), Outcome::Pass(_)));
    assert!(matches!(overlap(&observed, &services), Outcome::Fail(_)));
    assert!(matches!(overlap(&observed, &reserved), Outcome::Fail(_)));
    assert!(matches!(overlap(&observed, &node), Outcome::Note(_)));
}

#[test]
fn another_minor_version_is_a_warning() {
    assert!(matches!(
        version(Some("v1.2.0"), Some("v1.3.0")),
        Outcome::Note(_)
    ));
    assert!(matches!(
        version(Some("v1.3.0"), Some("v1.2.9")),
        Outcome::Note(_)
    ));
    assert!(matches!(
        version(Some("v1.2.0"), Some("v1.2.9")),
        Outcome::Pass(_)
    ));
    assert!(matches!(version(None, Some("v1.2.9")), Outcome::Pass(_)));
    assert!(matches!(version(Some("dev"), None), Outcome::Pass(_)));
}

#[test]
fn all_failures_are_reported_together() {
    let checks = [
        ("rights", rights_outcome(&["create namespaces".to_owned()])),
        ("overlap", Outcome::Fail("a and b".to_owned())),
    ];

    let text = report(&checks, false).unwrap_err().to_string();

    assert!(
        text.contains("check rights: ") && text.contains("check overlap: "),
        "{text}"
    );
}
