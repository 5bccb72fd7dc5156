use super::{
    BEFORE, NOW, condition, container, context, exited, local, local_pod, local_with, running,
};
use crate::pod::status::Context;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::net::IpAddr;

fn new_pod() -> Pod {
    local_pod(
        &json!({}),
        &json!({"phase": "Pending", "qosClass": "Burstable"}),
    )
}

#[test]
fn the_remote_status_is_copied_apart_from_addresses() {
    let remote = json!({
        "conditions": [condition("Ready", "True"), condition("example.com/gate", "Unknown")],
        "containerStatuses": [container("web", &running())],
        "hostIP": "172.18.2.2",
        "hostIPs": [{"ip": "172.18.2.2"}],
        "message": "evicted",
        "observedGeneration": 1,
        "phase": "Running",
        "podIP": "10.1.0.1",
        "podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}],
        "qosClass": "Burstable",
        "reason": "Evicted",
        "startTime": BEFORE,
    });

    let mut expected = remote.clone();
    expected["hostIP"] = json!("10.244.0.5");
    expected["hostIPs"] = json!([{"ip": "10.244.0.5"}]);
    expected["podIPs"] = json!([{"ip": "10.1.0.1"}]);
    assert_eq!(local(&remote, &new_pod()), expected);
}

#[test]
fn the_address_is_mapped_or_left_out() {
    let pod = new_pod();
    let map_ip =
        |ip: IpAddr| (ip == IpAddr::from([10, 1, 0, 1])).then(|| IpAddr::from([10, 71, 0, 1]));
    let context = Context {
        map_ip: &map_ip,
        host_ip: None,
        ..context(&pod)
    };

    let mapped = local_with(&json!({"podIP": "10.1.0.1"}), &context);
    assert_eq!(mapped["podIP"], "10.71.0.1");
    assert_eq!(mapped["podIPs"], json!([{"ip": "10.71.0.1"}]));
    for ip in ["10.1.0.2", "", "localhost", "10.1.0.1/24"] {
        let status = local_with(
            &json!({"podIP": ip, "podIPs": [{"ip": ip}], "hostIP": ip}),
            &context,
        );

        for field in ["podIP", "podIPs", "hostIP", "hostIPs"] {
            assert_eq!(status.get(field), None, "{field} {ip}");
        }
    }
}

#[test]
fn restarts_of_former_remote_pods_are_added() {
    let pod = local_pod(&json!({"initContainers": [{"name": "init"}]}), &json!({}));
    let mut web = container("web", &running());
    web["restartCount"] = json!(3);
    let remote = json!({
        "containerStatuses": [web],
        "initContainerStatuses": [container("init", &exited(0))],
    });
    let context = Context {
        restarts: 4,
        ..context(&pod)
    };

    let status = local_with(&remote, &context);

    assert_eq!(status["containerStatuses"][0]["restartCount"], 7);
    assert_eq!(status["initContainerStatuses"][0]["restartCount"], 4);
}

/// Returns the status of a pod with these conditions while its virtual node is not ready.
fn unavailable(remote: &Value, conditions: &Value) -> Value {
    let pod = local_pod(&json!({}), &json!({"conditions": conditions}));
    let context = Context {
        is_unavailable: true,
        ..context(&pod)
    };
    local_with(remote, &context)
}

#[test]
fn a_pod_is_not_ready_while_its_virtual_node_is_unavailable() {
    let remote =
        json!({"conditions": [condition("Ready", "True"), condition("Initialized", "True")]});

    let status = unavailable(&remote, &json!([condition("Ready", "True")]));

    let ready = &status["conditions"][0];
    assert_eq!(ready["status"], "False");
    assert_eq!(ready["reason"], "RemoteUnavailable");
    assert_eq!(ready["lastTransitionTime"], NOW.to_string());
    assert_eq!(status["conditions"][1], condition("Initialized", "True"));
}

#[test]
fn an_unavailable_pod_keeps_the_time_at_which_it_became_unready() {
    let remote = json!({"conditions": [condition("Ready", "True")]});

    let status = unavailable(&remote, &json!([condition("Ready", "False")]));

    assert_eq!(status["conditions"][0]["lastTransitionTime"], BEFORE);
}

/// Policies of pod and container, exit code; whether the API server accepts that the container runs again.
#[test]
fn a_container_leaves_its_end_only_if_it_may_be_restarted() {
    for (of_pod, of_container, code, restarts) in [
        ("Always", None, 0, true),
        ("OnFailure", None, 1, true),
        ("OnFailure", None, 0, false),
        ("Never", None, 1, false),
        ("Never", Some("Always"), 0, true),
        ("Never", Some("OnFailure"), 1, true),
        ("Never", Some("OnFailure"), 0, false),
        ("Never", Some("Never"), 1, false),
    ] {
        let ended = container("web", &exited(code));
        let pod = local_pod(
            &json!({
                "containers": [{"name": "web", "restartPolicy": of_container}],
                "restartPolicy": of_pod,
            }),
            &json!({"containerStatuses": [ended]}),
        );
        let runs = container("web", &running());

        let status = local(&json!({"containerStatuses": [runs]}), &pod);

        let expected = if restarts { &runs } else { &ended };
        assert_eq!(
            &status["containerStatuses"][0], expected,
            "{of_pod} {of_container:?} {code}"
        );
    }
}

#[test]
fn an_end_may_be_replaced_by_another_end() {
    let pod = local_pod(
        &json!({"restartPolicy": "Never"}),
        &json!({"containerStatuses": [container("web", &exited(1))]}),
    );

    let status = local(
        &json!({"containerStatuses": [container("web", &exited(2))]}),
        &pod,
    );

    assert_eq!(status["containerStatuses"][0]["state"], exited(2));
}

#[test]
fn a_container_with_restart_rules_may_run_again() {
    let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}});
    let web = json!({"name": "web", "restartPolicy": "Never", "restartPolicyRules": [rule]});
    let pod = local_pod(
        &json!({"containers": [web], "restartPolicy": "Never"}),
        &json!({"containerStatuses": [container("web", &exited(42))]}),
    );

    let status = local(
        &json!({"containerStatuses": [container("web", &running())]}),
        &pod,
    );

    assert_eq!(status["containerStatuses"][0]["state"], running());
}

#[test]
fn an_empty_remote_status_is_an_empty_status() {
    let pod = local_pod(&json!({}), &Value::Object(serde_json::Map::new()));
    let context = Context {
        host_ip: None,
        ..context(&pod)
    };

    assert_eq!(local_with(&json!({}), &context), json!({}));
}
