//! Conditions of the Node.

use crate::connection::Provider;
use crate::settings::Settings;
use control_api::core::foreign_cluster::Module;
use control_api::{ForeignCluster, VirtualNode};
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;

/// State of the parts that the conditions report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Whether the provider grants processors and memory.
    pub(super) has_resources: bool,
    /// Whether the pod networks are connected; `None` if that is not checked.
    pub(super) is_connected: Option<bool>,
    /// Whether the API server of the provider does not respond, so that it cannot take pods.
    pub(super) is_away: bool,
    /// Whether the Node's Lease is renewed: while the provider responds, and for a grace period after that if the networks are
    /// connected.
    pub(super) is_alive: bool,
}

impl State {
    /// Returns the state. The network is assumed to be needed until the ForeignCluster is known.
    pub(super) fn new(
        settings: &Settings,
        node: &VirtualNode,
        (foreign, provider): (Option<&ForeignCluster>, Provider),
    ) -> Self {
        let modules = foreign.and_then(|it| it.status.as_ref()?.modules.as_ref());
        let networking = modules.map(|it| &it.networking);
        let is_needed = networking.is_none_or(|it| it.enabled);

        let is_connected = (settings.checks_network && is_needed)
            .then(|| networking.is_some_and(Module::is_connected));
        let is_alive = match provider {
            Provider::Responds => true,
            Provider::Unknown => false,
            Provider::Away(outage) => {
                is_connected == Some(true) && outage < settings.api_server_grace_period
            }
        };

        Self {
            has_resources: has_resources(&capacity(node)),
            is_connected,
            is_away: matches!(provider, Provider::Away(_)),
            is_alive,
        }
    }

    /// Returns the conditions. The time of a condition is that of the last change of its status.
    ///
    /// While the Lease is not renewed, a condition that is `Unknown` stays so: the node controller has set it.
    pub(super) fn conditions(self, old: &[NodeCondition], now: Timestamp) -> Vec<NodeCondition> {
        let condition = |(type_, is_true, reason, message): Line| {
            let unknown = |it: &&NodeCondition| it.type_ == type_ && it.status == "Unknown";
            let unknown = old.iter().find(unknown).filter(|_| self.is_silent());
            if let Some(unknown) = unknown.filter(|_| self.is_usable()) {
                return unknown.clone();
            }
            let status = if is_true { "True" } else { "False" };
            let same = old
                .iter()
                .find(|it| it.type_ == type_ && it.status == status);
            let since = same.and_then(|it| it.last_transition_time.clone());
            NodeCondition {
                last_heartbeat_time: Some(Time(now)),
                last_transition_time: Some(since.unwrap_or(Time(now))),
                message: Some(message.to_owned()),
                reason: Some(reason.to_owned()),
                status: status.to_owned(),
                type_: type_.to_owned(),
            }
        };
        let pressures = PRESSURES.map(|it| self.pressure(it));
        let all = [self.ready()].into_iter().chain(pressures);

        all.chain(self.network()).map(condition).collect()
    }

    /// Returns whether Kubernetes is to find that the Node is lost.
    pub(super) fn is_silent(self) -> bool {
        self.is_away && !self.is_alive
    }

    fn is_usable(self) -> bool {
        self.has_resources && self.is_connected != Some(false)
    }

    fn ready(self) -> Line {
        if self.is_usable() {
            let message = if self.is_away {
                AWAY
            } else {
                "The Liqo Virtual Kubelet is posting ready status"
            };
            ("Ready", true, "KubeletReady", message)
        } else {
            (
                "Ready",
                false,
                "KubeletNotReady",
                "The Liqo Virtual Kubelet is not ready: the network or the resources are missing",
            )
        }
    }

    fn pressure(self, (type_, insufficient, sufficient): Pressure) -> Line {
        if self.has_resources {
            (
                type_,
                false,
                sufficient,
                "The remote cluster is advertising sufficient resources",
            )
        } else {
            (
                type_,
                true,
                insufficient,
                "The remote cluster is advertising no or insufficient resources",
            )
        }
    }

    fn network(self) -> Option<Line> {
        let is_connected = self.is_connected?;
        let (reason, message) = if is_connected {
            (
                "LiqoNetworkingUp",
                "The Liqo cluster interconnection is established",
            )
        } else {
            (
                "LiqoNetworkingDown",
                "The Liqo cluster interconnection is down",
            )
        };

        Some(("NetworkUnavailable", !is_connected, reason, message))
    }
}

/// Message of a Node that is ready, and takes no further pods.
const AWAY: &str = "The API server of the remote cluster does not respond: pods there go on running, and no further ones are scheduled";

/// Type of a condition, whether it is true, reason and message.
type Line = (&'static str, bool, &'static str, &'static str);

/// Type of a condition, and its reasons if it is true and if it is false.
type Pressure = (&'static str, &'static str, &'static str);

const PRESSURES: [Pressure; 3] = [
    (
        "MemoryPressure",
        "RemoteClusterHasMemoryPressure",
        "RemoteClusterHasSufficientMemory",
    ),
    (
        "DiskPressure",
        "RemoteClusterHasDiskPressure",
        "RemoteClusterHasNoDiskPressure",
    ),
    (
        "PIDPressure",
        "RemoteClusterHasPIDPressure",
        "RemoteClusterHasNoPIDPressure",
    ),
];

/// Returns what the Node has to offer: the quota of the VirtualNode.
pub(super) fn capacity(node: &VirtualNode) -> BTreeMap<String, Quantity> {
    let quota = node.spec.resource_quota.as_ref();
    quota.and_then(|it| it.hard.clone()).unwrap_or_default()
}

fn has_resources(capacity: &BTreeMap<String, Quantity>) -> bool {
    let is_positive = |key: &str| {
        let amount = capacity.get(key).map(|it| it.0.as_str());
        // The API server has checked the syntax. A quantity is zero if all its digits before the suffix are.
        amount.is_some_and(|it| {
            let digits = it.split(['e', 'E']).next().unwrap_or_default();
            !it.starts_with('-') && digits.bytes().any(|byte| (b'1'..=b'9').contains(&byte))
        })
    };

    is_positive("cpu") && is_positive("memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_is_positive_if_a_digit_of_its_number_is() {
        for (amount, expected) in [
            ("4", true),
            ("100m", true),
            ("0", false),
            ("0.0", false),
            ("0.5", true),
            ("0e3", false),
            ("0Gi", false),
            ("10Gi", true),
            ("-1", false),
            ("", false),
        ] {
            let amounts = [("cpu", amount), ("memory", "1Gi")];
            let amounts = amounts.map(|(key, it)| (key.to_owned(), Quantity(it.to_owned())));
            assert_eq!(has_resources(&amounts.into()), expected, "{amount}");
        }
    }
}
