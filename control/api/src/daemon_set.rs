//! DaemonSets whose pods Kubernetes would schedule on virtual nodes, which have no node of their own to serve.
//!
//! The admission webhook changes a DaemonSet when it is created or its template changes. A change of the template restarts
//! the pods on all nodes, so a DaemonSet from before the installation is changed only on a user's request.

use crate::{annotations, labels, node_affinity, taints};
use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};

/// Path of the required node affinity in a DaemonSet.
pub const TERMS_PATH: [&str; 7] = [
    "spec",
    "template",
    "spec",
    node_affinity::TERMS[0],
    node_affinity::TERMS[1],
    node_affinity::TERMS[2],
    node_affinity::TERMS[3],
];

/// Returns the required node affinity of a DaemonSet with the absence of the label of virtual nodes in each term.
///
/// Returns `None` if the DaemonSet has it already, if its template selects nodes by that label, or if the annotation
/// [`ALLOW_VIRTUAL_NODES`](annotations::ALLOW_VIRTUAL_NODES) permits virtual nodes.
pub fn terms_without_virtual_nodes(daemon_set: &Value) -> Option<Vec<Value>> {
    let annotations = &daemon_set["metadata"]["annotations"];
    let pod = &daemon_set["spec"]["template"]["spec"];
    if annotations[annotations::ALLOW_VIRTUAL_NODES] == "true"
        || !pod.is_object()
        || names_node_type(pod)
    {
        return None;
    }
    let absent = node_affinity::of_virtual_nodes("DoesNotExist");
    let present = node_affinity::terms(pod);
    let terms: Vec<_> = match present {
        Some(terms) => {
            let terms = terms.iter().cloned();
            let with = |term| node_affinity::with_expression(term, absent.clone());
            terms.map(with).collect()
        }
        None => vec![json!({"matchExpressions": [absent]})],
    };

    (present != Some(&terms)).then_some(terms)
}

/// Returns the merge patch (RFC 7386) that keeps the pods of a DaemonSet off virtual nodes.
///
/// Returns `None` if they are not scheduled there: because of [`terms_without_virtual_nodes`], because they do not tolerate
/// the taint of virtual nodes, or because the DaemonSet has the label [`WEBHOOK_SKIP`](labels::WEBHOOK_SKIP) or is being
/// deleted.
pub fn patch(daemon_set: &DaemonSet) -> Option<Value> {
    let metadata = &daemon_set.metadata;
    let of_metadata = metadata.labels.as_ref();
    let is_skipped = of_metadata
        .and_then(|it| it.get(labels::WEBHOOK_SKIP))
        .is_some_and(|it| it == "true");
    let pod = daemon_set.spec.template.spec.as_ref()?;
    let tolerations = pod.tolerations.as_deref().unwrap_or_default();
    if is_skipped || metadata.deletion_timestamp.is_some() || !taints::is_tolerated(tolerations) {
        return None;
    }
    let terms = terms_without_virtual_nodes(&json!(daemon_set))?;
    let path = TERMS_PATH.iter().rev();

    Some(path.fold(terms.into(), |value, name| json!({*name: value})))
}

/// Returns whether a pod selects nodes by the label of virtual nodes.
fn names_node_type(pod: &Value) -> bool {
    let affinity = &pod["affinity"]["nodeAffinity"];
    let preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"].as_array();
    let preferred = preferred.into_iter().flatten().map(|it| &it["preference"]);
    let required = node_affinity::terms(pod).into_iter().flatten();
    let mut expressions = required
        .chain(preferred)
        .filter_map(|term| term["matchExpressions"].as_array())
        .flatten();

    pod["nodeSelector"].get(labels::NODE_TYPE).is_some()
        || expressions.any(|it| it["key"] == labels::NODE_TYPE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::from_value;

    fn daemon_set(metadata: &Value, pod: &Value) -> DaemonSet {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
        from_value(json!({
            "metadata": metadata,
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
        }))
        .unwrap()
    }

    fn tolerant(further: Value) -> Value {
        let mut pod = json!({
            "containers": [{"name": "agent", "image": "agent:1"}],
            "tolerations": [{"operator": "Exists"}],
        });
        for (key, value) in further.as_object().cloned().unwrap_or_default() {
            pod[key] = value;
        }
        pod
    }

    fn required(terms: &Value) -> Value {
        json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        }})
    }

    fn absent() -> Value {
        json!({"key": "liqo.io/type", "operator": "DoesNotExist"})
    }

    #[test]
    fn the_patch_adds_the_absence_of_the_label_to_each_term() {
        let disk = json!({"key": "disk", "operator": "Exists"});
        for (affinity, expected) in [
            (json!({}), json!([{"matchExpressions": [absent()]}])),
            (
                required(&json!([{"matchExpressions": [disk]}])),
                json!([{"matchExpressions": [disk, absent()]}]),
            ),
        ] {
            let set = daemon_set(
                &json!({"name": "agent"}),
                &tolerant(json!({"affinity": affinity})),
            );
            let affinity = required(&expected);
            let expected = json!({"spec": {"template": {"spec": {"affinity": affinity}}}});

            assert_eq!(patch(&set), Some(expected));
            let patched = daemon_set(
                &json!({"name": "agent"}),
                &tolerant(json!({"affinity": affinity})),
            );
            assert_eq!(patch(&patched), None, "a patched one needs no patch");
        }
    }

    #[test]
    fn a_daemon_set_whose_pods_stay_off_virtual_nodes_needs_no_patch() {
        let mut intolerant = tolerant(json!({}));
        intolerant["tolerations"] =
            json!([{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]);
        let none = json!({"name": "agent"});
        let not_in = json!([{"matchExpressions": [
            {"key": "liqo.io/type", "operator": "NotIn", "values": ["virtual-node"]},
        ]}]);
        for set in [
            daemon_set(&none, &intolerant),
            daemon_set(
                &none,
                &tolerant(json!({"nodeSelector": {"liqo.io/type": "virtual-node"}})),
            ),
            daemon_set(&none, &tolerant(json!({"affinity": required(&not_in)}))),
            daemon_set(
                &json!({"annotations": {"liqo.io/allow-virtual-nodes": "true"}}),
                &tolerant(json!({})),
            ),
            daemon_set(
                &json!({"labels": {"liqo.io/webhook-skip": "true"}}),
                &tolerant(json!({})),
            ),
            daemon_set(
                &json!({"deletionTimestamp": "2026-11-21T07:20:00Z"}),
                &tolerant(json!({})),
            ),
        ] {
            assert_eq!(patch(&set), None, "{set:?}");
        }
        assert!(patch(&daemon_set(&none, &tolerant(json!({})))).is_some());
    }
}
