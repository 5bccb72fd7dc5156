//! Pods that have started and whose remote pod is gone.

use super::*;
use control_runtime::Request;

/// Returns status and reason of the condition Ready, and the address.
fn state(rome: &mut Side) -> String {
    let status = rome.pod("web")["status"].clone();
    let ready = &status["conditions"][0];
    format!(
        "{} {} {}",
        ready["status"], ready["reason"], status["podIP"]
    )
}

/// Returns the replicas that have read a remote pod, once for each read.
fn reads_of_remote_pods(rome: &Side) -> Vec<usize> {
    let log = rome.simulation.log().iter();
    let reads = log.filter(|sent| match &sent.request {
        Request::Read(object) => object.cluster != Cluster::Local && object.resource.kind == "Pod",
        Request::Write(_) | Request::Probe(_) => false,
    });
    reads.map(|sent| sent.replica).collect()
}

const READY: &str = r#""True" null "10.71.1.7""#;
const LOST: &str = r#""False" "RemotePodLost" null"#;

#[test]
fn a_pod_that_the_provider_does_not_create_again_is_not_ready() {
    let mut rome = rome(1);
    assert_eq!(state(&mut rome), READY);
    rome.provider()
        .refuse_right(Some(("create", "shadowpods")), false);
    rome.provider()
        .remove::<ShadowPod>(&Key::new("shop-rome", "web"));
    rome.pass();
    rome.remove_remote("web");

    assert_eq!(state(&mut rome), LOST);
    let status = rome.pod("web")["status"].clone();
    assert_eq!(status["phase"], "Running");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("the provider refuses the ShadowPod"),
        "{message}"
    );

    rome.provider().refuse_right(None, false);
    rome.simulation.pass(Duration::from_secs(60));
    rome.put_remote("web", &running("10.244.1.7"));
    assert_eq!(state(&mut rome), READY);
    assert_eq!(rome.pod("web")["status"]["message"], Value::Null);
}

#[test]
fn a_pod_whose_remote_pod_alone_is_gone_is_not_ready() {
    let mut rome = rome(2);
    rome.remove_remote("web");
    assert_eq!(state(&mut rome), LOST);
    // The standby plans it, too.
    assert_eq!(reads_of_remote_pods(&rome), [0, 1]);

    rome.put_remote("web", &running("10.244.1.7"));
    assert_eq!(state(&mut rome), READY);
}

#[test]
fn a_pod_is_not_ready_while_another_client_has_its_shadow_pod() {
    let mut rome = rome(3);
    let mut shadow = rome.shadow("web");
    shadow["metadata"]["labels"]["offloading.liqo.io/origin"] = json!("naples");
    rome.provider().put::<ShadowPod>(shadow);
    rome.remove_remote("web");

    assert_eq!(state(&mut rome), LOST);
}

#[test]
fn a_pod_is_not_ready_while_the_provider_lacks_the_namespace() {
    let mut rome = rome(4);
    for phase in ["CreationLoopBackOff", "Terminating"] {
        rome.put_map(phase);
        rome.pass();
        assert_eq!(state(&mut rome), LOST, "{phase}");

        rome.put_map("Accepted");
        rome.pass();
        assert_eq!(state(&mut rome), READY, "{phase}");
    }
}
