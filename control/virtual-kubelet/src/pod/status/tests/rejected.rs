use super::{BEFORE, NOW, condition, container, exited, local_pod, running};
use crate::pod::status::{fallback, lost, terminated};
use control_api::offloading::shadow_pod::ShadowPodPhase;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};

fn with_status(status: &Value) -> Pod {
    local_pod(&json!({}), status)
}

fn value(status: PodStatus) -> Value {
    serde_json::to_value(status).unwrap()
}

fn running_pod() -> Pod {
    with_status(&json!({
        "conditions": [condition("Ready", "True"), condition("Initialized", "False")],
        "containerStatuses": [container("web", &running())],
        "initContainerStatuses": [container("init", &exited(0))],
        "phase": "Running",
        "podIP": "10.71.0.1",
        "startTime": BEFORE,
    }))
}

#[test]
fn a_pod_that_has_not_started_waits_for_the_offloading() {
    for phase in [json!("Pending"), Value::Null] {
        let pod = with_status(
            &json!({"conditions": [condition("PodScheduled", "True")], "phase": phase}),
        );

        let status = value(fallback(&pod, NOW));

        assert_eq!(status["phase"], "Pending");
        assert_eq!(status["reason"], "OffloadingBackOff");
        assert_eq!(
            status["conditions"],
            json!([{
                "lastTransitionTime": NOW.to_string(),
                "reason": "OffloadingBackOff",
                "status": "False",
                "type": "PodScheduled",
            }])
        );
    }
    let without_status = Pod::default();
    assert_eq!(
        value(fallback(&without_status, NOW))["reason"],
        "OffloadingBackOff"
    );
}

#[test]
fn a_pod_that_has_started_fails() {
    let status = value(fallback(&running_pod(), NOW));

    assert_eq!(status["phase"], "Failed");
    assert_eq!(status["reason"], "OffloadingAborted");
    assert_eq!(status["conditions"][0]["status"], "False");
    assert_eq!(status["conditions"][0]["reason"], "OffloadingAborted");
    assert_eq!(status["conditions"][1], condition("Initialized", "False"));
    let web = &status["containerStatuses"][0];
    assert_eq!(
        (&web["ready"], &web["started"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(
        web["state"],
        json!({"terminated": {
            "exitCode": 1,
            "finishedAt": NOW.to_string(),
            "reason": "OffloadingAborted",
            "startedAt": BEFORE,
        }})
    );
    assert_eq!(
        status["initContainerStatuses"][0],
        container("init", &exited(0))
    );
    assert_eq!(status["podIP"], "10.71.0.1");
}

#[test]
fn a_pending_pod_with_containers_fails() {
    for list in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
        let pod = with_status(&json!({list: [container("web", &waiting)], "phase": "Pending"}));

        let status = value(fallback(&pod, NOW));

        assert_eq!(status["reason"], "OffloadingAborted");
        let state = &status[list][0]["state"];
        assert_eq!(state["terminated"]["exitCode"], 1);
        assert_eq!(state.get("waiting"), None);
        assert_eq!(status[list][0]["ready"], false);
    }
}

#[test]
fn a_pod_that_has_ended_keeps_its_status() {
    for phase in ["Succeeded", "Failed"] {
        let status = json!({"conditions": [condition("Initialized", "True")], "phase": phase});

        assert_eq!(value(fallback(&with_status(&status), NOW)), status);
    }
}

#[test]
fn the_fallback_of_a_fallback_is_the_same() {
    let later = NOW + std::time::Duration::from_secs(60);
    for pod in [
        with_status(&json!({"conditions": [condition("Ready", "True")], "phase": "Pending"})),
        running_pod(),
    ] {
        let first = fallback(&pod, NOW);
        let again = Pod {
            status: Some(first.clone()),
            ..pod
        };

        assert_eq!(fallback(&again, later), first);
    }
}

#[test]
fn a_pod_without_a_remote_pod_ends_as_its_shadow_pod_did() {
    for (phase, name, code) in [
        (ShadowPodPhase::Succeeded, "Succeeded", 0),
        (ShadowPodPhase::Failed, "Failed", 1),
    ] {
        let status = value(terminated(&running_pod(), phase, NOW).unwrap());

        assert_eq!(status["phase"], name);
        assert_eq!(status["reason"], "RemotePodTerminated");
        let web = &status["containerStatuses"][0];
        assert_eq!(web["state"]["terminated"]["exitCode"], code);
        assert_eq!(web["state"]["terminated"]["reason"], "RemotePodTerminated");
        assert_eq!(web["ready"], false);
        assert_eq!(status["conditions"][0]["status"], "False");
    }
}

#[test]
fn a_pod_whose_shadow_pod_runs_has_not_ended() {
    for phase in [
        ShadowPodPhase::Pending,
        ShadowPodPhase::Running,
        ShadowPodPhase::Unknown,
    ] {
        assert_eq!(terminated(&running_pod(), phase, NOW), None);
    }
}

#[test]
fn a_pod_that_ended_in_the_phase_of_its_shadow_pod_is_left_alone() {
    let status = json!({
        "containerStatuses": [container("web", &exited(0))],
        "phase": "Succeeded",
        "reason": "Completed",
    });

    let same = terminated(&with_status(&status), ShadowPodPhase::Succeeded, NOW);

    assert_eq!(value(same.unwrap()), status);
}

#[test]
fn containers_that_have_ended_keep_their_exit_codes() {
    let pod = with_status(&json!({
        "containerStatuses": [container("web", &exited(7))],
        "phase": "Running",
    }));

    let status = value(terminated(&pod, ShadowPodPhase::Failed, NOW).unwrap());

    assert_eq!(status["containerStatuses"][0]["state"], exited(7));
    assert_eq!(status["containerStatuses"][0]["ready"], false);
}

#[test]
fn a_pod_whose_remote_pod_is_gone_is_not_ready_and_has_no_address() {
    let target = condition("DisruptionTarget", "True");
    let mut pod = running_pod();
    let mut status = value(pod.status.take().unwrap());
    let conditions = status["conditions"].as_array_mut().unwrap();
    conditions.extend([condition("ContainersReady", "True"), target.clone()]);
    status["podIPs"] = json!([{"ip": "10.71.0.1"}]);
    let pod = with_status(&status);

    let first = lost(&pod, Some("exceeded quota"), NOW);

    let status = value(first.clone());
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&json!("Running"), &json!("RemotePodLost"))
    );
    assert_eq!(status["message"], "exceeded quota");
    for index in [0, 2] {
        assert_eq!(status["conditions"][index]["status"], "False");
        assert_eq!(status["conditions"][index]["reason"], "RemotePodLost");
    }
    assert_eq!(status["conditions"][3], target);
    assert_eq!((status.get("podIP"), status.get("podIPs")), (None, None));
    let web = &status["containerStatuses"][0];
    assert_eq!(
        (&web["ready"], &web["started"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(
        web["state"],
        running(),
        "a container that never restarts could not run again"
    );
    let without_cause = value(lost(&pod, None, NOW));
    assert_eq!(
        without_cause["message"],
        "The pod does not exist at the provider"
    );
    let again = Pod {
        status: Some(first.clone()),
        ..pod
    };
    for cause in [Some("exceeded quota"), None] {
        let later = NOW + std::time::Duration::from_secs(60);
        assert_eq!(lost(&again, cause, later), first);
    }
}

#[test]
fn a_condition_of_the_control_plane_outlasts_the_end_of_the_pod() {
    let target = condition("DisruptionTarget", "True");
    let pod = with_status(&json!({
        "conditions": [condition("Ready", "True"), target],
        "containerStatuses": [container("web", &running())],
        "phase": "Running",
    }));

    let status = value(fallback(&pod, NOW));

    assert_eq!(status["conditions"][0]["status"], "False");
    assert_eq!(status["conditions"][1], target);
}
