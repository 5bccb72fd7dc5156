//! Conditions of remote namespaces, and the phase that summarises them.

use control_api::offloading::namespace_map::{MappingPhase, NamespaceMapping};
use control_api::offloading::namespace_offloading::RemoteNamespaceCondition as Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;

/// State of the remote namespace at one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The selector matches no virtual node of the provider, which has no namespace.
    NotSelected,
    /// The selector matches no virtual node of the provider, whose namespace is being deleted.
    Removing,
    /// The provider has not created the namespace yet.
    Creating,
    /// The provider has created the namespace.
    Created,
    /// The provider cannot create the namespace, or it has no valid name.
    Failed,
    /// The provider is deleting the namespace.
    Terminating,
}

impl State {
    /// Returns the state by the entry of the NamespaceMap's status.
    pub(super) fn of(is_selected: bool, mapping: Option<&NamespaceMapping>) -> Self {
        match (is_selected, mapping.map(|it| it.phase)) {
            (false, None) => Self::NotSelected,
            (false, Some(_)) => Self::Removing,
            (true, None | Some(None)) => Self::Creating,
            (true, Some(Some(MappingPhase::Accepted))) => Self::Created,
            (true, Some(Some(MappingPhase::CreationLoopBackOff))) => Self::Failed,
            (true, Some(Some(MappingPhase::Terminating))) => Self::Terminating,
        }
    }

    fn is_required(&self) -> bool {
        !matches!(self, Self::NotSelected | Self::Removing)
    }

    /// Returns the conditions, each with status, reason and message.
    fn conditions(&self) -> Vec<(&'static str, bool, &'static str, &'static str)> {
        let required = if self.is_required() {
            (
                "OffloadingRequired",
                true,
                "ClusterSelected",
                "The remote cluster has been selected through the ClusterSelector field",
            )
        } else {
            (
                "OffloadingRequired",
                false,
                "ClusterNotSelected",
                "The remote cluster has not been selected through the ClusterSelector field",
            )
        };
        let ready = match self {
            Self::NotSelected => None,
            Self::Creating => Some((
                false,
                "Creating",
                "The remote namespace has not been created yet",
            )),
            Self::Created => Some((
                true,
                "NamespaceCreated",
                "Namespace correctly offloaded to the remote cluster",
            )),
            Self::Failed => Some((
                false,
                "CreationLoopBackOff",
                "The remote namespace cannot be created: its name may be taken or refused at the provider",
            )),
            Self::Removing | Self::Terminating => Some((
                false,
                "Terminating",
                "The remote namespace is being deleted",
            )),
        };
        let ready = ready.map(|(status, reason, message)| ("Ready", status, reason, message));

        [Some(required), ready].into_iter().flatten().collect()
    }
}

/// Returns the conditions of a provider. The time of a condition is that of the last change of its status.
pub(super) fn conditions(state: &State, old: &[Condition], now: Timestamp) -> Vec<Condition> {
    let condition = |(type_, is_true, reason, message): (&str, bool, &str, &str)| {
        let status = if is_true { "True" } else { "False" };
        let old = old
            .iter()
            .find(|it| it.type_ == type_ && it.status == status);
        let time = old.and_then(|it| it.last_transition_time.clone());
        Condition {
            last_transition_time: Some(time.unwrap_or(Time(now))),
            message: Some(message.to_owned()),
            reason: Some(reason.to_owned()),
            status: status.to_owned(),
            type_: type_.to_owned(),
        }
    };

    state.conditions().into_iter().map(condition).collect()
}

/// Returns the phase of a NamespaceOffloading from the states of its providers.
pub(super) fn phase(is_terminating: bool, states: &BTreeMap<String, State>) -> &'static str {
    let count = |state: &State| states.values().filter(|it| *it == state).count();
    let required = states.values().filter(|it| it.is_required()).count();
    let (ready, failed) = (count(&State::Created), count(&State::Failed));
    if is_terminating {
        "Terminating"
    } else if required == 0 {
        "NoClusterSelected"
    } else if ready == required {
        "Ready"
    } else if failed == required {
        "AllFailed"
    } else if failed > 0 {
        "SomeFailed"
    } else {
        "InProgress"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase_of(states: &[State]) -> &'static str {
        let named = states.iter().enumerate();
        let named = named.map(|(index, state)| (index.to_string(), state.clone()));
        phase(false, &named.collect())
    }

    #[test]
    fn the_phase_summarises_the_selected_clusters() {
        use State::{Created, Creating, Failed, NotSelected, Removing, Terminating};
        for (states, expected) in [
            (&[][..], "NoClusterSelected"),
            (&[NotSelected, Removing], "NoClusterSelected"),
            (&[Created, NotSelected], "Ready"),
            (&[Created, Removing], "Ready"),
            (&[Failed, Failed, NotSelected], "AllFailed"),
            (&[Failed, Created], "SomeFailed"),
            (&[Failed, Creating], "SomeFailed"),
            (&[Creating, Created], "InProgress"),
            (&[Terminating, Created], "InProgress"),
        ] {
            assert_eq!(phase_of(states), expected, "{states:?}");
        }
        let created = [("milan".to_owned(), Created)].into();
        assert_eq!(phase(true, &created), "Terminating");
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let creating = conditions(&State::Creating, &[], at(1));
        let failed = conditions(&State::Failed, &creating, at(2));
        let created = conditions(&State::Created, &failed, at(3));

        let times = |conditions: &[Condition]| {
            let times = conditions.iter().map(|it| it.last_transition_time.clone());
            Vec::from_iter(times.map(|time| time.unwrap().0.as_second()))
        };
        assert_eq!(times(&failed), [1, 1]);
        assert_eq!(times(&created), [1, 3]);
    }
}
