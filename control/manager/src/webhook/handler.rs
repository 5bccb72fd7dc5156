//! The webhooks, by the paths in the webhook configurations of the chart.

use super::review::{Request, Response};
use super::{daemon_set, fields, pod, shadow_pod};
use control_runtime::Cache;

/// Values of the flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Whether pods of consumers count against Quotas.
    pub(crate) enforces_resources: bool,
    /// Seconds of the tolerations that the API server adds to pods for nodes that are not ready or unreachable.
    pub(crate) default_toleration_seconds: i64,
}

/// Verb and kind that a webhook of the chart reviews; each has its own path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handler {
    MutatePod,
    MutateShadowPod,
    ValidateShadowPod,
    MutateDaemonSet,
}

impl Handler {
    #[cfg(test)]
    pub(super) const ALL: [Self; 4] = [
        Self::MutatePod,
        Self::MutateShadowPod,
        Self::ValidateShadowPod,
        Self::MutateDaemonSet,
    ];

    /// Returns the webhook of a path.
    pub(super) fn of_path(path: &str) -> Option<Self> {
        match path {
            "/mutate/pod" => Some(Self::MutatePod),
            "/mutate/shadowpods" => Some(Self::MutateShadowPod),
            "/validate/shadowpods" => Some(Self::ValidateShadowPod),
            "/mutate/daemonsets" => Some(Self::MutateDaemonSet),
            _ => None,
        }
    }

    /// Returns the name, for metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MutatePod => "mutate_pod",
            Self::MutateShadowPod => "mutate_shadow_pod",
            Self::ValidateShadowPod => "validate_shadow_pod",
            Self::MutateDaemonSet => "mutate_daemon_set",
        }
    }

    /// Decides about a request.
    pub(super) fn decide(self, request: &Request, cache: &Cache, settings: &Settings) -> Response {
        match self {
            Self::MutatePod => pod::mutate(request, cache, settings.default_toleration_seconds),
            Self::MutateShadowPod => shadow_pod::mutate(request, settings.enforces_resources),
            Self::ValidateShadowPod => fields::validate(request),
            Self::MutateDaemonSet => daemon_set::mutate(request),
        }
    }
}
