//! Why two gateways do not hear each other, from what each of them says.

use control_api::Connection;
use control_api::connection::CONNECTED;

/// What one side says of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There is no Connection yet.
    Absent,
    /// The value of its Connection; empty while the gateway has said nothing.
    Says(String),
}

impl State {
    /// Returns whether this side hears the other one.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self, Self::Says(value) if value == CONNECTED)
    }
}

/// Returns what a side says of its connection.
pub(crate) fn state(connection: Option<&Connection>) -> State {
    connection.map_or(State::Absent, |connection| {
        let value = connection
            .status
            .as_ref()
            .and_then(|status| status.value.clone());
        State::Says(value.unwrap_or_default())
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
        (State::Says(local), State::Says(remote)) => {
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
                (false, false) => format!(
                    "no packet passes in either direction (local {}, remote {}): open UDP port {port} of {addresses} to the local cluster, and check that the local gateways may send there",
                    shown(local),
                    shown(remote)
                ),
            }
        }
    }
}

fn shown(value: &str) -> &str {
    if value.is_empty() { "nothing" } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(value: &str) -> State {
        State::Says(value.to_owned())
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
    fn a_missing_connection_is_no_blocked_port() {
        let text = explain(&State::Absent, &says("Connecting"), "a", 1);

        assert!(text.contains("the local cluster has no Connection yet"));
        assert!(!text.contains("UDP"));
    }
}
