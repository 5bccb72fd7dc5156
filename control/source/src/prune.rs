//! Removes the fields of objects that a fabric does not use. A Node has kilobytes of images and heartbeats, and a
//! change of an unused field must not count as a change.

use control_api::{Configuration, GatewayClient, GatewayServer, IP, Network, PublicKey, labels};
use k8s_openapi::api::core::v1::{ConfigMap, Node, NodeSpec, NodeStatus};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A kind with unused fields.
pub(crate) trait Prune: Sized {
    /// Returns the object without unused fields.
    fn prune(self) -> Self;
}

impl Prune for Node {
    fn prune(self) -> Self {
        let spec = self.spec.map(|spec| NodeSpec {
            pod_cidr: spec.pod_cidr,
            pod_cidrs: spec.pod_cidrs,
            ..NodeSpec::default()
        });
        let status = self.status.map(|status| NodeStatus {
            addresses: status.addresses,
            conditions: status.conditions.map(|conditions| {
                let ready = conditions.into_iter().filter(|it| it.type_ == "Ready");
                ready
                    .map(|mut condition| {
                        condition.last_heartbeat_time = None;
                        condition.message = None;
                        condition
                    })
                    .collect()
            }),
            ..NodeStatus::default()
        });

        Self {
            metadata: metadata(self.metadata),
            spec,
            status,
        }
    }
}

impl Prune for ConfigMap {
    fn prune(self) -> Self {
        Self {
            metadata: metadata(self.metadata),
            data: self.data,
            ..Self::default()
        }
    }
}

/// Implements [`Prune`] for kinds with unused fields in the metadata only.
macro_rules! prune_metadata {
    ($($kind:ty)*) => {
        $(impl Prune for $kind {
            fn prune(mut self) -> Self {
                self.metadata = metadata(self.metadata);
                self
            }
        })*
    };
}

prune_metadata! {
    EndpointSlice Network Configuration GatewayClient
}

impl Prune for IP {
    fn prune(mut self) -> Self {
        self.metadata = metadata(self.metadata);
        self.spec.service_template = None;
        self
    }
}

impl Prune for GatewayServer {
    fn prune(mut self) -> Self {
        self.metadata = metadata(self.metadata);
        self.spec.service_annotations.clear();
        self.spec.service_labels.clear();
        self
    }
}

impl Prune for PublicKey {
    fn prune(mut self) -> Self {
        self.metadata = metadata(self.metadata);
        self.spec.truncate();
        self
    }
}

/// Returns identity, age, generation, and the labels that the fabric uses.
pub(crate) fn metadata(metadata: ObjectMeta) -> ObjectMeta {
    let is_ours = |key: &str| {
        key.contains("liqo.io/") || key == labels::APP_NAME || key == "kubernetes.io/service-name"
    };
    let labels = metadata
        .labels
        .map(|labels| labels.into_iter().filter(|(key, _)| is_ours(key)).collect());

    ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        generation: metadata.generation,
        creation_timestamp: metadata.creation_timestamp,
        deletion_timestamp: metadata.deletion_timestamp,
        labels,
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::NodeCondition;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{from_value, json};

    #[test]
    fn parts_that_only_the_controller_manager_reads_are_dropped() {
        let ip: IP = from_value(json!({
            "metadata": {"name": "printer"},
            "spec": {"ip": "192.0.2.9", "serviceTemplate": {"spec": {"ports": [{"port": 80}]}}},
        }))
        .unwrap();
        let server: GatewayServer = from_value(json!({
            "metadata": {"name": "milan"},
            "spec": {"mtu": 1340, "serviceAnnotations": {"a": "b"}, "serviceLabels": {"a": "b"}},
        }))
        .unwrap();

        assert_eq!(ip.prune().spec.service_template, None);
        let spec = server.prune().spec;
        assert_eq!(spec.mtu, Some(1340));
        assert!(spec.service_annotations.is_empty() && spec.service_labels.is_empty());
    }

    #[test]
    fn a_key_that_is_too_long_stays_too_long_and_takes_no_memory() {
        let mut key = PublicKey::default();
        key.spec.public_key = Some(ByteString(vec![7; 1 << 20]));

        assert_eq!(key.prune().spec.public_key.unwrap().0.len(), 33);
    }

    #[test]
    fn a_heartbeat_is_no_change() {
        let node = |second| Node {
            status: Some(NodeStatus {
                conditions: Some(vec![NodeCondition {
                    type_: "Ready".into(),
                    status: "True".into(),
                    last_heartbeat_time: Some(Time(Timestamp::from_second(second).unwrap())),
                    ..NodeCondition::default()
                }]),
                ..NodeStatus::default()
            }),
            ..Node::default()
        };

        assert_eq!(node(1).prune(), node(2).prune());
        let conditions = node(1).prune().status.unwrap().conditions.unwrap();
        assert_eq!(conditions[0].status, "True");
    }
}
