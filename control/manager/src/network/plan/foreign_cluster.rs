//! The ForeignCluster of a peer, which summarizes the peering.

use super::Planner;
use super::gateway::Gateway;
use crate::network::kind::{Key, Kind};
use crate::network::local::is_terminating;
use crate::network::write::{Action, Write};
use control_api::core::foreign_cluster::{
    ForeignClusterCondition, ForeignClusterConditionStatus as Status,
    ForeignClusterConditionType as Type, Module, Modules, TenantNamespaces,
};
use control_api::networking::connection::{CONNECTED, ERROR, PATH_HEALTHY};
use control_api::{ForeignCluster, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

/// A condition of the summary: type, status, reason, message.
type Line<'a> = (Type, Status, &'a str, &'a str);

/// The objects of a peer.
struct Parts<'a> {
    has_configuration: bool,
    gateway: Option<&'a Gateway<'a>>,
    /// `status.value` of the peer's Connection; empty if it has none yet.
    connection: Option<String>,
    /// The condition `PathHealthy` of the peer's Connection, if it is false.
    fault: Option<Condition>,
    namespace: Option<String>,
    /// Replicas of the gateway: ready, all.
    replicas: (usize, usize),
}

/// Creates and updates the summary of a peer; deletes it once the peer has no objects any more.
pub(super) fn writes(
    planner: &Planner<'_>,
    peer: &str,
    gateway: Option<&Gateway<'_>>,
    now: Timestamp,
) -> Vec<Write> {
    let key = Key::cluster(peer);
    let present = planner.local.foreign_clusters.get(&key);
    let parts = parts(planner, peer, gateway);
    if !parts.is_any() {
        let left = present.filter(|present| !is_terminating(&present.metadata));
        let delete = left.map(|present| Action::Delete(present.metadata.uid.clone()));
        let delete = delete.map(|delete| Write::new(Kind::ForeignCluster, &key, delete));
        return delete.into_iter().collect();
    }
    let Some(present) = present else {
        let object = json!({
            "apiVersion": "core.liqo.io/v1beta1",
            "kind": "ForeignCluster",
            "metadata": {"name": peer, "labels": {labels::REMOTE_CLUSTER_ID: peer}},
            "spec": {"clusterID": peer},
        });
        return vec![Write::new(
            Kind::ForeignCluster,
            &key,
            Action::Create(object),
        )];
    };

    let status = status(present, &parts, now);
    let label = super::label(&present.metadata, labels::REMOTE_CLUSTER_ID);
    let relabel = (label != Some(peer)).then(|| {
        let patch = json!({"metadata": {"labels": {labels::REMOTE_CLUSTER_ID: peer}}});
        Write::new(Kind::ForeignCluster, &key, Action::Merge(patch))
    });
    let status = Write::status(Kind::ForeignCluster, &key, present.status.as_ref(), &status);

    relabel.into_iter().chain(status).collect()
}

fn parts<'a>(planner: &Planner<'_>, peer: &str, gateway: Option<&'a Gateway<'a>>) -> Parts<'a> {
    let mut parts = Parts {
        has_configuration: false,
        gateway,
        connection: None,
        fault: None,
        namespace: planner.local.tenant_namespace(peer).map(str::to_owned),
        replicas: planner.local.cluster().replicas,
    };
    for (kind, key) in planner.local.of_peer(peer) {
        if kind == Kind::Configuration {
            let configuration = planner.local.configurations.get(key);
            if configuration.is_some_and(|it| !is_terminating(&it.metadata)) {
                parts.has_configuration = true;
            }
        } else if kind == Kind::Connection {
            let connection = planner.local.connections.get(key);
            if let Some(connection) = connection.filter(|it| !is_terminating(&it.metadata)) {
                let status = connection.status.clone().unwrap_or_default();
                parts.connection = Some(status.value.unwrap_or_default());
                let mut conditions = status.conditions.into_iter();
                parts.fault =
                    conditions.find(|it| it.type_ == PATH_HEALTHY && it.status == "False");
            }
        }
    }

    parts
}

impl Parts<'_> {
    fn is_any(&self) -> bool {
        self.has_configuration || self.gateway.is_some() || self.connection.is_some()
    }

    /// Returns the condition of each part of the networking module, in upstream's order.
    fn networking(&self) -> Vec<Line<'_>> {
        [
            Some(self.configuration()),
            Some(self.presence()),
            self.gateway_replicas(),
            Some(self.connection()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn configuration(&self) -> Line<'_> {
        let part = Type::NetworkConfigurationStatus;
        if self.has_configuration {
            (
                part,
                Status::Ready,
                "NetworkConfigurationPresence",
                "The network configuration of the peer cluster is present",
            )
        } else {
            (
                part,
                Status::NotReady,
                "NetworkConfigurationMissing",
                "The network configuration for the connection with the foreign cluster is missing",
            )
        }
    }

    fn presence(&self) -> Line<'_> {
        let part = Type::NetworkGatewayPresence;
        if self.gateway.is_some() {
            (
                part,
                Status::Ready,
                "GatewayPresence",
                "There is a gateway connecting to the foreign cluster",
            )
        } else {
            (
                part,
                Status::NotReady,
                "GatewayMissing",
                "The gateway resource connecting to the foreign cluster is missing",
            )
        }
    }

    fn gateway_replicas(&self) -> Option<Line<'_>> {
        let part = match self.gateway? {
            Gateway::Server(..) => Type::NetworkGatewayServerStatus,
            Gateway::Client(..) => Type::NetworkGatewayClientStatus,
        };
        let (status, reason, message) = match self.replicas {
            (0, _) => (
                Status::NotReady,
                "GatewaysNotReady",
                "All gateway replicas are not ready",
            ),
            (ready, all) if ready < all => (
                Status::SomeNotReady,
                "GatewaysSomeNotReady",
                "Some gateway replicas are not ready",
            ),
            _ => (
                Status::Ready,
                "GatewaysReady",
                "All gateway replicas are ready",
            ),
        };

        Some((part, status, reason, message))
    }

    fn connection(&self) -> Line<'_> {
        let fault = self.fault.as_ref();
        let message = |default| fault.map_or(default, |fault| fault.message.as_str());
        let (status, reason, message) = match (self.connection.as_deref(), fault) {
            (Some(CONNECTED), Some(fault)) => (
                Status::SomeNotReady,
                fault.reason.as_str(),
                fault.message.as_str(),
            ),
            (Some(CONNECTED), None) => (
                Status::Established,
                "ConnectionEstablished",
                "The network connection with the foreign cluster is established",
            ),
            (Some(ERROR), _) => (
                Status::Error,
                "ConnectionError",
                message("The network connection with the foreign cluster is in error"),
            ),
            (Some(_), _) => (
                Status::Pending,
                "ConnectionPending",
                message("The network connection with the foreign cluster is connecting"),
            ),
            (None, _) => (
                Status::NotReady,
                "ConnectionMissing",
                "There is no network connection with the foreign cluster",
            ),
        };

        (Type::NetworkConnectionStatus, status, reason, message)
    }
}

fn status(
    present: &ForeignCluster,
    parts: &Parts<'_>,
    now: Timestamp,
) -> control_api::ForeignClusterStatus {
    let mut status = present.status.clone().unwrap_or_default();
    let modules = status.modules.get_or_insert_with(Modules::default);
    let old = std::mem::take(&mut modules.networking.conditions);
    let conditions = parts
        .networking()
        .into_iter()
        .map(|line| condition(&old, line, now));
    modules.networking = Module {
        conditions: conditions.collect(),
        enabled: true,
    };
    status.observed_generation = present.metadata.generation;
    let tenant = status
        .tenant_namespace
        .get_or_insert_with(TenantNamespaces::default);
    tenant.local.clone_from(&parts.namespace);

    status
}

/// Returns a condition, with the transition time of the old one if the status is the same.
fn condition(
    old: &[ForeignClusterCondition],
    line: Line<'_>,
    now: Timestamp,
) -> ForeignClusterCondition {
    let (type_, status, reason, message) = line;
    let same = old
        .iter()
        .find(|old| old.type_ == type_ && old.status == status);
    let since = same.and_then(|same| same.last_transition_time.clone());

    ForeignClusterCondition {
        last_transition_time: Some(since.unwrap_or(Time(now))),
        message: Some(message.to_owned()),
        reason: Some(reason.to_owned()),
        status,
        type_,
    }
}
