//! Conditions of the networking module.

use super::condition::{Line, Status, Type};
use super::peer::{Gateway, Peer};
use control_api::networking::connection::{CONNECTED, ERROR, PATH_HEALTHY};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Returns the condition of each part, in upstream's order; none if the module is disabled.
pub(super) fn lines<'a>(peer: &Peer<'a>, replicas: (usize, usize)) -> Vec<Line<'a>> {
    if !peer.has_networking() {
        return Vec::new();
    }
    let gateway = peer.gateway.map(|gateway| replicas_line(gateway, replicas));
    [
        Some(configuration(peer)),
        Some(presence(peer)),
        gateway,
        Some(connection(peer)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn configuration(peer: &Peer<'_>) -> Line<'static> {
    let part = Type::NetworkConfigurationStatus;
    if peer.has_configuration {
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

fn presence(peer: &Peer<'_>) -> Line<'static> {
    let part = Type::NetworkGatewayPresence;
    if peer.gateway.is_some() {
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

fn replicas_line(gateway: Gateway, replicas: (usize, usize)) -> Line<'static> {
    let part = match gateway {
        Gateway::Server => Type::NetworkGatewayServerStatus,
        Gateway::Client => Type::NetworkGatewayClientStatus,
    };
    let (status, reason, message) = match replicas {
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

    (part, status, reason, message)
}

/// A fault of the path is the reason, and the message if there is no connection.
fn connection<'a>(peer: &Peer<'a>) -> Line<'a> {
    let status = peer.connection.map(|connection| connection.status.as_ref());
    let value = status.map(|status| status.and_then(|status| status.value.as_deref()));
    let fault = status
        .flatten()
        .and_then(|status| fault(&status.conditions));
    let message = |default| fault.map_or(default, |fault| fault.message.as_str());
    let (status, reason, message) = match (value, fault) {
        (Some(Some(CONNECTED)), Some(fault)) => (
            Status::SomeNotReady,
            fault.reason.as_str(),
            fault.message.as_str(),
        ),
        (Some(Some(CONNECTED)), None) => (
            Status::Established,
            "ConnectionEstablished",
            "The network connection with the foreign cluster is established",
        ),
        (Some(Some(ERROR)), _) => (
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

fn fault(conditions: &[Condition]) -> Option<&Condition> {
    let mut conditions = conditions.iter();
    conditions.find(|it| it.type_ == PATH_HEALTHY && it.status == "False")
}
