//! Why two gateways do not hear each other, from what each of them says.

use control_api::Connection;
use control_api::networking::connection::{CONNECTED, PATH_HEALTHY, reason};

/// What one side says of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There is no Connection yet.
    Absent,
    /// Its Connection says something.
    Says {
        /// The value; empty while the gateway has said nothing.
        value: String,
        /// What its gateways have found wrong.
        fault: Option<Fault>,
    },
}

/// What gateways have found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    reason: String,
    message: String,
}

impl State {
    /// Returns whether this side hears the other one.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self, Self::Says { value, .. } if value == CONNECTED)
    }

    /// Returns what this side says is wrong, if it is one of these.
    fn fault(&self, reasons: &[&str]) -> Option<&Fault> {
        match self {
            Self::Absent => None,
            Self::Says { fault, .. } => fault
                .as_ref()
                .filter(|fault| reasons.contains(&fault.reason.as_str())),
        }
    }
}

/// Returns what a side says of its connection.
pub(crate) fn state(connection: Option<&Connection>) -> State {
    connection.map_or(State::Absent, |connection| {
        let status = connection.status.clone().unwrap_or_default();
        let mut conditions = status.conditions.into_iter();
        let fault = conditions.find(|it| it.type_ == PATH_HEALTHY && it.status == "False");

        State::Says {
            value: status.value.unwrap_or_default(),
            fault: fault.map(|it| Fault {
                reason: it.reason,
                message: it.message,
            }),
        }
    })
}

/// Returns what is wrong, and what to look at.
///
/// `here` is the client's side, the local one; `there` the server's, reached at
/// `addresses` and `port`.
pub(crate) fn explain(here: &State, there: &State, addresses: &str, port: i32) -> String {
    let absent = |side: &str| {
        format!(
            "the {side} cluster has no Connection yet (do its controller-manager and its gateways run?)"
        )
    };
    match (here, there) {
        (State::Absent, State::Absent) => {
            format!("{}; neither has the remote one", absent("local"))
        }
        (State::Absent, _) => absent("local"),
        (_, State::Absent) => absent("remote"),
        (State::Says { value: local, .. }, State::Says { value: remote, .. }) => {
            match (here.is_connected(), there.is_connected()) {
                (true, true) => "both sides are Connected".to_owned(),
                (true, false) => format!(
                    "remote -> local fails: the remote side says {} while the local one is Connected; answers to the remote gateway's probe are lost, look at its firewall",
                    shown(remote)
                ),
                (false, true) => format!(
                    "local -> remote fails: the local side says {} while the remote one is Connected; answers from {addresses} are lost, let UDP from port {port} in to the local gateways",
                    shown(local)
                ),
                (false, false) => neither(here, there, addresses, port).unwrap_or_else(|| {
                    format!(
                        "no packet passes in either direction (local {}, remote {}): open UDP port {port} of {addresses} to the local cluster, and check that the local gateways may send there",
                        shown(local),
                        shown(remote)
                    )
                }),
            }
        }
    }
}

/// What follows from what the gateways have found, while neither hears the other.
fn neither(here: &State, there: &State, addresses: &str, port: i32) -> Option<String> {
    // What is wrong with one side's objects explains all else.
    let own = [
        reason::NOT_SERVED,
        reason::NAME_NOT_RESOLVED,
        reason::KEYS_DIFFER,
    ];
    for (side, state) in [("local", here), ("remote", there)] {
        if let Some(fault) = state.fault(&own) {
            return Some(format!("the {side} gateways say: {}", fault.message));
        }
    }
    if there.fault(&[reason::ANSWERS_LOST]).is_some() {
        return Some(format!(
            "local -> remote is open, remote -> local is blocked: the remote gateways are called and their answers are lost; let what comes from UDP port {port} of {addresses} out of the remote cluster and in to the local gateways"
        ));
    }
    let arrives = there.fault(&[reason::NOTHING_ARRIVES]);
    arrives.map(|_| {
        format!(
            "local -> remote is blocked: nothing of the local gateways arrives at the remote ones; open UDP port {port} of {addresses} to the local cluster, check that the local gateways may send there, and that both PublicKeys are the other side's"
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

    fn says(value: &str) -> State {
        State::Says {
            value: value.to_owned(),
            fault: None,
        }
    }

    /// A Connection as the gateways write it.
    fn found(value: &str, reason: &str) -> State {
        let connection: Connection = serde_json::from_value(json!({
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": "Connection",
            "metadata": {"name": "gw-milan"},
            "spec": {"type": "Server", "gatewayRef": {}},
            "status": {"value": value, "conditions": [{
                "type": "PathHealthy", "status": "False", "reason": reason, "message": "their words",
                "lastTransitionTime": "2026-11-22T00:00:00Z",
            }]},
        }))
        .unwrap();
        state(Some(&connection))
    }

    #[test]
    fn the_failing_direction_is_named() {
        let explain = |here, there| explain(&here, &there, "172.18.2.3", 31110);

        let neither = explain(says("Connecting"), says("Connecting"));
        assert!(neither.contains("open UDP port 31110 of 172.18.2.3"));
        assert!(explain(says("Connected"), says("Error")).starts_with("remote -> local fails"));
        assert!(explain(says("Error"), says("Connected")).starts_with("local -> remote fails"));
    }

    #[test]
    fn what_the_server_sees_tells_which_direction_is_blocked() {
        let explain = |here, there| explain(&here, &there, "172.18.2.3", 31110);
        let here = || found("Error", "NoAnswer");

        let answers = explain(here(), found("Error", "AnswersLost"));
        let nothing = explain(here(), found("Connecting", "NothingArrives"));

        assert!(answers.starts_with("local -> remote is open, remote -> local is blocked"));
        assert!(nothing.starts_with("local -> remote is blocked"));
        for text in [answers, nothing] {
            assert!(text.contains("UDP port 31110 of 172.18.2.3"), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_one_side_is_said_in_its_words() {
        for reason in ["KeysDiffer", "NotServed", "NameNotResolved"] {
            let there = found("Error", "NothingArrives");
            let text = explain(&found("Error", reason), &there, "a", 1);
            assert_eq!(text, "the local gateways say: their words");
        }
        let text = explain(&says("Error"), &found("Error", "KeysDiffer"), "a", 1);
        assert_eq!(text, "the remote gateways say: their words");
    }

    #[test]
    fn a_missing_connection_is_no_blocked_port() {
        let text = explain(&State::Absent, &says("Connecting"), "a", 1);

        assert!(text.contains("the local cluster has no Connection yet"));
        assert!(!text.contains("UDP"));
    }
}
