//! Decides which replica writes the condition `PathHealthy` of a `Connection`.
//!
//! All replicas may write the condition of the same object. Each replica observes only its own
//! tunnels and the probes that it receives from nodes, so the replicas may have different results.
//! The field `reporter` of the status names the replica that wrote the condition.
//!
//! While the reporter is live, a second replica replaces the condition `False` only in one case:
//! the second replica has received handshakes from the peer, and the reporter has received none.

use super::observed::Observed;
use crate::path::{Reason, Verdict};
use control_api::networking::connection::{CONNECTED, PATH_HEALTHY};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

/// Reasons that a replica reports only if it has received no handshake message from the peer.
const UNOBSERVED: [Reason; 3] = [Reason::Tunnel, Reason::NothingArrives, Reason::NoAnswer];

/// Returns the patch of the status that reports the verdict of `replica`.
///
/// Returns `None` if `replica` must not write the condition, or if the status is up to date.
pub(super) fn path(
    verdict: &Verdict,
    replica: &str,
    is_live: impl Fn(&str) -> bool,
    connection: &Observed,
    now: Timestamp,
) -> Option<Value> {
    let shown = &connection.status;
    let conditions = shown.conditions.as_slice();
    let old = conditions.iter().find(|old| old.type_ == PATH_HEALTHY);
    let reporter = shown.reporter.as_deref();
    let is_own = reporter == Some(replica);

    let is_connected = shown.value.as_deref() == Some(CONNECTED);
    let reason = verdict.reason;
    let status = if reason.is_of_tunnel() && is_connected {
        // Another replica is connected, so this replica must not report its own tunnel as a fault.
        // It may only replace a condition that it wrote itself.
        if !is_own {
            return None;
        }
        "Unknown"
    } else if reason == Reason::Connecting {
        "Unknown"
    } else if reason.is_healthy() {
        "True"
    } else {
        "False"
    };
    let may_write = match old {
        None => true,
        Some(old) if old.status == "Unknown" => status != "Unknown" || is_own,
        Some(old) => {
            let is_worse = status == "False" && old.status == "True";
            // A reason based on received handshakes replaces a reason based on missing handshakes.
            let is_unobserved = UNOBSERVED.iter().any(|reason| old.reason == reason.name());
            let is_better_known = verdict.reason.is_observed() && is_unobserved;
            is_own
                || is_worse
                || is_better_known
                || reporter.is_none_or(|reporter| !is_live(reporter))
        }
    };
    let is_same = |old: &Condition| {
        old.status == status
            && old.reason == verdict.reason.name()
            && old.message == verdict.message
    };
    if !may_write || old.is_some_and(is_same) {
        return None;
    }

    let same = old.filter(|old| old.status == status);
    let condition = Condition {
        last_transition_time: same.map_or(Time(now), |old| old.last_transition_time.clone()),
        message: verdict.message.clone(),
        observed_generation: connection.generation,
        reason: verdict.reason.name().to_owned(),
        status: status.to_owned(),
        type_: PATH_HEALTHY.to_owned(),
    };
    let others = conditions.iter().filter(|old| old.type_ != PATH_HEALTHY);
    let all: Vec<&Condition> = others.chain([&condition]).collect();

    Some(json!({"conditions": all, "reporter": replica}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::networking::connection::{ConnectionStatus, ERROR};

    const NOW: Timestamp = Timestamp::constant(1_000_000, 0);
    const LATER: Timestamp = Timestamp::constant(1_000_009, 0);

    #[test]
    fn a_verdict_is_written_once() {
        let mut lab = Lab::new(CONNECTED);

        assert!(lab.reports("gw-1", &healthy(), NOW));
        assert!(!lab.reports("gw-1", &healthy(), LATER));
        assert!(!lab.reports("gw-2", &healthy(), LATER));
        assert_eq!(lab.shown(), ("True", "EndToEnd", "gw-1"));
    }

    #[test]
    fn the_replica_that_reported_a_fault_withdraws_it() {
        let mut lab = Lab::new(CONNECTED);
        lab.reports("gw-1", &healthy(), NOW);

        assert!(lab.reports("gw-2", &fault("node rome-1"), NOW));
        assert!(!lab.reports("gw-1", &healthy(), NOW));
        assert!(!lab.reports("gw-1", &fault("node rome-7"), NOW));
        assert_eq!(lab.shown(), ("False", "LocalOverlay", "gw-2"));
        assert!(lab.reports("gw-2", &fault("node rome-2"), NOW));
        assert!(lab.reports("gw-2", &healthy(), NOW));
        assert!(lab.reports("gw-1", &fault("node rome-7"), NOW));
    }

    #[test]
    fn any_replica_replaces_the_fault_of_a_dead_one() {
        let mut lab = Lab::new(CONNECTED);
        lab.reports("gw-2", &fault("node rome-1"), NOW);

        lab.live.retain(|name| *name != "gw-2");

        assert!(lab.reports("gw-1", &healthy(), NOW));
        assert_eq!(lab.shown(), ("True", "EndToEnd", "gw-1"));
    }

    #[test]
    fn a_replica_without_a_tunnel_is_no_fault_while_another_has_one() {
        let mut lab = Lab::new(CONNECTED);
        assert!(!lab.reports("gw-1", &tunnel(), NOW));

        let mut lab = Lab::new(ERROR);
        assert!(lab.reports("gw-1", &tunnel(), NOW));
        assert_eq!(lab.shown(), ("False", "Tunnel", "gw-1"));

        lab.value(CONNECTED);
        assert!(lab.reports("gw-1", &tunnel(), NOW));
        assert_eq!(lab.shown(), ("Unknown", "Tunnel", "gw-1"));
        assert!(lab.reports("gw-2", &healthy(), NOW));
        assert_eq!(lab.shown(), ("True", "EndToEnd", "gw-2"));
    }

    #[test]
    fn received_handshakes_outweigh_missing_ones() {
        let mut lab = Lab::new(ERROR);
        lab.reports("gw-1", &verdict(Reason::NothingArrives, "nothing"), NOW);

        assert!(!lab.reports("gw-2", &verdict(Reason::NoAnswer, "nothing"), NOW));
        assert!(lab.reports("gw-2", &verdict(Reason::AnswersLost, "calls"), NOW));
        assert!(!lab.reports("gw-1", &verdict(Reason::NothingArrives, "nothing"), NOW));
        assert_eq!(lab.shown(), ("False", "AnswersLost", "gw-2"));
    }

    #[test]
    fn a_peer_that_is_not_served_is_always_a_fault() {
        let mut lab = Lab::new(CONNECTED);
        lab.reports("gw-1", &healthy(), NOW);

        assert!(lab.reports("gw-2", &verdict(Reason::NotServed, "no key"), NOW));
        assert_eq!(lab.shown(), ("False", "NotServed", "gw-2"));
    }

    #[test]
    fn the_transition_time_is_that_of_the_last_flip_and_foreign_conditions_stay() {
        let mut lab = Lab::new(CONNECTED);
        let foreign = Condition {
            type_: "Foreign".to_owned(),
            status: "True".to_owned(),
            reason: "Theirs".to_owned(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(NOW),
        };
        lab.status().conditions.push(foreign.clone());

        lab.reports("gw-1", &fault("node rome-1"), NOW);
        lab.reports("gw-1", &fault("nodes rome-1, rome-2"), LATER);
        assert_eq!(lab.status().conditions[1].last_transition_time, Time(NOW));
        lab.reports("gw-1", &healthy(), LATER);

        assert_eq!(lab.status().conditions[0], foreign);
        assert_eq!(lab.status().conditions[1].last_transition_time, Time(LATER));
        assert_eq!(lab.status().conditions.len(), 2);
    }

    /// The Connection of a peer and the replicas that write its condition.
    struct Lab {
        connection: Observed,
        live: Vec<&'static str>,
    }

    impl Lab {
        fn new(value: &str) -> Self {
            let mut lab = Self {
                connection: Observed::default(),
                live: vec!["gw-1", "gw-2"],
            };
            lab.value(value);
            lab
        }

        fn status(&mut self) -> &mut ConnectionStatus {
            &mut self.connection.status
        }

        fn value(&mut self, value: &str) {
            self.status().value = Some(value.to_owned());
        }

        /// Applies the patch of `replica` for `verdict`; returns whether there was a patch.
        fn reports(&mut self, replica: &str, verdict: &Verdict, now: Timestamp) -> bool {
            let is_live = |name: &str| self.live.contains(&name);
            let written = path(verdict, replica, is_live, &self.connection, now);
            let Some(written) = written else {
                return false;
            };
            let written: ConnectionStatus = serde_json::from_value(written).unwrap();
            self.status().conditions = written.conditions;
            self.status().reporter = written.reporter;
            true
        }

        fn shown(&self) -> (&str, &str, &str) {
            let status = &self.connection.status;
            let condition = status.conditions.last().unwrap();
            let reporter = status.reporter.as_deref().unwrap();
            (&condition.status, &condition.reason, reporter)
        }
    }

    fn healthy() -> Verdict {
        verdict(Reason::EndToEnd, "the nodes reach the nodes of milan")
    }

    fn fault(message: &str) -> Verdict {
        verdict(Reason::LocalOverlay, message)
    }

    fn tunnel() -> Verdict {
        verdict(Reason::Tunnel, "silence")
    }

    fn verdict(reason: Reason, message: &str) -> Verdict {
        Verdict {
            reason,
            message: message.to_owned(),
        }
    }
}
