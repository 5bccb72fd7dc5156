use super::{forged, forged_with, patch};
use crate::pod::forge::{Context, Repatriation};
use crate::pod::tests::context;
use control_api::offloading::virtual_node::OffloadingPatch;
use serde_json::{Value, json};

#[test]
fn fields_that_the_provider_needs_are_copied() {
    let copied = json!({
        "activeDeadlineSeconds": 7,
        "dnsConfig": {"nameservers": ["192.0.2.1"]},
        "dnsPolicy": "None",
        "enableServiceLinks": false,
        "hostAliases": [{"ip": "192.0.2.2", "hostnames": ["db"]}],
        "hostname": "web-0",
        "imagePullSecrets": [{"name": "registry"}],
        "readinessGates": [{"conditionType": "example.com/gate"}],
        "restartPolicy": "OnFailure",
        "securityContext": {"runAsUser": 1000},
        "setHostnameAsFQDN": true,
        "shareProcessNamespace": true,
        "subdomain": "web",
        "terminationGracePeriodSeconds": 3,
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        }],
        "volumes": [{"name": "data", "emptyDir": {}}],
    });

    let spec = forged(&copied, &json!({}));

    for (field, value) in copied.as_object().unwrap() {
        assert_eq!(&spec[field], value, "{field}");
    }
}

#[test]
fn containers_are_copied_apart_from_their_environment() {
    let container = |name: &str| {
        json!({
            "args": ["-v"],
            "envFrom": [{"secretRef": {"name": "s"}}],
            "image": "nginx",
            "name": name,
            "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
            "restartPolicy": "Always",
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        })
    };
    let local = json!({"containers": [container("a")], "initContainers": [container("b")]});

    let mut spec = forged(&local, &json!({}));

    for (list, name) in [("containers", "a"), ("initContainers", "b")] {
        let forged = spec[list][0].as_object_mut().unwrap();
        assert!(forged.remove("env").is_some());
        assert_eq!(spec[list][0], container(name));
    }
}

#[test]
fn fields_of_this_cluster_are_dropped() {
    let dropped = json!({
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}],
        }}},
        "ephemeralContainers": [{"name": "debug"}],
        "hostIPC": true,
        "hostNetwork": true,
        "hostPID": true,
        "hostUsers": true,
        "hostnameOverride": "host",
        "nodeName": "milan",
        "nodeSelector": {"liqo.io/type": "virtual-node"},
        "os": {"name": "linux"},
        "overhead": {"cpu": "1"},
        "preemptionPolicy": "Never",
        "priority": 2_000_000_000,
        "priorityClassName": "system-node-critical",
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        "resources": {"limits": {"cpu": "1"}},
        "schedulerName": "own",
        "schedulingGates": [{"name": "gate"}],
        "serviceAccount": "shop",
        "serviceAccountName": "shop",
    });

    let spec = forged(&dropped, &json!({}));

    let fields: Vec<_> = spec.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["automountServiceAccountToken", "containers"]);
    assert_eq!(spec["automountServiceAccountToken"], false);
}

#[test]
fn the_toleration_of_virtual_nodes_is_replaced_by_those_of_the_patch() {
    let tolerations = json!({"tolerations": [
        {"key": "virtual-node.liqo.io/not-allowed", "operator": "Exists", "effect": "NoExecute"},
        {"key": "virtual-node.liqo.io/not-allowed", "operator": "Exists"},
        {"key": "gpu", "operator": "Exists"},
    ]});
    let patch = patch(json!({"tolerations": [{"key": "tenant", "operator": "Exists"}]}));

    let spec = forged_with(&context(&patch), &tolerations, &json!({}));

    let keys: Vec<_> = spec["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["key"])
        .collect();
    assert_eq!(keys, ["gpu", "tenant"]);
}

fn tolerations_with(repatriation: Option<Repatriation>, seconds: &Value) -> usize {
    let patch = OffloadingPatch::default();
    let context = Context {
        repatriation,
        ..context(&patch)
    };
    let toleration = |key: &str| {
        json!({
            "effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": seconds,
        })
    };
    let tolerations = json!({"tolerations": [
        toleration("node.kubernetes.io/not-ready"),
        toleration("node.kubernetes.io/unreachable"),
        toleration("example.com/other"),
    ]});
    let spec = forged_with(&context, &tolerations, &json!({}));
    spec["tolerations"].as_array().unwrap().len()
}

#[test]
fn only_the_tolerations_of_repatriation_stay_in_this_cluster() {
    assert_eq!(tolerations_with(None, &json!(300)), 3);
    assert_eq!(tolerations_with(None, &Value::Null), 3);
    assert_eq!(tolerations_with(Some(Repatriation::Never), &Value::Null), 1);
    assert_eq!(tolerations_with(Some(Repatriation::Never), &json!(30)), 3);
    assert_eq!(
        tolerations_with(Some(Repatriation::After(30)), &json!(30)),
        1
    );
    assert_eq!(
        tolerations_with(Some(Repatriation::After(30)), &json!(31)),
        3
    );
    assert_eq!(
        tolerations_with(Some(Repatriation::After(30)), &Value::Null),
        3
    );
}

#[test]
fn a_toleration_of_a_failed_node_with_another_operator_or_effect_is_the_users() {
    let patch = OffloadingPatch::default();
    let context = Context {
        repatriation: Some(Repatriation::Never),
        ..context(&patch)
    };
    let tolerations = json!([
        {"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Equal"},
        {"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready", "operator": "Exists"},
    ]);

    let spec = forged_with(&context, &json!({"tolerations": tolerations}), &json!({}));

    assert_eq!(spec["tolerations"], tolerations);
}

#[test]
fn the_node_selector_is_the_patchs() {
    let patch = patch(json!({"nodeSelector": {"tenant": "rome"}}));

    let spec = forged_with(
        &context(&patch),
        &json!({"nodeSelector": {"liqo.io/type": "virtual-node"}}),
        &json!({}),
    );

    assert_eq!(spec["nodeSelector"], json!({"tenant": "rome"}));
}

/// Annotation, local pod, patch; the result.
#[test]
fn the_runtime_class_is_the_annotations_else_the_pods_else_the_patchs() {
    for (annotation, local, of_patch, expected) in [
        (None, None, None, None),
        (None, None, Some("kata"), Some("kata")),
        (None, None, Some("liqo"), None),
        (None, Some("gvisor"), Some("kata"), Some("gvisor")),
        (None, Some("liqo"), None, None),
        (None, Some("liqo"), Some("kata"), Some("kata")),
        (Some("runc"), Some("gvisor"), Some("kata"), Some("runc")),
        (Some(""), Some("gvisor"), Some("kata"), Some("gvisor")),
        (Some("liqo"), Some("gvisor"), None, Some("liqo")),
    ] {
        let annotations = annotation
            .map(|it| json!({"liqo.io/remote-runtime-class-name": it}))
            .unwrap_or_else(|| json!({}));
        let patch = patch(json!({"runtimeClassName": of_patch}));

        let spec = forged_with(
            &context(&patch),
            &json!({"runtimeClassName": local}),
            &annotations,
        );

        assert_eq!(
            spec["runtimeClassName"].as_str(),
            expected,
            "{annotation:?} {local:?} {of_patch:?}"
        );
    }
}

#[test]
fn ephemeral_containers_are_sent_to_a_provider_that_runs_them() {
    let patch = OffloadingPatch::default();
    let ours = Context {
        applies_changes: true,
        ..context(&patch)
    };
    let local = json!({"ephemeralContainers": [{"name": "debug", "targetContainerName": "web"}]});

    let spec = forged_with(&ours, &local, &json!({}));

    let container = &spec["ephemeralContainers"][0];
    assert_eq!(container["targetContainerName"], "web");
    assert_eq!(super::variables(container).len(), 7);
    assert_eq!(forged(&local, &json!({})).get("ephemeralContainers"), None);
}
