//! Resources in the report of a peer: ResourceSlices of both directions, and VirtualNodes. PURE.

use super::boxes::Item;
use super::workload::Workload;
use control_api::authentication::resource_slice::{
    ResourceSlice, ResourceSliceCondition, ResourceSliceConditionStatus,
};
use control_api::labels;
use control_api::offloading::virtual_node::{VirtualNode, VirtualNodeConditionStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;

type Amounts = BTreeMap<String, String>;

/// A ResourceSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    name: String,
    /// `Consuming` or `Providing`: the role of the local cluster.
    action: &'static str,
    accepted: bool,
    alerts: Vec<String>,
    resources: Amounts,
}

/// A VirtualNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    name: String,
    /// `Healthy` or `Unhealthy`.
    status: &'static str,
    secret: String,
    slice: Option<String>,
    resources: Amounts,
    workload: Workload,
}

impl Slice {
    /// Returns the part of the report about a ResourceSlice.
    pub(super) fn of(slice: &ResourceSlice) -> Self {
        let status = slice.status.clone().unwrap_or_default();
        let is_replica = slice.labels().get(labels::REPLICATED);
        let is_accepted =
            |it: &ResourceSliceCondition| it.status == ResourceSliceConditionStatus::Accepted;
        let denied = status.conditions.iter().filter(|it| !is_accepted(it));
        let alerts: Vec<String> = denied.map(alert).collect();
        Self {
            name: slice.name_any(),
            action: match is_replica.is_some_and(|it| it == "true") {
                true => "Providing",
                false => "Consuming",
            },
            accepted: !status.conditions.is_empty() && alerts.is_empty(),
            alerts,
            resources: texts(status.resources),
        }
    }

    /// Returns the part for `-o` and `--get`.
    pub(super) fn value(&self) -> Value {
        let mut value = json!({
            "name": self.name,
            "action": self.action,
            "accepted": self.accepted,
            "resources": self.resources,
        });
        if !self.alerts.is_empty() {
            value["alerts"] = self.alerts.clone().into();
        }
        value
    }

    /// Returns the part for boxes.
    pub(super) fn item(&self) -> Item {
        let verdict = match self.accepted {
            true => "Resource slice accepted",
            false => "Resource slice not accepted",
        };
        let mut items = vec![
            Item::entry("Action", self.action),
            Item::Line(verdict.to_owned()),
        ];
        if !self.alerts.is_empty() {
            let alerts = self.alerts.iter().cloned().map(Item::Line).collect();
            items.push(Item::section("Alerts", alerts));
        }
        items.extend(amounts(&self.resources));
        Item::section(&self.name, items)
    }
}

impl Node {
    /// Returns the part of the report about a VirtualNode.
    pub(super) fn of(node: &VirtualNode, workload: Workload) -> Self {
        let conditions = node.status.iter().flat_map(|status| &status.conditions);
        let mut changing = conditions.filter(|condition| match condition.status {
            VirtualNodeConditionStatus::None | VirtualNodeConditionStatus::Running => false,
            VirtualNodeConditionStatus::Creating
            | VirtualNodeConditionStatus::Draining
            | VirtualNodeConditionStatus::Deleting => true,
        });
        let secret = node.spec.kubeconfig_secret_ref.as_ref();
        let quota = node.spec.resource_quota.as_ref();
        Self {
            name: node.name_any(),
            status: match changing.next() {
                None => "Healthy",
                Some(_) => "Unhealthy",
            },
            secret: secret.map_or_else(String::new, |secret| secret.name.clone()),
            slice: node.labels().get(labels::RESOURCE_SLICE_NAME).cloned(),
            resources: texts(
                quota
                    .and_then(|quota| quota.hard.clone())
                    .unwrap_or_default(),
            ),
            workload,
        }
    }

    /// Returns the part for `-o` and `--get`.
    pub(super) fn value(&self) -> Value {
        let mut value = json!({
            "name": self.name,
            "status": self.status,
            "secret": self.secret,
            "resources": self.resources,
        });
        if let Some(slice) = &self.slice {
            value["resourceSlice"] = slice.as_str().into();
        }
        self.workload.add_to(&mut value);
        value
    }

    /// Returns the part for boxes.
    pub(super) fn item(&self) -> Item {
        let mut items = vec![
            Item::entry("Status", self.status),
            Item::entry("Secret", &self.secret),
        ];
        if let Some(slice) = &self.slice {
            items.push(Item::entry("Resource slice", slice));
        }
        items.extend(self.workload.items());
        items.extend(amounts(&self.resources));
        Item::section(&self.name, items)
    }
}

fn alert(denied: &ResourceSliceCondition) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    match text(&denied.message) {
        message if message.is_empty() => text(&denied.reason),
        message => message,
    }
}

fn texts(resources: BTreeMap<String, Quantity>) -> Amounts {
    resources
        .into_iter()
        .map(|(name, amount)| (name, amount.0))
        .collect()
}

fn amounts(resources: &Amounts) -> Option<Item> {
    if resources.is_empty() {
        return None;
    }
    let entries = resources.iter();
    let entries = entries.map(|(name, amount)| Item::entry(name, amount));
    Some(Item::section("Resources", entries.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::info::boxes::draw;
    use serde_json::from_value;

    fn slice(labels: &Value, statuses: &[(&str, &str)]) -> Slice {
        let conditions: Vec<Value> = statuses
            .iter()
            .map(|(type_, status)| json!({"type": type_, "status": status, "message": "why"}))
            .collect();
        let object: ResourceSlice = from_value(json!({
            "apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice",
            "metadata": {"name": "milan", "labels": labels}, "spec": {},
            "status": {
                "conditions": conditions,
                "resources": {"cpu": "20", "ephemeral-storage": "20Gi", "memory": "20Gi", "pods": "200"},
            },
        }))
        .unwrap();
        Slice::of(&object)
    }

    #[test]
    fn an_accepted_slice_is_upstreams() {
        let statuses = [("Authentication", "Accepted"), ("Resources", "Accepted")];
        let slice = slice(&json!({}), &statuses);

        let expected = json!({
            "name": "milan",
            "action": "Consuming",
            "accepted": true,
            "resources": {
                "cpu": "20", "ephemeral-storage": "20Gi", "memory": "20Gi", "pods": "200",
            },
        });
        assert_eq!(slice.value(), expected);
        let text = draw(
            "Authentication",
            &[Item::section("Resource slices", vec![slice.item()])],
        );
        for line in [
            "|  Resource slices ",
            "|      milan ",
            "|          Action: Consuming ",
            "|          Resource slice accepted ",
            "|              ephemeral-storage: 20Gi ",
            "|              cpu:               20 ",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_denied_slice_has_alerts() {
        let statuses = [("Authentication", "Accepted"), ("Resources", "Denied")];
        let denied = slice(&json!({"liqo.io/replicated": "true"}), &statuses).value();

        assert_eq!(denied["action"], "Providing");
        assert_eq!(denied["accepted"], false);
        assert_eq!(denied["alerts"], json!(["why"]));
        assert_eq!(slice(&json!({}), &[]).value()["accepted"], false);
    }

    fn node(status: &str) -> Node {
        let object: VirtualNode = from_value(json!({
            "apiVersion": "offloading.liqo.io/v1beta1", "kind": "VirtualNode",
            "metadata": {"name": "milan", "labels": {"liqo.io/resourceslice-name": "milan"}},
            "spec": {
                "kubeconfigSecretRef": {"name": "kubeconfig-resourceslice-milan"},
                "resourceQuota": {"hard": {"cpu": "20"}},
            },
            "status": {"conditions": [{"type": "VirtualKubelet", "status": status}]},
        }))
        .unwrap();
        Node::of(&object, Workload::default())
    }

    #[test]
    fn a_virtual_node_is_upstreams() {
        let expected = json!({
            "name": "milan",
            "status": "Healthy",
            "secret": "kubeconfig-resourceslice-milan",
            "resourceSlice": "milan",
            "resources": {"cpu": "20"},
        });

        assert_eq!(node("Running").value(), expected);
        assert_eq!(node("Creating").value()["status"], "Unhealthy");
    }
}
