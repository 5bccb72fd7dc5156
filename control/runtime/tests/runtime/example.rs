//! The example of the crate's documentation.

use control_runtime::{
    Cache, Change, Cluster, Controller, Env, Key, Plan, Ref, Registration, Scope,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, NodeStatus};
use serde_json::json;

/// Keeps a ConfigMap for each node, with the addresses of the node.
pub(crate) struct NodeAddresses;

impl Controller for NodeAddresses {
    type Item = String; // Name of a node.
    const NAME: &'static str = "node-addresses";
    const FIELD_MANAGER: &'static str = "node-addresses";

    fn resources(&self) -> Vec<Registration> {
        // Heartbeats change the status every few seconds, so only the addresses are kept.
        let nodes = Registration::of(Scope::All, |node: Node| Node {
            metadata: node.metadata,
            status: Some(NodeStatus {
                addresses: node.status.and_then(|status| status.addresses),
                ..NodeStatus::default()
            }),
            spec: None,
        });
        let maps = Registration::of(Scope::Namespace("addresses".into()), |map: ConfigMap| map)
            .verbs(&["create", "patch", "delete"]);
        vec![nodes, maps]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<String> {
        // The ConfigMap has the name of the node, so both kinds of change concern one item.
        vec![change.object.key.name.clone()]
    }

    fn plan(&mut self, name: &String, cache: &Cache, _: &mut Env<'_>) -> Plan<String> {
        let mut plan = Plan::default();
        let key = Key::new("addresses", name);
        let map = Ref::of::<ConfigMap>(&Cluster::Local, &key);
        let present = cache.local::<ConfigMap>(&key);
        let Some(node) = cache.local::<Node>(&Key::cluster(name)) else {
            if let Some(uid) = present.and_then(|map| map.metadata.uid.clone()) {
                plan.delete(map, uid);
            }
            return plan;
        };
        let status = node.status.iter();
        let addresses = status.flat_map(|status| status.addresses.iter().flatten());
        let addresses: Vec<_> = addresses.map(|it| it.address.as_str()).collect();
        let wanted = addresses.join(",");
        let data = present.and_then(|map| map.data.as_ref()?.get("addresses"));
        if data != Some(&wanted) {
            plan.apply(map, json!({"data": {"addresses": wanted}}));
        }
        plan
    }
}
