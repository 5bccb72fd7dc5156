//! When pods of an unreachable virtual node are replaced: the tolerations of its taints.

use serde_json::{Value, json};
use std::str::FromStr;
use std::time::Duration;

/// Taints of a node whose kubelet does not report.
const TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

/// The value of the annotation `liqo.io/repatriation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repatriation {
    /// The pods stay bound to the virtual node.
    Never,
    /// The pods are replaced after this number of seconds.
    After(i64),
}

/// The annotation has another value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither `never` nor a duration: use one like 10m")]
pub(super) struct InvalidRepatriation(String);

impl FromStr for Repatriation {
    type Err = InvalidRepatriation;

    /// Parses `never` or a duration as Kubernetes writes them. Parts of seconds are rounded up.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text == "never" {
            return Ok(Self::Never);
        }
        let duration = text.parse::<kube::core::Duration>().ok();
        let duration = duration.filter(|it| !it.is_negative()).map(Duration::from);
        let seconds = duration.map(|it| it.as_secs() + u64::from(it.subsec_nanos() > 0));
        let seconds = seconds.and_then(|it| i64::try_from(it).ok());
        let shown: String = text.chars().take(64).collect();

        seconds.map(Self::After).ok_or(InvalidRepatriation(shown))
    }
}

/// Replaces the tolerations that the API server has added to a pod. Other ones are the user's and stay.
pub(super) fn apply(
    repatriation: Option<Repatriation>,
    default_seconds: i64,
    tolerations: &mut Vec<Value>,
) {
    let seconds = match repatriation {
        None => return,
        Some(Repatriation::Never) => None,
        Some(Repatriation::After(seconds)) => Some(seconds),
    };
    for taint in TAINTS {
        let mut desired = json!({"key": taint, "operator": "Exists", "effect": "NoExecute"});
        let mut default = desired.clone();
        default["tolerationSeconds"] = default_seconds.into();
        if let Some(seconds) = seconds {
            desired["tolerationSeconds"] = seconds.into();
        }
        match tolerations.iter().position(|it| *it == default) {
            Some(position) => tolerations[position] = desired,
            None if tolerations.iter().any(|it| tolerates(it, taint)) => {}
            // The API server adds none, so that pods would be replaced at once.
            None => tolerations.push(desired),
        }
    }
}

/// Returns whether a toleration is about a taint with the effect `NoExecute`.
fn tolerates(toleration: &Value, taint: &str) -> bool {
    let field = |name: &str| toleration[name].as_str().unwrap_or_default();

    ["", taint].contains(&field("key")) && ["", "NoExecute"].contains(&field("effect"))
}
