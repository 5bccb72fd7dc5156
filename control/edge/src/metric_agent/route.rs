//! The paths of the API.

use control_fabric::is_cluster_id;

/// API group of the agent.
pub(super) const GROUP: &str = "metrics.liqo.io";

/// Version of the group.
pub(super) const VERSION: &str = "v1beta1";

/// Meaning of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// `/healthz`, `/livez` and `/readyz`.
    Health,
    /// `/apis`.
    Groups,
    /// `/apis/metrics.liqo.io`.
    Group,
    /// `/apis/metrics.liqo.io/v1beta1`.
    Version,
    /// `/openapi/v2`.
    OpenApi2,
    /// `/openapi/v3`.
    OpenApi3,
    /// `/openapi/v3/apis/metrics.liqo.io/v1beta1`.
    OpenApi3OfVersion,
    /// `/apis/metrics.liqo.io/v1beta1/scrape/<cluster ID>/<metrics>`.
    Scrape {
        /// Cluster ID of the consumer.
        consumer: &'a str,
        /// Which of the kubelets' endpoints.
        endpoint: Endpoint,
    },
    /// A scrape of metrics that kubelets do not have.
    UnknownEndpoint,
    /// Any other path.
    Unknown,
}

/// Endpoint of a kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Kubelet,
    Cadvisor,
    Resource,
    Probes,
}

impl Endpoint {
    #[cfg(test)]
    pub(super) const ALL: [Self; 4] = [Self::Kubelet, Self::Cadvisor, Self::Resource, Self::Probes];

    fn of(path: &str) -> Option<Self> {
        match path {
            "metrics" => Some(Self::Kubelet),
            "metrics/cadvisor" => Some(Self::Cadvisor),
            "metrics/resource" => Some(Self::Resource),
            "metrics/probes" => Some(Self::Probes),
            _ => None,
        }
    }

    /// Returns the path at a kubelet.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Kubelet => "/metrics",
            Self::Cadvisor => "/metrics/cadvisor",
            Self::Resource => "/metrics/resource",
            Self::Probes => "/metrics/probes",
        }
    }

    /// Returns whether kubelets report the totals of their nodes there.
    pub(super) fn has_totals(self) -> bool {
        self == Self::Resource
    }
}

impl<'a> Route<'a> {
    /// Returns the meaning of a path. The API server passes it on as the client has sent it, so only exact paths count.
    pub(super) fn of(path: &'a str) -> Self {
        match path {
            "/healthz" | "/livez" | "/readyz" => return Self::Health,
            "/apis" | "/apis/" => return Self::Groups,
            "/openapi/v2" => return Self::OpenApi2,
            "/openapi/v3" => return Self::OpenApi3,
            "/openapi/v3/apis/metrics.liqo.io/v1beta1" => return Self::OpenApi3OfVersion,
            _ => {}
        }
        let Some(path) = path.strip_prefix("/apis/metrics.liqo.io") else {
            return Self::Unknown;
        };
        match path {
            "" | "/" => return Self::Group,
            "/v1beta1" | "/v1beta1/" => return Self::Version,
            _ => {}
        }
        let scrape = path.strip_prefix("/v1beta1/scrape/");
        match scrape.and_then(|it| it.split_once('/')) {
            // No group of Kubernetes is a cluster ID, such as `system:authenticated`, which every requester has.
            Some((consumer, path)) if is_cluster_id(consumer) => match Endpoint::of(path) {
                Some(endpoint) => Self::Scrape { consumer, endpoint },
                None => Self::UnknownEndpoint,
            },
            Some(_) | None => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_paths_name_metrics_of_a_consumer() {
        let base = "/apis/metrics.liqo.io/v1beta1/scrape";
        for endpoint in Endpoint::ALL {
            let path = format!("{base}/rome{}", endpoint.path());
            let consumer = "rome";
            assert_eq!(Route::of(&path), Route::Scrape { consumer, endpoint });
        }
        for metrics in [
            "",
            "metrics/",
            "metrics/all",
            "stats/summary",
            "../pods",
            "metrics//probes",
        ] {
            let path = format!("{base}/rome/{metrics}");
            assert_eq!(Route::of(&path), Route::UnknownEndpoint, "{path}");
        }
        for path in [
            format!("{base}/system:authenticated/metrics"),
            format!("{base}/liqo.io/metrics"),
            format!("{base}/ROME/metrics"),
            format!("{base}/%72ome/metrics"),
            format!("{base}//metrics"),
            format!("{base}/rome"),
            format!("/{base}/rome/metrics"),
            "/apis/metrics.liqo.io/v1/scrape/rome/metrics".to_owned(),
            "/apis/metrics.liqo.iox".to_owned(),
            "/metrics".to_owned(),
            String::new(),
        ] {
            assert_eq!(Route::of(&path), Route::Unknown, "{path}");
        }
    }
}
