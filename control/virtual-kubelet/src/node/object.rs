//! The Node object.

use super::condition::{State, capacity};
use crate::settings::Settings;
use control_api::annotations::REMOTE_POD_CIDRS;
use control_api::quantity::amount;
use control_api::{VirtualNode, labels};
use ipam::Remap;
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

type Map = BTreeMap<String, String>;
type Quantities = BTreeMap<String, Quantity>;

/// Key of the taint by which only pods of offloaded namespaces are scheduled on virtual nodes.
const TAINT: &str = "virtual-node.liqo.io/not-allowed";

/// Key of the taint by which no pods are scheduled while the API server of the provider does not respond.
const AWAY_TAINT: &str = "virtual-node.liqo.io/api-server-unreachable";

/// Annotation of the Node with the labels and annotations that the virtual kubelet has written last, as upstream's.
const LAST_APPLIED: &str = "virtual-kubelet.io/last-applied-object-meta";

/// Labels and annotations of the Node that its VirtualNode and the flags determine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Metadata {
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
}

/// Returns the labels and annotations of the Node. One of these annotations contains all others, so that the next virtual
/// kubelet removes what its VirtualNode no longer has.
pub(super) fn metadata(settings: &Settings, node: &VirtualNode) -> Metadata {
    let mut metadata = Metadata {
        annotations: annotations(settings, node),
        labels: labels(settings, node),
    };
    let applied = json!(metadata).to_string();
    let key = LAST_APPLIED.to_owned();
    metadata.annotations.insert(key, applied);

    metadata
}

/// Returns the merge patch of a Node's metadata; `None` if it is as desired. Labels and annotations of others stay.
pub(super) fn change(present: &ObjectMeta, desired: &Metadata) -> Option<Value> {
    let annotations = present.annotations.clone().unwrap_or_default();
    let labels = present.labels.clone().unwrap_or_default();
    // Also that of upstream, which contains further fields.
    let applied = annotations.get(LAST_APPLIED);
    let applied = applied.and_then(|it| serde_json::from_str::<Metadata>(it).ok());
    let applied = applied.unwrap_or_default();
    let patch = json!({
        "annotations": difference(&annotations, &desired.annotations, &applied.annotations),
        "labels": difference(&labels, &desired.labels, &applied.labels),
    });

    (patch != json!({"annotations": {}, "labels": {}})).then_some(patch)
}

/// Returns the entries that differ, and `null` for those that were applied and are no longer desired.
fn difference(present: &Map, desired: &Map, applied: &Map) -> serde_json::Map<String, Value> {
    let removed = applied
        .keys()
        .filter(|it| !desired.contains_key(*it) && present.contains_key(*it));
    let removed = removed.map(|key| (key.clone(), Value::Null));
    let changed = desired
        .iter()
        .filter(|(key, value)| present.get(*key) != Some(value));
    let changed = changed.map(|(key, value)| (key.clone(), json!(value)));

    removed.chain(changed).collect()
}

fn labels(settings: &Settings, node: &VirtualNode) -> BTreeMap<String, String> {
    let has_storage = settings.has_storage.to_string();
    let fixed = [
        ("kubernetes.io/hostname", settings.node.as_str()),
        ("kubernetes.io/role", "agent"),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        (labels::NODE_TYPE, labels::NODE_TYPE_VIRTUAL),
        ("type", "virtual-kubelet"),
        (labels::REMOTE_CLUSTER_ID, settings.provider.as_str()),
        (
            "node.kubernetes.io/exclude-from-external-load-balancers",
            "true",
        ),
        (
            "alpha.service-controller.kubernetes.io/exclude-balancer",
            "true",
        ),
        (labels::STORAGE_AVAILABLE, has_storage.as_str()),
    ];
    // Last, so that neither the provider nor a user makes it another kind of node.
    let mut all = node.spec.labels.clone();
    all.extend(settings.labels.clone());
    all.extend(fixed.map(|(key, value)| (key.to_owned(), value.to_owned())));

    all
}

fn annotations(settings: &Settings, node: &VirtualNode) -> BTreeMap<String, String> {
    let mut all = node.spec.annotations.clone();
    all.extend(settings.annotations.clone());
    all.remove(REMOTE_POD_CIDRS);
    let remaps = settings.pod_remaps.iter();
    let remaps: Vec<_> = remaps.map(Remap::to_pair).collect();
    if !remaps.is_empty() {
        all.insert(REMOTE_POD_CIDRS.to_owned(), remaps.join(","));
    }

    all
}

/// Returns the taints of the Node.
pub(super) fn taints(node: &VirtualNode, state: State) -> Vec<Taint> {
    let own = Taint {
        effect: "NoExecute".to_owned(),
        key: TAINT.to_owned(),
        value: Some("true".to_owned()),
        ..Taint::default()
    };
    let away = state.is_away.then(|| Taint {
        effect: "NoSchedule".to_owned(),
        key: AWAY_TAINT.to_owned(),
        ..Taint::default()
    });
    let further = node.spec.taints.iter();
    let further = further.filter(|it| it.key != TAINT && it.key != AWAY_TAINT);

    [own]
        .into_iter()
        .chain(away)
        .chain(further.cloned())
        .collect()
}

/// Returns the taints that a Node with these ones should have; `None` if nothing differs. Others are of users and of Kubernetes.
pub(super) fn changed_taints(present: &Node, desired: &[Taint]) -> Option<Vec<Taint>> {
    let current = present.spec.as_ref().and_then(|it| it.taints.as_ref());
    let current = current.map(Vec::as_slice).unwrap_or_default();
    let missing: Vec<_> = desired.iter().filter(|it| !current.contains(it)).collect();
    let is_kept = |taint: &&Taint| {
        let mut replacing = missing.iter();
        let is_replaced = replacing.any(|it| it.key == taint.key && it.effect == taint.effect);
        !is_replaced && (taint.key != AWAY_TAINT || desired.contains(taint))
    };
    let kept: Vec<_> = current.iter().filter(is_kept).collect();
    if missing.is_empty() && kept.len() == current.len() {
        return None;
    }

    Some(missing.into_iter().chain(kept).cloned().collect())
}

/// Returns whether a Node represents the resources of the provider.
pub(super) fn is_own(settings: &Settings, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let is = |key: &str, value: &str| {
        labels
            .and_then(|it| it.get(key))
            .is_some_and(|it| it == value)
    };

    is(labels::NODE_TYPE, labels::NODE_TYPE_VIRTUAL)
        && is(labels::REMOTE_CLUSTER_ID, &settings.provider)
}

/// Returns the status of the Node.
pub(super) fn status(
    settings: &Settings,
    node: &VirtualNode,
    (state, old): (State, &NodeStatus),
    now: Timestamp,
) -> NodeStatus {
    let capacity = capacity(node);
    let as_written = |old: Option<&Quantities>| as_written(&capacity, old);
    let conditions = old.conditions.as_deref().unwrap_or_default();

    NodeStatus {
        addresses: Some(vec![NodeAddress {
            address: settings.address.to_string(),
            type_: "InternalIP".to_owned(),
        }]),
        allocatable: Some(as_written(old.allocatable.as_ref())),
        capacity: Some(as_written(old.capacity.as_ref())),
        conditions: Some(state.conditions(conditions, now)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint {
                port: settings.kubelet_port.into(),
            }),
        }),
        images: (!node.spec.images.is_empty()).then(|| node.spec.images.clone()),
        node_info: Some(NodeSystemInfo {
            architecture: "amd64".to_owned(),
            kubelet_version: settings.version.clone(),
            operating_system: "Linux".to_owned(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

/// Returns quantities, as the present ones are written where they are equal: the API server stores `1024Mi` as `1Gi`.
fn as_written(desired: &Quantities, present: Option<&Quantities>) -> Quantities {
    let as_written = |(name, quantity): (&String, &Quantity)| {
        let is_equal = |it: &&Quantity| {
            let desired = amount(&quantity.0);
            desired.is_some() && desired == amount(&it.0)
        };
        let present = present.and_then(|it| it.get(name));
        let quantity = present.filter(is_equal).unwrap_or(quantity);
        (name.clone(), quantity.clone())
    };

    desired.iter().map(as_written).collect()
}

/// The fields of a status that this process writes, without the times of heartbeats.
pub(super) fn written(status: &NodeStatus) -> NodeStatus {
    let conditions = status.conditions.clone().map(|conditions| {
        let plain = conditions.into_iter().map(|mut condition| {
            condition.last_heartbeat_time = None;
            condition
        });
        plain.collect()
    });

    NodeStatus {
        addresses: status.addresses.clone(),
        allocatable: status.allocatable.clone(),
        capacity: status.capacity.clone(),
        conditions,
        daemon_endpoints: status.daemon_endpoints.clone(),
        images: status.images.clone().filter(|it| !it.is_empty()),
        node_info: status.node_info.clone(),
        ..NodeStatus::default()
    }
}
