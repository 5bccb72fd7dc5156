//! Statuses of a provider that attacks its consumer.

use super::{condition, container, local, local_pod, running};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

fn new_pod() -> Pod {
    local_pod(
        &json!({
            "containers": [{"name": "web", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "ephemeralContainers": [{"name": "debug"}],
            "initContainers": [{"name": "init"}],
        }),
        &json!({"qosClass": "Burstable"}),
    )
}

fn long() -> String {
    "ä".repeat(100_000)
}

/// Returns the status of the container `web`.
fn web(fields: &Value) -> Value {
    let mut status = container("web", &running());
    for (field, value) in fields.as_object().unwrap() {
        status[field] = value.clone();
    }
    let status = local(&json!({"containerStatuses": [status]}), &new_pod());
    status["containerStatuses"][0].clone()
}

#[test]
fn containers_that_the_pod_lacks_and_duplicates_are_dropped() {
    let remote = [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ]
    .map(|list| {
        let names = ["other", "web", "init", "debug", "web", "init", "debug"];
        let statuses: Vec<_> = names.map(|name| container(name, &running())).to_vec();
        (list.to_owned(), json!(statuses))
    });

    let status = local(&Value::Object(remote.into_iter().collect()), &new_pod());

    for (list, name) in [
        ("containerStatuses", "web"),
        ("initContainerStatuses", "init"),
        ("ephemeralContainerStatuses", "debug"),
    ] {
        assert_eq!(status[list], json!([container(name, &running())]), "{list}");
    }
}

#[test]
fn fields_that_steer_this_cluster_are_dropped() {
    let remote = json!({
        "allocatedResources": {"cpu": "1"},
        "extendedResourceClaimStatus": {"requestMappings": [], "resourceClaimName": "gpu"},
        "nominatedNodeName": "rome-worker",
        "phase": "Running",
        "qosClass": "Guaranteed",
        "resize": "Deferred",
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "gpu"}],
        "resources": {"limits": {"cpu": "1"}},
    });

    let status = local(&remote, &new_pod());

    let fields: Vec<_> = status.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["hostIP", "hostIPs", "phase", "qosClass"]);
    assert_eq!(status["qosClass"], "Burstable");
}

#[test]
fn unknown_phases_and_condition_statuses_become_unknown() {
    let remote = json!({"conditions": [condition("Ready", "Perhaps")], "phase": "Sleeping"});

    let status = local(&remote, &new_pod());

    assert_eq!(status["phase"], "Unknown");
    assert_eq!(status["conditions"][0]["status"], "Unknown");
    for phase in ["Pending", "Running", "Succeeded", "Failed", "Unknown"] {
        assert_eq!(local(&json!({"phase": phase}), &new_pod())["phase"], phase);
    }
}

#[test]
fn conditions_are_bounded_in_number_and_each_type_occurs_once() {
    let mut conditions: Vec<_> = (0..1000)
        .map(|it| condition(&format!("Type{it}"), "True"))
        .collect();
    conditions.insert(0, condition("Type0", "False"));

    let status = local(&json!({"conditions": conditions}), &new_pod());

    let kept = status["conditions"].as_array().unwrap();
    assert_eq!(kept.len(), 32);
    assert_eq!(kept[0]["status"], "False");
    assert_eq!(kept[1]["type"], "Type1");
}

#[test]
fn conditions_that_the_api_server_refuses_are_dropped() {
    let long = "a".repeat(64);
    let invalid = [
        "",
        "/",
        "a/",
        "/a",
        "a b",
        "-a",
        "a-",
        "a/b/c",
        "A.example/b",
        "a_b/c",
        "a..b/c",
        "ä",
        &long,
    ];
    let valid = ["Ready", "a", "a-b_c.D", "example.com/Gate"];

    for (types, kept) in [(&invalid[..], false), (&valid[..], true)] {
        for type_ in types {
            let status = local(
                &json!({"conditions": [condition(type_, "True")]}),
                &new_pod(),
            );

            let conditions = status["conditions"].as_array().unwrap();
            assert_eq!(!conditions.is_empty(), kept, "{type_}");
        }
    }
}

#[test]
fn texts_are_cut_and_keep_their_characters_whole() {
    let mut ready = condition("Ready", "True");
    ready["message"] = json!(long());
    ready["reason"] = json!(long());
    let remote = json!({"conditions": [ready], "message": long(), "reason": long()});

    let status = local(&remote, &new_pod());

    for object in [&status, &status["conditions"][0]] {
        assert_eq!(object["message"].as_str().unwrap(), "ä".repeat(2048));
        assert_eq!(object["reason"].as_str().unwrap(), "ä".repeat(128));
    }
}

#[test]
fn texts_of_containers_are_cut() {
    let terminated = json!({"terminated": {
        "containerID": long(), "exitCode": 1, "message": long(), "reason": long(),
    }});
    let waiting = json!({"waiting": {"message": long(), "reason": long()}});

    let status = web(&json!({
        "containerID": long(),
        "image": long(),
        "imageID": long(),
        "lastState": terminated,
        "state": waiting,
        "stopSignal": long(),
    }));

    for (text, max) in [
        (&status["containerID"], 512),
        (&status["image"], 512),
        (&status["imageID"], 512),
        (&status["lastState"]["terminated"]["containerID"], 512),
        (&status["lastState"]["terminated"]["message"], 4096),
        (&status["lastState"]["terminated"]["reason"], 256),
        (&status["state"]["waiting"]["message"], 4096),
        (&status["state"]["waiting"]["reason"], 256),
        (&status["stopSignal"], 256),
    ] {
        assert_eq!(text.as_str().unwrap().len(), max);
    }
}

#[test]
fn messages_of_many_containers_fit_into_one_object() {
    let names: Vec<_> = (0..1000).map(|it| format!("c{it}")).collect();
    let containers: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    let waiting = json!({"waiting": {"message": "a".repeat(4096)}});
    let statuses: Vec<_> = names.iter().map(|name| container(name, &waiting)).collect();
    let pod = local_pod(&json!({"containers": containers}), &json!({}));

    let status = local(&json!({"containerStatuses": statuses}), &pod);

    let statuses = status["containerStatuses"].as_array().unwrap();
    assert_eq!(statuses.len(), 1000);
    let lengths = statuses
        .iter()
        .map(|it| it["state"]["waiting"]["message"].as_str().unwrap().len());
    assert!(lengths.sum::<usize>() <= 64 * 1024);
}

#[test]
fn control_sequences_of_terminals_are_replaced() {
    let message = "line\n\tred \u{1b}[31m \u{9b}2J \u{7}\r\0";

    let status = local(&json!({"message": message, "reason": "\u{1b}"}), &new_pod());

    assert_eq!(status["message"], "line\n\tred  [31m  2J    ");
    assert_eq!(status["reason"], " ");
}

#[test]
fn counts_are_never_negative_and_do_not_overflow() {
    assert_eq!(web(&json!({"restartCount": -1}))["restartCount"], 0);

    let pod = new_pod();
    let context = super::Context {
        restarts: 5,
        ..super::context(&pod)
    };
    let mut web = container("web", &running());
    web["restartCount"] = json!(i32::MAX);
    let status = super::local_with(&json!({"containerStatuses": [web]}), &context);
    assert_eq!(status["containerStatuses"][0]["restartCount"], i32::MAX);
}

#[test]
fn generations_are_those_of_the_pod() {
    let observed = |observed: i64, remote: Option<i64>| {
        let mut pod = new_pod();
        pod.metadata.generation = Some(7);
        pod.status.get_or_insert_default().observed_generation = Some(6);
        let context = super::Context {
            generation: remote,
            ..super::context(&pod)
        };
        let mut ready = condition("Ready", "True");
        ready["observedGeneration"] = json!(observed);
        let status = json!({"conditions": [ready], "observedGeneration": observed});
        let status = super::local_with(&status, &context);
        let of_condition = &status["conditions"][0]["observedGeneration"];
        assert_eq!(status["observedGeneration"], *of_condition);
        of_condition.as_i64()
    };

    // The remote pod begins with generation 1, whatever that of the pod is.
    assert_eq!(observed(1, Some(1)), Some(7));
    assert_eq!(
        observed(1, Some(2)),
        Some(6),
        "its kubelet has not seen the last change"
    );
    assert_eq!(observed(1, None), Some(6), "the last change is on its way");
    for hostile in [-1, i64::MIN, i64::MAX] {
        assert!((0..=7).contains(&observed(hostile, Some(1)).unwrap()));
    }
}

#[test]
fn a_container_has_one_state() {
    let state = json!({
        "running": {"startedAt": super::BEFORE},
        "terminated": {"exitCode": 1},
        "waiting": {"reason": "ContainerCreating"},
    });
    assert_eq!(
        web(&json!({"state": state}))["state"],
        json!({"terminated": {"exitCode": 1}})
    );

    let mut without_end = state;
    without_end.as_object_mut().unwrap().remove("terminated");
    assert_eq!(web(&json!({"state": without_end}))["state"], running());
}

#[test]
fn amounts_that_the_api_server_refuses_are_dropped() {
    let amounts = json!({
        "a": "1", "b": "500m", "c": "4Gi", "d": "1e3", "e": "0.5", "f": "-1", "g": "1E-2",
        "bad name": "1", "h": "", "i": "four", "j": "1.2.3", "k": "1Q", "l": "e3", "m": "1e",
        "n": "1".repeat(33),
    });
    let valid = json!({
        "a": "1", "b": "500m", "c": "4Gi", "d": "1e3", "e": "0.5", "f": "-1", "g": "1E-2",
    });

    let status = web(&json!({
        "allocatedResources": amounts,
        "resources": {"claims": [{"name": "gpu"}], "limits": amounts, "requests": amounts},
    }));

    assert_eq!(status["allocatedResources"], valid);
    assert_eq!(
        status["resources"],
        json!({"limits": valid, "requests": valid})
    );
}

#[test]
fn lists_of_a_container_are_bounded() {
    let amounts: serde_json::Map<String, Value> =
        (0..1000).map(|it| (format!("r{it}"), json!("1"))).collect();
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path, "recursiveReadOnly": long()});
    let mut mounts = vec![mount("other", "/data"), mount("data", "/other")];
    mounts.extend(vec![mount("data", "/data"); 100]);

    let status = web(&json!({
        "allocatedResources": amounts,
        "allocatedResourcesStatus": [{"name": "gpu"}],
        "user": {"linux": {"uid": 1, "gid": 2, "supplementalGroups": vec![3; 1000]}},
        "volumeMounts": mounts,
    }));

    assert_eq!(status["allocatedResources"].as_object().unwrap().len(), 64);
    assert_eq!(status.get("allocatedResourcesStatus"), None);
    let linux = &status["user"]["linux"];
    assert_eq!((&linux["uid"], &linux["gid"]), (&json!(1), &json!(2)));
    assert_eq!(linux["supplementalGroups"].as_array().unwrap().len(), 64);
    let mounts = status["volumeMounts"].as_array().unwrap();
    assert_eq!(mounts.len(), 1);
    assert_eq!(mounts[0]["mountPath"], "/data");
    assert_eq!(mounts[0]["recursiveReadOnly"].as_str().unwrap().len(), 256);
}
