//! Conditions of ServiceExports and ServiceImports.

use super::export::Invalid;
use super::merge::{Conflict, Merged};
use control_api::multicluster::service_export::{CONFLICT, READY, VALID, reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// A condition without its transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) type_: &'static str,
    pub(super) is_true: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

/// Returns the conditions with these verdicts. The time of a transition is kept until the status changes.
pub(super) fn set<const N: usize>(
    old: &[Condition],
    verdicts: [Verdict; N],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let condition = |verdict: Verdict| {
        let status = if verdict.is_true { "True" } else { "False" };
        let mut before = old.iter();
        let kept = before.find(|it| it.type_ == verdict.type_ && it.status == status);
        Condition {
            last_transition_time: kept.map_or(Time(now), |it| it.last_transition_time.clone()),
            message: verdict.message,
            observed_generation: generation,
            reason: verdict.reason,
            status: status.to_owned(),
            type_: verdict.type_.to_owned(),
        }
    };

    verdicts.into_iter().map(condition).collect()
}

/// Why a Service is not exported, although it can be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unexported {
    #[error("the exports for these peers are being written: {0}")]
    Pending(String),
    #[error(
        "a ServiceImport of this name exists that Liqo has not created: delete it, or the installation that has created it"
    )]
    NameTaken,
    #[error("the feature is being switched off")]
    SwitchedOff,
}

/// Returns the verdicts about a ServiceExport.
pub(super) fn of_export(
    valid: Result<(), &Invalid>,
    exported: Result<(), Unexported>,
    merged: Option<&Merged>,
    id: &str,
) -> [Verdict; 3] {
    let (why, invalid) = match valid {
        Ok(()) => (reason::VALID, "the Service can be exported".to_owned()),
        Err(invalid) => (invalid.reason(), invalid.to_string()),
    };
    let ready = match (valid, exported) {
        (Err(_), _) => (reason::FAILED, "the ServiceExport is not valid".to_owned()),
        (Ok(()), Ok(())) => (reason::EXPORTED, "all peers can read the export".to_owned()),
        (Ok(()), Err(error @ Unexported::Pending(_))) => (reason::PENDING, error.to_string()),
        (Ok(()), Err(error)) => (reason::FAILED, error.to_string()),
    };
    let conflicts = merged.filter(|_| valid.is_ok());
    let verdict = |type_, is_true, reason: &str, message| Verdict {
        type_,
        is_true,
        reason: reason.to_owned(),
        message,
    };

    [
        verdict(VALID, valid.is_ok(), why, invalid),
        verdict(READY, ready.0 == reason::EXPORTED, ready.0, ready.1),
        conflict(conflicts, id),
    ]
}

fn conflict(merged: Option<&Merged>, id: &str) -> Verdict {
    let none = || Verdict {
        type_: CONFLICT,
        is_true: false,
        reason: reason::NO_CONFLICTS.to_owned(),
        message: "all clusters export the same properties".to_owned(),
    };
    let Some(merged) = merged.filter(|it| !it.conflicts.is_empty()) else {
        return none();
    };
    let reasons: Vec<_> = merged
        .conflicts
        .iter()
        .map(|it| Conflict::reason(*it))
        .collect();
    let oldest = if merged.oldest == id {
        "this cluster has exported the Service first, so its properties count".to_owned()
    } else {
        format!(
            "cluster {} has exported the Service first, so its properties count",
            merged.oldest
        )
    };

    Verdict {
        type_: CONFLICT,
        is_true: true,
        reason: reasons.join(","),
        message: format!(
            "the clusters {} export different properties; {oldest}. Ports of all clusters are served",
            merged.clusters.join(", ")
        ),
    }
}
