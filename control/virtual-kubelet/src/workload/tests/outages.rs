//! Pods while the network to the provider is lost, or its API server is away.

use super::*;
use k8s_openapi::api::core::v1::Node;

/// Returns status and reason of the condition Ready of a pod.
fn readiness(rome: &mut Side) -> String {
    let ready = rome.pod("web")["status"]["conditions"][0].clone();
    format!("{} {}", ready["status"], ready["reason"])
}

#[test]
fn pods_are_not_ready_while_the_networks_are_not_connected() {
    let mut rome = rome(21);
    assert_eq!(readiness(&mut rome), r#""True" null"#);

    rome.put_foreign("Established", Some("Error"));
    rome.pass();
    assert_eq!(readiness(&mut rome), r#""False" "RemoteUnavailable""#);
    // Another status of the remote pod does not change it.
    let mut status = running("10.244.1.7");
    status["containerStatuses"][0]["restartCount"] = json!(1);
    rome.put_remote("web", &status);
    assert_eq!(readiness(&mut rome), r#""False" "RemoteUnavailable""#);

    rome.put_foreign("Established", Some("Established"));
    rome.pass();
    assert_eq!(readiness(&mut rome), r#""True" null"#);
    assert!(rome.redundant().is_empty(), "{:?}", rome.redundant());
}

const EQUAL: [&str; 3] = ["web", "web-2", "web-3"];

/// Returns a consumer with three pods of a workload.
fn with_equal_pods(seed: u64) -> Side {
    let mut rome = rome(seed);
    for (number, name) in (8..).zip(&EQUAL[1..]) {
        rome.put_pod(name);
        rome.pass();
        rome.put_remote(name, &running(&format!("10.244.1.{number}")));
        rome.pass();
    }
    assert_eq!(ready(&mut rome), [true; 3]);
    rome
}

fn ready(rome: &mut Side) -> [bool; 3] {
    EQUAL.map(|name| rome.pod(name)["status"]["conditions"][0]["status"] == "True")
}

/// Kubernetes' EndpointSlice controller would retry a second later if all changed within milliseconds.
#[test]
fn the_last_of_equal_pods_is_not_ready_a_moment_after_the_others() {
    let mut rome = with_equal_pods(25);

    rome.put_foreign("Established", Some("Error"));
    rome.simulation.pass(Duration::from_millis(140));
    assert_eq!(ready(&mut rome), [false, false, true]);
    rome.simulation.pass(Duration::from_millis(60));
    assert_eq!(ready(&mut rome), [false; 3]);
    assert!(rome.redundant().is_empty(), "{:?}", rome.redundant());
}

#[test]
fn the_last_of_the_pods_that_the_network_made_unready_follows_when_it_is_back() {
    let mut rome = with_equal_pods(26);
    let mut unready = running("10.244.1.9");
    unready["conditions"][0]["status"] = json!("False");
    rome.set_remote("web-3", &unready);
    rome.put_foreign("Established", Some("Error"));
    rome.simulation.pass(Duration::from_secs(1));
    assert_eq!(ready(&mut rome), [false; 3]);

    rome.put_foreign("Established", Some("Established"));
    rome.simulation.pass(Duration::from_millis(140));
    assert_eq!(ready(&mut rome), [true, false, false]);
    rome.simulation.pass(Duration::from_millis(60));
    assert_eq!(ready(&mut rome), [true, true, false]);
}

/// Then the gateways are connected, and other nodes reach the pods.
#[test]
fn pods_stay_ready_while_the_path_of_one_node_has_a_fault() {
    let mut rome = rome(24);
    rome.put_foreign("Established", Some("SomeNotReady"));
    rome.pass();
    assert_eq!(readiness(&mut rome), r#""True" null"#);
    assert_eq!(rome.conditions()[0], "Ready=True KubeletReady");
}

#[test]
fn pods_stay_ready_while_only_the_api_server_of_the_provider_is_away() {
    let mut rome = rome(22);
    let before = rome.pod("web");
    rome.simulation.partition(&Cluster::remote("milan"));
    rome.put_outage(Some("Established"));
    rome.simulation.pass(Duration::from_secs(240));
    assert_eq!(rome.pod("web"), before);
    assert_eq!(rome.conditions()[0], "Ready=True KubeletReady");
}

/// The node controller of Kubernetes sets the condition once; a virtual kubelet that sets it back would undo that for good.
#[test]
fn pods_of_a_lost_node_are_not_set_ready() {
    let mut rome = rome(23);
    rome.put_outage(Some("Established"));
    rome.simulation.pass(Duration::from_secs(310));
    rome.edit::<Node>(&Key::cluster("milan"), |node| {
        node["status"]["conditions"][0]["status"] = json!("Unknown");
    });
    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["status"]["conditions"][0]["status"] = json!("False");
    });
    rome.simulation.pass(Duration::from_secs(60));
    assert_eq!(readiness(&mut rome), r#""False" "RemoteUnavailable""#);
}
