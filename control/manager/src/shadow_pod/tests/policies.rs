//! Which pods the levels of Kubernetes' Pod Security Standards permit, and what lists of the policy permit.

use crate::shadow_pod::policy::Profile;
use control_api::TenantPolicySpec;
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, from_value, json};
use std::collections::BTreeMap;

/// Returns a pod that every level permits.
fn pod() -> Value {
    json!({
        "automountServiceAccountToken": false,
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "i", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        }}],
    })
}

/// Sets a field of a pod by its JSON pointer, with the objects around it.
fn with(pointer: &str, value: &Value) -> Value {
    let mut pod = pod();
    let mut place = &mut pod;
    for name in pointer.split('/').skip(1) {
        place = match name.parse::<usize>() {
            Ok(number) => {
                if !place.is_array() {
                    *place = json!([{}]);
                }
                &mut place[number]
            }
            Err(_) => &mut place[name],
        };
    }
    *place = value.clone();
    pod
}

fn verdict(policy: &Value, annotations: &Value, pod: &Value) -> Result<(), String> {
    let annotations: BTreeMap<_, _> = from_value(annotations.clone()).unwrap();
    let spec: PodSpec = from_value(pod.clone()).unwrap();
    let policy: TenantPolicySpec = from_value(policy.clone()).unwrap();
    let checked = Profile::of("demo-rome", &annotations, &spec).check(Some(&policy));
    checked.map_err(|refusal| refusal.to_string())
}

fn permits(level: &str, pod: &Value) -> bool {
    verdict(&json!({"podSecurity": level}), &json!({}), pod).is_ok()
}

/// Checks whether `privileged`, `baseline` and `restricted` permit pods with a field.
#[track_caller]
fn assert_levels(expected: [bool; 3], fields: &[(&str, Value)]) {
    for (pointer, value) in fields {
        let pod = with(pointer, value);
        let permitted = ["privileged", "baseline", "restricted"].map(|level| permits(level, &pod));
        assert_eq!(permitted, expected, "{pointer}: {value}");
        if !permitted[1] {
            let refusal = verdict(&json!({}), &json!({}), &pod).unwrap_err();
            let (field, remedy) = (refusal.split(' ').next().unwrap(), refusal.contains(": "));
            assert!(
                remedy && (field.starts_with("spec.pod") || field.starts_with("metadata")),
                "{refusal}"
            );
        }
    }
}

const ALL: [bool; 3] = [true, true, true];
const ONLY_PRIVILEGED: [bool; 3] = [true, false, false];
const NOT_RESTRICTED: [bool; 3] = [true, true, false];
const NONE: [bool; 3] = [false, false, false];

#[test]
fn an_absent_policy_is_baseline() {
    let spec: PodSpec = from_value(with("/hostNetwork", &json!(true))).unwrap();
    let profile = Profile::of("demo-rome", &BTreeMap::new(), &spec);
    let refusal = profile.check(None).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "spec.pod.hostNetwork shares a namespace of the node, which violates Pod Security `baseline`: remove it, or the \
         provider sets spec.podSecurity of the consumer's TenantPolicy"
    );
    let spec: PodSpec =
        from_value(json!({"automountServiceAccountToken": false, "containers": []})).unwrap();
    assert_eq!(
        Profile::of("demo-rome", &BTreeMap::new(), &spec).check(None),
        Ok(())
    );
}

#[test]
fn baseline_refuses_known_privilege_escalations() {
    assert_levels(ALL, &[("/hostNetwork", json!(false))]);
    assert_levels(
        ONLY_PRIVILEGED,
        &[
            ("/hostNetwork", json!(true)),
            ("/hostPID", json!(true)),
            ("/hostIPC", json!(true)),
            (
                "/securityContext/windowsOptions",
                json!({"hostProcess": true}),
            ),
            (
                "/containers/0/securityContext/windowsOptions",
                json!({"hostProcess": true}),
            ),
            ("/containers/0/securityContext/privileged", json!(true)),
            (
                "/initContainers/0",
                json!({"name": "i", "securityContext": {"privileged": true}}),
            ),
            (
                "/ephemeralContainers/0",
                json!({"name": "e", "securityContext": {"privileged": true}}),
            ),
            (
                "/containers/0/securityContext/capabilities/add",
                json!(["SYS_ADMIN"]),
            ),
            (
                "/containers/0/securityContext/capabilities/add",
                json!(["NET_RAW"]),
            ),
            (
                "/containers/0/securityContext/capabilities/add",
                json!(["ALL"]),
            ),
            (
                "/volumes/0",
                json!({"name": "v", "hostPath": {"path": "/"}}),
            ),
            (
                "/containers/0/ports",
                json!([{"containerPort": 80, "hostPort": 80}]),
            ),
        ],
    );
}

#[test]
fn baseline_refuses_unconfined_profiles() {
    assert_levels(
        ONLY_PRIVILEGED,
        &[
            ("/containers/0/securityContext/procMount", json!("Unmasked")),
            (
                "/containers/0/securityContext/seccompProfile",
                json!({"type": "Unconfined"}),
            ),
            (
                "/securityContext/seccompProfile",
                json!({"type": "Unconfined"}),
            ),
            (
                "/securityContext/appArmorProfile",
                json!({"type": "Unconfined"}),
            ),
            (
                "/containers/0/securityContext/appArmorProfile",
                json!({"type": "Unconfined"}),
            ),
            ("/securityContext/seLinuxOptions", json!({"type": "spc_t"})),
            ("/securityContext/seLinuxOptions", json!({"user": "root"})),
            (
                "/containers/0/securityContext/seLinuxOptions",
                json!({"role": "sysadm_r"}),
            ),
            (
                "/securityContext/sysctls",
                json!([{"name": "kernel.msgmax", "value": "1"}]),
            ),
            (
                "/securityContext/sysctls",
                json!([{"name": "net.core.somaxconn", "value": "1"}]),
            ),
        ],
    );
}

#[test]
fn baseline_refuses_probes_and_hooks_of_other_hosts() {
    assert_levels(
        ONLY_PRIVILEGED,
        &[
            (
                "/containers/0/livenessProbe",
                json!({"httpGet": {"host": "169.254.169.254", "port": 80}}),
            ),
            (
                "/containers/0/startupProbe",
                json!({"tcpSocket": {"host": "10.0.0.1", "port": 80}}),
            ),
            (
                "/containers/0/lifecycle",
                json!({"preStop": {"httpGet": {"host": "localhost", "port": 80}}}),
            ),
            (
                "/containers/0/lifecycle",
                json!({"postStart": {"tcpSocket": {"host": "localhost", "port": 80}}}),
            ),
        ],
    );
}

#[test]
fn baseline_permits_confined_pods() {
    assert_levels(
        ALL,
        &[
            (
                "/containers/0/securityContext/capabilities/add",
                json!(["NET_BIND_SERVICE"]),
            ),
            (
                "/containers/0/ports",
                json!([{"containerPort": 80, "hostPort": 0}]),
            ),
            ("/containers/0/securityContext/procMount", json!("Default")),
            (
                "/securityContext/appArmorProfile",
                json!({"type": "RuntimeDefault"}),
            ),
            (
                "/securityContext/seccompProfile",
                json!({"type": "Localhost", "localhostProfile": "p"}),
            ),
            (
                "/securityContext/seLinuxOptions",
                json!({"type": "container_t", "level": "s0"}),
            ),
            (
                "/securityContext/sysctls",
                json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]),
            ),
            (
                "/containers/0/readinessProbe",
                json!({"httpGet": {"host": "", "port": 80}}),
            ),
        ],
    );
}

#[test]
fn restricted_needs_hardened_pods() {
    assert_levels(
        NOT_RESTRICTED,
        &[
            (
                "/containers/0/securityContext/allowPrivilegeEscalation",
                Value::Null,
            ),
            (
                "/containers/0/securityContext/allowPrivilegeEscalation",
                json!(true),
            ),
            ("/securityContext/runAsNonRoot", Value::Null),
            ("/containers/0/securityContext/runAsNonRoot", json!(false)),
            ("/securityContext/runAsUser", json!(0)),
            ("/containers/0/securityContext/runAsUser", json!(0)),
            ("/securityContext/seccompProfile", Value::Null),
            (
                "/containers/0/securityContext/capabilities/drop",
                json!(["NET_RAW"]),
            ),
            (
                "/containers/0/securityContext/capabilities/add",
                json!(["CHOWN"]),
            ),
            ("/initContainers/0", json!({"name": "i"})),
            (
                "/volumes/0",
                json!({"name": "v", "image": {"reference": "r"}}),
            ),
        ],
    );
    assert_levels(
        ALL,
        &[
            ("/containers/0/securityContext/runAsNonRoot", json!(true)),
            ("/securityContext/runAsUser", json!(1000)),
        ],
    );
    let mut windows = pod();
    windows["os"] = json!({"name": "windows"});
    windows["containers"][0]["securityContext"] = json!({});
    assert!(permits("restricted", &windows));
}

#[test]
fn volumes_are_of_listed_kinds() {
    for kind in [
        json!({"configMap": {"name": "x"}}),
        json!({"csi": {"driver": "d"}}),
        json!({"downwardAPI": {}}),
        json!({"emptyDir": {}}),
        json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}),
        json!({"persistentVolumeClaim": {"claimName": "x"}}),
        json!({"projected": {"sources": [{"secret": {"name": "x"}}]}}),
        json!({"secret": {"secretName": "x"}}),
        json!({}),
    ] {
        let mut volume = kind;
        volume["name"] = json!("v");
        assert_levels(ALL, &[("/volumes/0", volume)]);
    }
    for kind in [
        json!({"nfs": {"server": "10.0.0.1", "path": "/"}}),
        json!({"iscsi": {"targetPortal": "p", "iqn": "q", "lun": 0}}),
        json!({"rbd": {"monitors": ["m"], "image": "i"}}),
        json!({"cephfs": {"monitors": ["m"]}}),
        json!({"fc": {}}),
        json!({"flexVolume": {"driver": "d"}}),
        json!({"gitRepo": {"repository": "r"}}),
        json!({"awsElasticBlockStore": {"volumeID": "v"}}),
        json!({"emptyDir": {}, "hostPath": {"path": "/"}}),
        json!({"emptyDir": {}, "nfs": {"server": "s", "path": "/"}}),
        json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeName": "pv-of-another"}}}}),
    ] {
        let mut volume = kind;
        volume["name"] = json!("v");
        let pod = with("/volumes/0", &volume);
        assert!(!permits("baseline", &pod), "{volume}");
        assert!(permits("privileged", &pod), "{volume}");
    }
}

#[test]
fn pods_stay_apart_from_the_control_plane_and_from_other_namespaces() {
    let term = |extra: Value| {
        let mut term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {}});
        term.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        term
    };
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    assert_levels(
        ONLY_PRIVILEGED,
        &[
            ("/tolerations", json!([{"operator": "Exists"}])),
            (
                "/tolerations",
                json!([{"operator": "Exists", "effect": "NoExecute"}]),
            ),
            (
                "/tolerations",
                json!([{"key": "a"}, {"key": "node-role.kubernetes.io/control-plane"}]),
            ),
            (
                "/tolerations",
                json!([{"key": "node-role.kubernetes.io/master", "operator": "Exists"}]),
            ),
            (
                "/tolerations",
                json!([{"key": "virtual-node.liqo.io/not-allowed", "operator": "Exists"}]),
            ),
            (
                "/affinity/podAntiAffinity",
                json!({required: [term(json!({"namespaceSelector": {}}))]}),
            ),
            (
                "/affinity/podAffinity",
                json!({required: [term(json!({"namespaces": ["demo-rome", "kube-system"]}))]}),
            ),
            (
                "/affinity/podAntiAffinity",
                json!({preferred: [
                    {"weight": 1, "podAffinityTerm": term(json!({"namespaces": ["default"]}))}
                ]}),
            ),
        ],
    );
    assert_levels(
        ALL,
        &[
            (
                "/tolerations",
                json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 300}]),
            ),
            (
                "/tolerations",
                json!([{"key": "dedicated", "value": "gpu"}]),
            ),
            (
                "/affinity/podAntiAffinity",
                json!({required: [term(json!({}))]}),
            ),
            // As older charts of Bitnami write it.
            (
                "/affinity/podAntiAffinity",
                json!({required: [term(json!({"namespaces": ["demo-rome"]}))]}),
            ),
        ],
    );
}

#[test]
fn no_level_permits_what_bypasses_scheduler_and_quota() {
    assert_levels(
        NONE,
        &[
            ("/nodeName", json!("cp-1")),
            ("/schedulerName", json!("mine")),
            ("/priority", json!(2_000_000_000)),
            ("/priority", json!(-1)),
            (
                "/resourceClaims",
                json!([{"name": "gpu", "resourceClaimName": "x"}]),
            ),
            ("/serviceAccountName", json!("admin")),
            ("/serviceAccount", json!("admin")),
            ("/priorityClassName", json!("system-node-critical")),
            ("/automountServiceAccountToken", Value::Null),
            ("/automountServiceAccountToken", json!(true)),
            (
                "/volumes/0",
                json!({"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}),
            ),
            (
                "/volumes/0",
                json!({"name": "v", "projected": {"sources": [
                    {"podCertificate": {"signerName": "s", "keyType": "ED25519"}}
                ]}}),
            ),
        ],
    );
    assert_levels(
        ALL,
        &[
            ("/nodeName", json!("")),
            ("/schedulerName", json!("default-scheduler")),
            ("/priority", json!(0)),
            ("/serviceAccountName", json!("default")),
        ],
    );
    let mirror = json!({"kubernetes.io/config.mirror": "x"});
    assert!(verdict(&json!({"podSecurity": "privileged"}), &mirror, &pod()).is_err());
}

#[test]
fn annotations_of_apparmor_follow_baseline() {
    let key = "container.apparmor.security.beta.kubernetes.io/c";
    for (profile, is_permitted) in [
        ("runtime/default", true),
        ("localhost/p", true),
        ("unconfined", false),
        ("other", false),
    ] {
        let permitted = verdict(&json!({}), &json!({key: profile}), &pod()).is_ok();
        assert_eq!(permitted, is_permitted, "{profile}");
    }
}

#[test]
fn names_are_permitted_by_the_lists_of_the_policy() {
    let token = with("/automountServiceAccountToken", &json!(true));
    let mut named = token.clone();
    named["serviceAccountName"] = json!("worker");
    let priority = with("/priorityClassName", &json!("high"));
    let runtime = with("/runtimeClassName", &json!("kata"));
    for (policy, pod, is_permitted) in [
        (json!({}), &token, false),
        (json!({"serviceAccounts": ["default"]}), &token, true),
        (json!({"serviceAccounts": ["worker"]}), &token, false),
        (json!({"serviceAccounts": ["default"]}), &named, false),
        (json!({"serviceAccounts": ["worker"]}), &named, true),
        (json!({"priorityClasses": ["low"]}), &priority, false),
        (json!({"priorityClasses": ["high"]}), &priority, true),
        (json!({}), &runtime, true),
        (json!({"runtimeClasses": []}), &runtime, false),
        (json!({"runtimeClasses": ["kata"]}), &runtime, true),
    ] {
        let permitted = verdict(&policy, &json!({}), pod);
        assert_eq!(permitted.is_ok(), is_permitted, "{policy}: {permitted:?}");
    }
    let refusal = verdict(&json!({}), &json!({}), &named).unwrap_err();
    assert_eq!(
        refusal,
        "spec.pod.serviceAccountName is `worker`, which the provider does not permit: remove it, or the provider lists it \
         in spec.serviceAccounts of the consumer's TenantPolicy"
    );
}
