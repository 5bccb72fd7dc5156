//! The condition of a `Connection` that tells whether the way is whole: who may write what. PURE.
//!
//! Of several replicas each sees its own part of the overlay. The first that finds a fault says
//! so, with its name; while it lives nobody else takes that back or says it otherwise.

use crate::path::{Reason, Verdict};
use control_api::Connection;
use control_api::connection::{CONNECTED, PATH_HEALTHY};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

/// What a replica says that has seen nothing.
const BLIND: [Reason; 3] = [Reason::Tunnel, Reason::NothingArrives, Reason::NoAnswer];

/// Returns what is to be written into the status because of what `replica` has found.
pub(super) fn path(
    verdict: &Verdict,
    replica: &str,
    is_live: impl Fn(&str) -> bool,
    connection: &Connection,
    now: Timestamp,
) -> Option<Value> {
    let shown = connection.status.as_ref();
    let conditions = shown.map(|status| status.conditions.as_slice());
    let conditions = conditions.unwrap_or_default();
    let old = conditions.iter().find(|old| old.type_ == PATH_HEALTHY);
    let reporter = shown.and_then(|status| status.reporter.as_deref());
    let is_own = reporter == Some(replica);

    let is_connected = shown.and_then(|status| status.value.as_deref()) == Some(CONNECTED);
    let reason = verdict.reason;
    let status = if reason.is_of_tunnel() && is_connected {
        // Another replica has the tunnel: this one has nothing to say but what it said itself.
        if !is_own {
            return None;
        }
        "Unknown"
    } else if reason == Reason::Connecting {
        "Unknown"
    } else if reason.is_well() {
        "True"
    } else {
        "False"
    };
    let may_write = match old {
        None => true,
        Some(old) if old.status == "Unknown" => status != "Unknown" || is_own,
        Some(old) => {
            let is_worse = status == "False" && old.status == "True";
            // What one replica sees the others need not see; that nothing comes is no contradiction.
            let is_blind = BLIND.iter().any(|reason| old.reason == reason.name());
            let is_better_known = verdict.reason.is_seen() && is_blind;
            is_own
                || is_worse
                || is_better_known
                || reporter.is_none_or(|reporter| !is_live(reporter))
        }
    };
    let is_said = |old: &Condition| {
        old.status == status
            && old.reason == verdict.reason.name()
            && old.message == verdict.message
    };
    if !may_write || old.is_some_and(is_said) {
        return None;
    }

    let same = old.filter(|old| old.status == status);
    let condition = Condition {
        last_transition_time: same.map_or(Time(now), |old| old.last_transition_time.clone()),
        message: verdict.message.clone(),
        observed_generation: connection.metadata.generation,
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
    use control_api::connection::{ConnectionSpec, ConnectionStatus, ConnectionType, ERROR};
    use k8s_openapi::api::core::v1::ObjectReference;

    const NOW: Timestamp = Timestamp::constant(1_000_000, 0);
    const LATER: Timestamp = Timestamp::constant(1_000_009, 0);

    #[test]
    fn what_is_found_is_said_once() {
        let mut lab = Lab::new(CONNECTED);

        assert!(lab.says("gw-1", &well(), NOW));
        assert!(!lab.says("gw-1", &well(), LATER));
        assert!(!lab.says("gw-2", &well(), LATER));
        assert_eq!(lab.shown(), ("True", "EndToEnd", "gw-1"));
    }

    #[test]
    fn a_fault_is_said_by_whoever_finds_it_and_taken_back_by_the_same() {
        let mut lab = Lab::new(CONNECTED);
        lab.says("gw-1", &well(), NOW);

        assert!(lab.says("gw-2", &fault("node rome-1"), NOW));
        assert!(!lab.says("gw-1", &well(), NOW));
        assert!(!lab.says("gw-1", &fault("node rome-7"), NOW));
        assert_eq!(lab.shown(), ("False", "LocalOverlay", "gw-2"));
        assert!(lab.says("gw-2", &fault("node rome-2"), NOW));
        assert!(lab.says("gw-2", &well(), NOW));
        assert!(lab.says("gw-1", &fault("node rome-7"), NOW));
    }

    #[test]
    fn what_a_dead_replica_has_found_counts_no_more() {
        let mut lab = Lab::new(CONNECTED);
        lab.says("gw-2", &fault("node rome-1"), NOW);

        lab.live.retain(|name| *name != "gw-2");

        assert!(lab.says("gw-1", &well(), NOW));
        assert_eq!(lab.shown(), ("True", "EndToEnd", "gw-1"));
    }

    #[test]
    fn a_replica_without_a_tunnel_is_no_fault_while_another_has_one() {
        let mut lab = Lab::new(CONNECTED);
        assert!(!lab.says("gw-1", &tunnel(), NOW));

        let mut lab = Lab::new(ERROR);
        assert!(lab.says("gw-1", &tunnel(), NOW));
        assert_eq!(lab.shown(), ("False", "Tunnel", "gw-1"));

        lab.value(CONNECTED);
        assert!(lab.says("gw-1", &tunnel(), NOW));
        assert_eq!(lab.shown(), ("Unknown", "Tunnel", "gw-1"));
        assert!(lab.says("gw-2", &well(), NOW));
        assert_eq!(lab.shown(), ("True", "EndToEnd", "gw-2"));
    }

    #[test]
    fn who_sees_handshakes_knows_better_than_who_sees_none() {
        let mut lab = Lab::new(ERROR);
        lab.says("gw-1", &verdict(Reason::NothingArrives, "nothing"), NOW);

        assert!(!lab.says("gw-2", &verdict(Reason::NoAnswer, "nothing"), NOW));
        assert!(lab.says("gw-2", &verdict(Reason::AnswersLost, "calls"), NOW));
        assert!(!lab.says("gw-1", &verdict(Reason::NothingArrives, "nothing"), NOW));
        assert_eq!(lab.shown(), ("False", "AnswersLost", "gw-2"));
    }

    #[test]
    fn that_nobody_serves_a_peer_is_a_fault_whatever_is_shown() {
        let mut lab = Lab::new(CONNECTED);
        lab.says("gw-1", &well(), NOW);

        assert!(lab.says("gw-2", &verdict(Reason::NotServed, "no key"), NOW));
        assert_eq!(lab.shown(), ("False", "NotServed", "gw-2"));
    }

    #[test]
    fn the_time_is_that_of_the_last_flip_and_others_conditions_stay() {
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

        lab.says("gw-1", &fault("node rome-1"), NOW);
        lab.says("gw-1", &fault("nodes rome-1, rome-2"), LATER);
        assert_eq!(lab.status().conditions[1].last_transition_time, Time(NOW));
        lab.says("gw-1", &well(), LATER);

        assert_eq!(lab.status().conditions[0], foreign);
        assert_eq!(lab.status().conditions[1].last_transition_time, Time(LATER));
        assert_eq!(lab.status().conditions.len(), 2);
    }

    /// An object, and the replicas that live.
    struct Lab {
        connection: Connection,
        live: Vec<&'static str>,
    }

    impl Lab {
        fn new(value: &str) -> Self {
            let spec = ConnectionSpec {
                gateway_ref: ObjectReference::default(),
                type_: ConnectionType::Server,
            };
            let mut lab = Self {
                connection: Connection::new("gw-milan", spec),
                live: vec!["gw-1", "gw-2"],
            };
            lab.value(value);
            lab
        }

        fn status(&mut self) -> &mut ConnectionStatus {
            self.connection.status.get_or_insert_default()
        }

        fn value(&mut self, value: &str) {
            self.status().value = Some(value.to_owned());
        }

        /// Lets a replica say what it has found; tells whether it writes anything.
        fn says(&mut self, replica: &str, verdict: &Verdict, now: Timestamp) -> bool {
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
            let status = self.connection.status.as_ref().unwrap();
            let condition = status.conditions.last().unwrap();
            let reporter = status.reporter.as_deref().unwrap();
            (&condition.status, &condition.reason, reporter)
        }
    }

    fn well() -> Verdict {
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
