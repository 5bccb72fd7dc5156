//! Keeps of an object only what a fabric is made of: a Node is kilobytes of images and
//! heartbeats, and what does not matter must not count as a change.

use control_api::{
    Configuration, Connection, GatewayClient, GatewayServer, IP, Network, PublicKey, labels,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, NodeSpec, NodeStatus};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// What can be trimmed.
pub(crate) trait Trim: Sized {
    /// Returns what matters of it.
    fn trim(self) -> Self;
}

impl Trim for Node {
    fn trim(self) -> Self {
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

impl Trim for ConfigMap {
    fn trim(self) -> Self {
        Self {
            metadata: metadata(self.metadata),
            data: self.data,
            ..Self::default()
        }
    }
}

/// Implements [`Trim`] for kinds of which only metadata is too much.
macro_rules! trim_metadata {
    ($($kind:ty)*) => {
        $(impl Trim for $kind {
            fn trim(mut self) -> Self {
                self.metadata = metadata(self.metadata);
                self
            }
        })*
    };
}

trim_metadata! {
    EndpointSlice Network Configuration GatewayClient
}

impl Trim for IP {
    fn trim(mut self) -> Self {
        self.metadata = metadata(self.metadata);
        self.spec.service_template = None;
        self
    }
}

impl Trim for GatewayServer {
    fn trim(mut self) -> Self {
        self.metadata = metadata(self.metadata);
        self.spec.service_annotations.clear();
        self.spec.service_labels.clear();
        self
    }
}

impl Trim for PublicKey {
    fn trim(mut self) -> Self {
        self.metadata = metadata(self.metadata);
        self.spec.truncate();
        self
    }
}

impl Trim for Connection {
    /// With its version: gateways, which write it, must know whether they see what they wrote.
    fn trim(mut self) -> Self {
        let resource_version = self.metadata.resource_version.take();
        self.metadata = ObjectMeta {
            resource_version,
            ..metadata(self.metadata)
        };
        self
    }
}

/// Identity, age, generation, and the labels that mean something here.
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
    fn a_connection_keeps_the_version_by_which_its_writer_knows_it() {
        let mut connection = Connection::new(
            "gw-milan",
            from_value(json!({"type": "Server", "gatewayRef": {}})).unwrap(),
        );
        connection.metadata.resource_version = Some("7".to_owned());

        let trimmed = connection.trim();

        assert_eq!(trimmed.metadata.resource_version.as_deref(), Some("7"));
    }

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

        assert_eq!(ip.trim().spec.service_template, None);
        let spec = server.trim().spec;
        assert_eq!(spec.mtu, Some(1340));
        assert!(spec.service_annotations.is_empty() && spec.service_labels.is_empty());
    }

    #[test]
    fn a_key_that_is_too_long_stays_too_long_and_takes_no_memory() {
        let mut key = PublicKey::default();
        key.spec.public_key = Some(ByteString(vec![7; 1 << 20]));

        assert_eq!(key.trim().spec.public_key.unwrap().0.len(), 33);
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

        assert_eq!(node(1).trim(), node(2).trim());
        let conditions = node(1).trim().status.unwrap().conditions.unwrap();
        assert_eq!(conditions[0].status, "True");
    }
}
