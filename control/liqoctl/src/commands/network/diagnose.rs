//! Explains why two gateways are not connected, from the Connections of both sides.

use control_api::Connection;
use control_api::networking::connection::{CONNECTED, PATH_HEALTHY, reason};

/// State of the Connection of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There is no Connection yet.
    Absent,
    /// The Connection exists.
    Reported {
        /// `status.value`; empty until a gateway has reported.
        value: String,
        /// The fault that a gateway reported.
        fault: Option<Fault>,
    },
}

/// A false condition of a Connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    reason: String,
    message: String,
}

impl State {
    /// Returns whether this side receives packets of the other one.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self, Self::Reported { value, .. } if value == CONNECTED)
    }

    /// Returns the fault if its reason is one of `reasons`.
    fn fault(&self, reasons: &[&str]) -> Option<&Fault> {
        match self {
            Self::Absent => None,
            Self::Reported { fault, .. } => fault
                .as_ref()
                .filter(|fault| reasons.contains(&fault.reason.as_str())),
        }
    }
}

/// Returns the state of a Connection.
pub(crate) fn state(connection: Option<&Connection>) -> State {
    connection.map_or(State::Absent, |connection| {
        let status = connection.status.clone().unwrap_or_default();
        let mut conditions = status.conditions.into_iter();
        let fault = conditions.find(|it| it.type_ == PATH_HEALTHY && it.status == "False");

        State::Reported {
            value: status.value.unwrap_or_default(),
            fault: fault.map(|it| Fault {
                reason: it.reason,
                message: it.message,
            }),
        }
    })
}

/// Returns the cause and the remedy.
///
/// `here` is the local side, which has the client. `there` is the remote side, whose server has
/// `addresses` and `port`.
pub(crate) fn explain(here: &State, there: &State, addresses: &str, port: i32) -> String {
    let absent = |side: &str| {
        format!(
            "the {side} cluster has no Connection yet (do its controller-manager and its gateways run?)"
        )
    };
    match (here, there) {
        (State::Absent, State::Absent) => {
            format!("{}; the remote cluster has none either", absent("local"))
        }
        (State::Absent, _) => absent("local"),
        (_, State::Absent) => absent("remote"),
        (State::Reported { value: local, .. }, State::Reported { value: remote, .. }) => {
            match (here.is_connected(), there.is_connected()) {
                (true, true) => "both sides are Connected".to_owned(),
                (true, false) => format!(
                    "remote -> local fails: the remote side reports {} while the local one is Connected; replies to the probes of the remote gateways are lost, check the firewall of the remote cluster",
                    shown(remote)
                ),
                (false, true) => format!(
                    "local -> remote fails: the local side reports {} while the remote one is Connected; replies from {addresses} are lost, allow UDP from port {port} to the local gateways",
                    shown(local)
                ),
                (false, false) => neither_connected(here, there, addresses, port).unwrap_or_else(|| {
                    format!(
                        "no packet arrives in either direction (local {}, remote {}): open UDP port {port} of {addresses} to the local cluster, and check that firewalls allow the local gateways to send there",
                        shown(local),
                        shown(remote)
                    )
                }),
            }
        }
    }
}

/// Returns the cause and the remedy if neither side is connected and a gateway has reported a fault.
fn neither_connected(here: &State, there: &State, addresses: &str, port: i32) -> Option<String> {
    // A fault in the objects of one side explains all others.
    let object_faults = [
        reason::NOT_SERVED,
        reason::NAME_NOT_RESOLVED,
        reason::KEYS_DIFFER,
    ];
    for (side, state) in [("local", here), ("remote", there)] {
        if let Some(fault) = state.fault(&object_faults) {
            return Some(format!("the {side} gateways report: {}", fault.message));
        }
    }
    if there.fault(&[reason::ANSWERS_LOST]).is_some() {
        return Some(format!(
            "local -> remote is open, remote -> local is blocked: packets of the local gateways arrive at the remote ones, but the replies are lost; allow UDP from port {port} of {addresses} out of the remote cluster and to the local gateways"
        ));
    }
    let arrives = there.fault(&[reason::NOTHING_ARRIVES]);
    arrives.map(|_| {
        format!(
            "local -> remote is blocked: no packet of the local gateways arrives at the remote ones; open UDP port {port} of {addresses} to the local cluster, check that firewalls allow the local gateways to send there, and that each PublicKey is the key of the other side"
        )
    })
}

fn shown(value: &str) -> &str {
    if value.is_empty() { "nothing" } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reported(value: &str) -> State {
        State::Reported {
            value: value.to_owned(),
            fault: None,
        }
    }

    /// A Connection as the gateways write it.
    fn with_fault(value: &str, reason: &str) -> State {
        let connection: Connection = serde_json::from_value(json!({
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": "Connection",
            "metadata": {"name": "gw-milan"},
            "spec": {"type": "Server", "gatewayRef": {}},
            "status": {"value": value, "conditions": [{
                "type": "PathHealthy", "status": "False", "reason": reason, "message": "their message",
                "lastTransitionTime": "2026-11-22T00:00:00Z",
            }]},
        }))
        .unwrap();
        state(Some(&connection))
    }

    #[test]
    fn the_failing_direction_is_named() {
        let explain = |here, there| explain(&here, &there, "172.18.2.3", 31110);

        let neither = explain(reported("Connecting"), reported("Connecting"));
        assert!(neither.contains("open UDP port 31110 of 172.18.2.3"));
        assert!(
            explain(reported("Connected"), reported("Error")).starts_with("remote -> local fails")
        );
        assert!(
            explain(reported("Error"), reported("Connected")).starts_with("local -> remote fails")
        );
    }

    #[test]
    fn the_fault_of_the_server_identifies_the_blocked_direction() {
        let explain = |here, there| explain(&here, &there, "172.18.2.3", 31110);
        let here = || with_fault("Error", "NoAnswer");

        let replies_lost = explain(here(), with_fault("Error", "AnswersLost"));
        let no_arrival = explain(here(), with_fault("Connecting", "NothingArrives"));

        assert!(replies_lost.starts_with("local -> remote is open, remote -> local is blocked"));
        assert!(no_arrival.starts_with("local -> remote is blocked"));
        for text in [replies_lost, no_arrival] {
            assert!(text.contains("port 31110 of 172.18.2.3"), "{text}");
        }
    }

    #[test]
    fn a_fault_in_the_objects_of_one_side_is_reported_with_its_message() {
        for reason in ["KeysDiffer", "NotServed", "NameNotResolved"] {
            let there = with_fault("Error", "NothingArrives");
            let text = explain(&with_fault("Error", reason), &there, "a", 1);
            assert_eq!(text, "the local gateways report: their message");
        }
        let text = explain(
            &reported("Error"),
            &with_fault("Error", "KeysDiffer"),
            "a",
            1,
        );
        assert_eq!(text, "the remote gateways report: their message");
    }

    #[test]
    fn a_missing_connection_is_not_reported_as_a_blocked_port() {
        let text = explain(&State::Absent, &reported("Connecting"), "a", 1);

        assert!(text.contains("the local cluster has no Connection yet"));
        assert!(!text.contains("UDP"));
    }
}
