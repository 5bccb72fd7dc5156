//! Properties of every pod and every remote status, however absurd.

use super::context;
use crate::pod::forge::{self, ApiServerSupport, Context, HomeApiServer, Repatriation};
use crate::pod::status;
use control_api::offloading::virtual_node::OffloadingPatch;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// Fields that `spec.pod` of a ShadowPod may have.
const FIELDS: [&str; 25] = [
    "activeDeadlineSeconds",
    "affinity",
    "automountServiceAccountToken",
    "containers",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "ephemeralContainers",
    "hostAliases",
    "hostname",
    "imagePullSecrets",
    "initContainers",
    "nodeSelector",
    "readinessGates",
    "restartPolicy",
    "runtimeClassName",
    "securityContext",
    "serviceAccountName",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "subdomain",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
];

const ADDRESS: [IpAddr; 1] = [IpAddr::V4(Ipv4Addr::new(10, 70, 0, 1))];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec![
            "",
            "a",
            "web",
            "liqo",
            "token",
            "kube-root-ca.crt",
            "app",
            "True",
            "10.1.0.1"
        ])
        .prop_map(str::to_owned),
        ".{0,20}",
    ]
}

/// Fields of an object, each of which may be absent.
fn object(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let (names, values): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
    let values: Vec<_> = values.into_iter().map(proptest::option::of).collect();
    values
        .prop_map(move |values| {
            let fields = names.iter().zip(values);
            let fields = fields.filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
            Value::Object(fields.collect::<Map<_, _>>())
        })
        .boxed()
}

fn string() -> BoxedStrategy<Value> {
    text().prop_map(Value::from).boxed()
}

fn boolean() -> BoxedStrategy<Value> {
    any::<bool>().prop_map(Value::from).boxed()
}

fn number() -> BoxedStrategy<Value> {
    prop_oneof![any::<i32>(), -1..3]
        .prop_map(Value::from)
        .boxed()
}

fn list(items: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    vec(items, 0..4).prop_map(Value::from).boxed()
}

fn strings() -> BoxedStrategy<Value> {
    btree_map(text(), text(), 0..4)
        .prop_map(|map| json!(map))
        .boxed()
}

/// Adds fields that the type requires.
fn required(object: BoxedStrategy<Value>, fields: &'static [&'static str]) -> BoxedStrategy<Value> {
    (object, vec(text(), fields.len()))
        .prop_map(move |(mut object, values)| {
            for (field, value) in fields.iter().zip(values) {
                object[field] = json!(value);
            }
            object
        })
        .boxed()
}

fn container() -> BoxedStrategy<Value> {
    let field = required(object(vec![]), &["fieldPath"]);
    let source = object(vec![("fieldRef", field)]);
    let variable = required(
        object(vec![("value", string()), ("valueFrom", source)]),
        &["name"],
    );
    let resources = object(vec![("limits", strings()), ("requests", strings())]);
    required(
        object(vec![
            ("env", list(variable)),
            ("image", string()),
            ("resources", resources),
            (
                "restartPolicy",
                select(vec![json!("Always"), json!("Never")]).boxed(),
            ),
        ]),
        &["name"],
    )
}

fn volume() -> BoxedStrategy<Value> {
    let token = required(
        object(vec![
            ("audience", string()),
            ("expirationSeconds", number()),
        ]),
        &["path"],
    );
    let config_map = required(object(vec![]), &["name"]);
    let source = object(vec![
        ("configMap", config_map.clone()),
        ("secret", config_map.clone()),
        ("serviceAccountToken", token),
    ]);
    let projected = object(vec![("sources", list(source))]);
    required(
        object(vec![("configMap", config_map), ("projected", projected)]),
        &["name"],
    )
}

fn spec() -> BoxedStrategy<Value> {
    let toleration = object(vec![
        ("effect", string()),
        ("key", string()),
        ("operator", string()),
        ("tolerationSeconds", number()),
    ]);
    let spec = object(vec![
        ("ephemeralContainers", list(container())),
        ("hostAliases", list(required(object(vec![]), &["ip"]))),
        ("hostIPC", boolean()),
        ("hostNetwork", boolean()),
        ("hostPID", boolean()),
        ("hostUsers", boolean()),
        ("hostname", string()),
        ("initContainers", list(container())),
        ("nodeName", string()),
        ("nodeSelector", strings()),
        ("overhead", strings()),
        ("priority", number()),
        ("priorityClassName", string()),
        (
            "restartPolicy",
            select(vec![json!("Always"), json!("Never")]).boxed(),
        ),
        ("runtimeClassName", string()),
        ("schedulerName", string()),
        ("serviceAccount", string()),
        ("serviceAccountName", string()),
        ("tolerations", list(toleration)),
        ("volumes", list(volume())),
    ]);
    (spec, list(container()))
        .prop_map(|(mut spec, containers)| {
            spec["containers"] = containers;
            spec
        })
        .boxed()
}

fn annotations() -> BoxedStrategy<Value> {
    let presets = ["soft", "hard", "propagate", ""].map(Value::from).to_vec();
    let supports = ["disabled", "remote", ""].map(Value::from).to_vec();
    object(vec![
        ("liqo.io/anti-affinity-labels", string()),
        ("liqo.io/anti-affinity-preset", select(presets).boxed()),
        ("liqo.io/api-server-support", select(supports).boxed()),
        ("liqo.io/remote-runtime-class-name", string()),
        ("liqo.io/remote-service-account-name", string()),
        ("note", string()),
    ])
}

fn container_status() -> BoxedStrategy<Value> {
    let ended = object(vec![("message", string()), ("reason", string())]).prop_map(|mut it| {
        it["exitCode"] = json!(1);
        it
    });
    let state = object(vec![
        ("running", object(vec![])),
        ("terminated", ended.boxed()),
        ("waiting", object(vec![("message", string())])),
    ]);
    let status = object(vec![
        ("lastState", state.clone()),
        ("resources", object(vec![("limits", strings())])),
        ("state", state),
    ]);
    (
        required(status, &["name", "image", "imageID"]),
        any::<bool>(),
        any::<i32>(),
    )
        .prop_map(|(mut status, ready, count)| {
            status["ready"] = json!(ready);
            status["restartCount"] = json!(count);
            status
        })
        .boxed()
}

fn status() -> BoxedStrategy<Value> {
    let condition = object(vec![
        ("message", string()),
        ("observedGeneration", number()),
    ]);
    let types = select(vec!["Ready", "Initialized", "", "a b"]);
    let condition = (condition, types, text()).prop_map(|(mut condition, type_, status)| {
        condition["type"] = json!(type_);
        condition["status"] = json!(status);
        condition
    });
    object(vec![
        ("conditions", list(condition.boxed())),
        ("containerStatuses", list(container_status())),
        ("hostIP", string()),
        ("initContainerStatuses", list(container_status())),
        ("message", string()),
        ("nominatedNodeName", string()),
        ("observedGeneration", number()),
        ("phase", string()),
        ("podIP", string()),
        ("qosClass", string()),
        ("reason", string()),
    ])
}

fn pod() -> impl Strategy<Value = Pod> {
    let labels = (strings(), any::<bool>()).prop_map(|(mut labels, is_unavailable)| {
        if is_unavailable {
            labels["liqo.io/remote-unavailable"] = json!("true");
        }
        labels
    });
    let name = prop_oneof![text(), "[a-z.-]{240,260}"];
    (spec(), annotations(), labels, name, status()).prop_map(
        |(spec, annotations, labels, name, status)| {
            let metadata = json!({"annotations": annotations, "labels": labels, "name": name});
            let pod = json!({"metadata": metadata, "spec": spec, "status": status});
            serde_json::from_value(pod).unwrap()
        },
    )
}

fn mode() -> impl Strategy<Value = ApiServerSupport> {
    select(vec![ApiServerSupport::Disabled, ApiServerSupport::TokenApi])
}

fn with(patch: &OffloadingPatch, mode: ApiServerSupport) -> Context<'_> {
    Context {
        api_server: HomeApiServer::Alias {
            port: 443,
            addresses: &ADDRESS,
        },
        api_server_support: mode,
        applies_changes: true,
        repatriation: Some(Repatriation::After(1)),
        ..context(patch)
    }
}

/// Returns the keys of the Secret of tokens that the volumes of a ShadowPod refer to.
fn referenced_keys(spec: &Value, secret: &str) -> BTreeSet<String> {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let sources = volumes.filter_map(|it| it["projected"]["sources"].as_array());
    let secrets = sources.flatten().map(|it| &it["secret"]);
    let items = secrets
        .filter(|it| it["name"] == secret)
        .filter_map(|it| it["items"].as_array());
    items
        .flatten()
        .map(|it| it["key"].as_str().unwrap().to_owned())
        .collect()
}

proptest! {
    #[test]
    fn a_shadow_pod_has_only_fields_that_a_provider_may_know(pod in pod(), mode in mode()) {
        let patch = OffloadingPatch::default();

        let shadow_pod = forge::shadow_pod(&pod, &with(&patch, mode));

        let labels = shadow_pod.metadata.labels.as_ref().unwrap();
        prop_assert_eq!(&labels["offloading.liqo.io/origin"], "rome");
        prop_assert!(!labels.contains_key("liqo.io/remote-unavailable"));
        let spec = serde_json::to_value(shadow_pod.spec.pod.unwrap()).unwrap();
        for field in spec.as_object().unwrap().keys() {
            prop_assert!(FIELDS.contains(&field.as_str()), "{}", field);
        }
    }

    /// A provider must not get a token of this cluster that the pod's owner did not request of it.
    #[test]
    fn volumes_refer_to_the_tokens_that_the_secret_has(pod in pod(), mode in mode()) {
        let patch = OffloadingPatch::default();
        let name = pod.metadata.name.clone().unwrap();
        let secret = forge::token::token_secret_name(&name);
        prop_assert!(secret.len() <= 253 || !name.is_ascii());

        let shadow_pod = forge::shadow_pod(&pod, &with(&patch, mode));

        let tokens = forge::token::tokens(&pod, mode);
        let keys: BTreeSet<_> = tokens.iter().map(forge::token::Token::key).collect();
        let spec = serde_json::to_value(shadow_pod.spec.pod.unwrap()).unwrap();
        prop_assert_eq!(referenced_keys(&spec, &secret), keys);
        let is_remote = spec["automountServiceAccountToken"] == json!(true);
        prop_assert!(is_remote || !spec.to_string().contains("serviceAccountToken"));
    }

    #[test]
    fn a_new_shadow_pod_needs_no_change(pod in pod(), mode in mode()) {
        let patch = OffloadingPatch::default();
        let context = with(&patch, mode);

        let spec = forge::shadow_pod(&pod, &context).spec.pod.unwrap();

        // Kubernetes refuses a pod two of whose containers have one name.
        let names = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let names: Vec<_> = names.map(|it| &it.name).collect();
        let are_unique = names.iter().collect::<BTreeSet<_>>().len() == names.len();
        prop_assume!(are_unique);
        prop_assert_eq!(forge::change(&pod, &spec, &context), None);
    }

    #[test]
    fn a_change_is_complete(old in pod(), new in pod(), mode in mode()) {
        let patch = OffloadingPatch::default();
        let context = with(&patch, mode);
        let created = forge::shadow_pod(&old, &context).spec.pod.unwrap();

        if let Some(change) = forge::change(&new, &created, &context) {
            prop_assert_eq!(forge::change(&new, &change.spec.unwrap(), &context), None);
        }
    }

    #[test]
    fn a_status_that_was_written_is_not_written_again(pod in pod(), remote in status()) {
        let remote: PodStatus = serde_json::from_value(remote).unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let local = |pod: &Pod, now| {
            let context = status::Context {
                pod, map_ip: &Some, host_ip: Some(ADDRESS[0]), is_unavailable: false, generation: Some(1), restarts: 1, reported: &BTreeSet::new(), now,
            };
            status::local(&remote, &context)
        };

        let first = local(&pod, now);
        let written = Pod { status: Some(first.clone()), ..pod };

        let later = now + SignedDuration::from_secs(60);
        prop_assert_eq!(local(&written, later), first);
    }

    #[test]
    fn a_status_names_only_containers_of_the_pod(pod in pod(), remote in status()) {
        let remote: PodStatus = serde_json::from_value(remote).unwrap();
        let context = status::Context {
            pod: &pod, map_ip: &Some, host_ip: None, is_unavailable: false, generation: Some(1), restarts: 1, reported: &BTreeSet::new(), now: Timestamp::UNIX_EPOCH,
        };

        let status = status::local(&remote, &context);

        let spec = pod.spec.as_ref().unwrap();
        let names: Vec<_> = spec.containers.iter().map(|it| &it.name).collect();
        let statuses = status.container_statuses.unwrap_or_default();
        prop_assert!(statuses.len() <= names.len());
        for status in statuses {
            prop_assert!(names.contains(&&status.name));
            // That of a container that has terminated is kept, as the API server has checked it.
            let mut present = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
            prop_assert!(status.restart_count >= 0 || present.any(|it| *it == status));
        }
    }

    #[test]
    fn a_fallback_is_final(pod in pod()) {
        let first = status::fallback(&pod, Timestamp::UNIX_EPOCH);
        let later = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(60);
        let written = Pod { status: Some(first.clone()), ..pod };

        prop_assert_eq!(status::fallback(&written, later), first);
    }
}
