//! The Lease by which Kubernetes' node controller knows that the Node is alive.

use crate::settings::Settings;
use control_runtime::{Action, Cache, Cluster, Env, Key, Plan, Ref, Write};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;
use std::time::Duration;

/// Namespace of the Leases of Nodes.
pub(super) const NAMESPACE: &str = "kube-node-lease";

/// Duration of the Lease, as a kubelet's.
const DURATION: Duration = Duration::from_secs(40);

/// Time after which the Lease is renewed, as a kubelet's.
const INTERVAL: Duration = Duration::from_secs(10);

/// Plans the renewal of the Lease, after which `item` is planned again.
pub(super) fn plan<I>(
    settings: &Settings,
    item: I,
    (node, cache): (&Node, &Cache),
    env: &Env<'_>,
) -> Plan<I> {
    let mut plan = Plan::default();
    let key = Key::new(NAMESPACE, &*settings.node);
    let object = Ref::of::<Lease>(&Cluster::Local, &key);
    let present = cache.local::<Lease>(&key);
    let spec = present.and_then(|it| it.spec.as_ref());
    let is_held = spec.and_then(|it| it.holder_identity.as_ref()) == Some(&settings.node);
    let renewed = spec
        .and_then(|it| it.renew_time.as_ref())
        .filter(|_| is_held);
    if let Some(MicroTime(renewed)) = renewed {
        let elapsed = env.now.duration_since(*renewed);
        let wait = SignedDuration::try_from(INTERVAL).unwrap_or_default() - elapsed;
        // A clock that was set back must not stop the renewals.
        let wait = Duration::try_from(wait).unwrap_or_default().min(INTERVAL);
        if !wait.is_zero() {
            plan.requeue.push((wait, item));
            return plan;
        }
    }
    let lease = json!({
        "metadata": {"ownerReferences": [{
            "apiVersion": "v1",
            "kind": "Node",
            "name": settings.node,
            "uid": node.metadata.uid,
        }]},
        "spec": {
            "holderIdentity": settings.node,
            "leaseDurationSeconds": DURATION.as_secs(),
            "renewTime": MicroTime(env.now),
        },
    });
    let action = match present {
        None => Action::Create(lease),
        Some(_) => Action::Merge(lease),
    };
    plan.writes.push(Write::new(object, action));
    plan.requeue.push((INTERVAL, item));

    plan
}
