//! The Deployment for which upstream's `liqoctl` waits. It only shows that the gateway serves its peer.

use super::Planner;
use super::gateway::Gateway;
use crate::network::kind::{Key, Kind};
use crate::network::local::is_terminating;
use crate::network::write::{Action, Write, covers};
use control_api::labels;
use serde_json::{Value, json};

/// Creates the Deployment of a gateway, if the settings enable Deployments, and deletes the peer's other ones.
///
/// It has a pod while a replica of the shared gateway is ready.
pub(super) fn writes(
    planner: &Planner<'_>,
    peer: &str,
    gateway: Option<&Gateway<'_>>,
) -> Vec<Write> {
    let image = planner.settings.deployment_image.as_deref();
    let desired = gateway
        .zip(image)
        .filter(|(gateway, _)| gateway.check().is_ok());
    let desired = desired.map(|(gateway, image)| {
        let key = Key::new(gateway.key().namespace.clone(), gateway.derived_name());
        let object = object(planner, &key, gateway, peer, image);
        (key, object)
    });
    let placed = planner.local.of_peer(peer);
    let mut writes: Vec<_> = placed
        .into_iter()
        .filter(|(kind, key)| {
            *kind == Kind::Deployment && desired.as_ref().is_none_or(|(desired, _)| desired != *key)
        })
        .filter_map(|(_, key)| {
            let meta = &planner.local.deployment(key)?.metadata;
            // The others are of virtual kubelets.
            let labels = meta.labels.as_ref()?;
            labels
                .get(labels::COMPONENT)
                .filter(|it| *it == labels::COMPONENT_GATEWAY)?;
            let delete = Action::Delete(meta.uid.clone());
            (!is_terminating(meta)).then(|| Write::new(Kind::Deployment, key, delete))
        })
        .collect();
    let Some((key, object)) = desired else {
        return writes;
    };
    match planner.local.deployment(&key) {
        None => writes.push(Write::new(Kind::Deployment, &key, Action::Create(object))),
        Some(present) => {
            let actual = serde_json::to_value(present).unwrap_or_default();
            if !is_terminating(&present.metadata) && !covers(&actual, &object) {
                writes.push(Write::new(Kind::Deployment, &key, Action::Apply(object)));
            }
        }
    }

    writes
}

fn object(
    planner: &Planner<'_>,
    key: &Key,
    gateway: &Gateway<'_>,
    peer: &str,
    image: &str,
) -> Value {
    let (ready, _) = planner.local.cluster().replicas;
    let selector = json!({
        labels::APP_NAME: gateway.key().name,
        labels::COMPONENT: labels::COMPONENT_GATEWAY,
        labels::GATEWAY_NAME: gateway.key().name,
        labels::GATEWAY_NAMESPACE: gateway.key().namespace,
    });
    let mut labels_of_all = selector.clone();
    labels_of_all[labels::REMOTE_CLUSTER_ID] = json!(peer);
    labels_of_all[labels::MANAGED] = json!("true");
    let mut labels_of_pods = selector.clone();
    labels_of_pods[labels::ACTIVE] = json!("true");

    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": labels_of_all,
            "ownerReferences": [gateway.owner()],
        },
        "spec": {
            "replicas": i32::from(ready > 0),
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": labels_of_pods},
                "spec": {
                    "automountServiceAccountToken": false,
                    "containers": [{
                        "name": "gateway",
                        "image": image,
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                            "readOnlyRootFilesystem": true,
                            "runAsNonRoot": true,
                            "runAsUser": 65535,
                            "seccompProfile": {"type": "RuntimeDefault"},
                        },
                    }],
                },
            },
        },
    })
}
