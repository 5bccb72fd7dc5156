//! The objects of pod `demo/web` of cluster `rome`, which runs at `milan`.

use crate::commands::info::pod::chain::Chain;
use crate::commands::info::pod::facts::{Counterparts, Facts, Provider, Read};
use crate::commands::info::pod::link::{Link, State};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Returns the pod of this cluster.
pub(super) fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web", "namespace": "demo", "uid": "local-uid",
            "labels": {"liqo.io/shadowPod": "true"},
        },
        "spec": {
            "nodeName": "milan", "serviceAccountName": "web",
            "containers": [{"name": "web", "image": "web:1"}],
            "volumes": [{"name": "token", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "kube-root-ca.crt"}},
            ]}}],
        },
        "status": {"phase": "Running", "podIP": "10.71.1.7"},
    })
}

/// Returns the NamespaceOffloading of namespace `demo`.
pub(super) fn offloading() -> Value {
    json!({
        "apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceOffloading",
        "metadata": {"name": "offloading", "namespace": "demo"},
        "spec": {"podOffloadingStrategy": "LocalAndRemote"},
        "status": {"offloadingPhase": "Ready", "remoteNamespacesConditions": {"milan": [
            {"type": "Ready", "status": "True"},
        ]}},
    })
}

/// Returns the virtual node.
pub(super) fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "milan", "labels": {"liqo.io/type": "virtual-node"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// Returns its VirtualNode.
pub(super) fn virtual_node() -> Value {
    json!({
        "apiVersion": "offloading.liqo.io/v1beta1", "kind": "VirtualNode",
        "metadata": {"name": "milan", "namespace": "liqo-tenant-milan"},
        "spec": {"clusterID": "milan", "kubeconfigSecretRef": {"name": "kubeconfig-resourceslice-milan"}},
        "status": {"conditions": [
            {"type": "VirtualKubelet", "status": "Running"}, {"type": "Node", "status": "Running"},
        ]},
    })
}

/// Returns the NamespaceMap, whose mapping has this phase.
pub(super) fn map(phase: &str) -> Value {
    json!({
        "apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceMap",
        "metadata": {"name": "milan", "namespace": "liqo-tenant-milan"},
        "spec": {"desiredMapping": {"demo": "demo-rome"}},
        "status": {"currentMapping": {"demo": {"phase": phase, "remoteNamespace": "demo-rome"}}},
    })
}

/// Returns the ForeignCluster, whose tunnel has this status.
pub(super) fn foreign(tunnel: &str) -> Value {
    json!({
        "apiVersion": "core.liqo.io/v1beta1", "kind": "ForeignCluster",
        "metadata": {"name": "milan"}, "spec": {"clusterID": "milan"},
        "status": {
            "role": "Provider", "apiServerUrl": "https://172.18.2.2:6443",
            "modules": {"networking": {"enabled": true, "conditions": [{
                "type": "NetworkConnectionStatus", "status": tunnel, "message": "no handshake arrives",
            }]}},
        },
    })
}

/// Returns the ShadowPod at the provider.
pub(super) fn shadow() -> Value {
    json!({
        "apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod",
        "metadata": {"name": "web", "namespace": "demo-rome", "uid": "shadow-uid", "labels": {
            "offloading.liqo.io/origin": "rome", "offloading.liqo.io/nodename": "milan",
            "liqo.io/creator-user": "rome-a8a4c692b93b",
        }},
        "spec": {}, "status": {"phase": "Running"},
    })
}

/// Returns the remote pod with this status.
pub(super) fn remote(status: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "demo-rome", "uid": "remote-uid"},
        "spec": {"nodeName": "milan-worker", "containers": []},
        "status": status,
    })
}

/// Returns the status of a remote pod that serves.
pub(super) fn serving() -> Value {
    json!({
        "phase": "Running", "podIP": "10.244.1.7", "podIPs": [{"ip": "10.244.1.7"}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "web", "image": "web:1", "imageID": "", "ready": true, "restartCount": 2,
            "state": {"running": {}},
        }],
    })
}

/// Returns a warning about an object, at a second.
pub(super) fn warning(
    (kind, name, uid): (&str, &str, &str),
    (reason, message): (&str, &str),
    second: u32,
) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("{name}.{second}")},
        "involvedObject": {"kind": kind, "name": name, "uid": uid},
        "type": "Warning", "reason": reason, "message": message,
        "eventTime": format!("2026-11-21T07:20:{second:02}.000000Z"),
    })
}

/// Returns facts of a chain that is whole.
pub(super) fn facts() -> Facts {
    Facts {
        cluster_id: "rome".to_owned(),
        pod: of(pod()),
        events: Vec::new(),
        offloading: found(offloading()),
        node: found(node()),
        virtual_node: found(virtual_node()),
        foreign: found(foreign("Established")),
        map: found(map("Accepted")),
        provider: Provider::Open(Box::new(counterparts())),
    }
}

/// Returns the objects at the provider.
pub(super) fn counterparts() -> Counterparts {
    Counterparts {
        version: "v1.35.0".to_owned(),
        shadow: found(shadow()),
        pod: found(remote(&serving())),
        events: Read::Found(Vec::new()),
    }
}

/// Returns facts with other objects at the provider.
pub(super) fn with_counterparts(change: impl FnOnce(&mut Counterparts)) -> Facts {
    let mut counterparts = counterparts();
    change(&mut counterparts);
    Facts {
        provider: Provider::Open(Box::new(counterparts)),
        ..facts()
    }
}

/// Parses an object.
pub(super) fn of<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("an object")
}

/// Returns an object that was read.
pub(super) fn found<K: DeserializeOwned>(object: Value) -> Read<K> {
    Read::Found(of(object))
}

/// Returns the first broken link and its reason.
#[track_caller]
pub(super) fn broken(facts: &Facts) -> (&'static str, String) {
    let chain = Chain::of(facts);
    let end = chain.end().expect("a broken link");
    let (name, state, reason) = end.shown();
    assert_eq!(state, State::Broken, "{name}: {reason}");
    (name, reason.to_owned())
}

/// Returns a link.
pub(super) fn link(facts: &Facts, name: &str) -> Link {
    let chain = Chain::of(facts);
    let mut links = chain.links.into_iter();
    links.find(|it| it.shown().0 == name).expect("the link")
}
