//! The rights that requests need: those of Kubernetes' kubelet (`pkg/kubelet/server/auth.go`).

use super::route::{Prefix, Route};
use http::Method;

/// A verb, and subresources of the Node. One right of them is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Verb.
    pub(crate) verb: &'static str,
    /// Subresources of `nodes`.
    pub(crate) subresources: &'static [&'static str],
}

impl Attributes {
    /// Returns the attributes of a request. They follow from the parsed path, so a request that runs a command is never
    /// authorized as one that reads metrics.
    pub(crate) fn of(route: &Route, method: &Method) -> Self {
        let runs = matches!(route, Route::Stream(_) | Route::Unknown(Prefix::Run));
        let verb = match *method {
            // A WebSocket client starts a process by GET, which is more than reading.
            _ if runs => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            // Methods without a verb are not served, and need no less than this one.
            _ => "create",
        };
        let subresources: &[_] = match route {
            Route::Summary | Route::Unknown(Prefix::Stats) => &["stats"],
            Route::Metrics(_) | Route::Unknown(Prefix::Metrics) => &["metrics"],
            Route::Unknown(Prefix::Log) => &["log"],
            Route::Pods => &["pods", "proxy"],
            Route::Healthz => &["healthz", "proxy"],
            Route::Logs(_) | Route::Stream(_) | Route::Unknown(Prefix::Run | Prefix::None) => {
                &["proxy"]
            }
        };

        Self { verb, subresources }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rights_are_those_of_a_kubelet() {
        for (method, path, verb, subresources) in [
            (Method::GET, "/metrics", "get", &["metrics"][..]),
            (Method::GET, "/metrics/resource", "get", &["metrics"]),
            (Method::GET, "/metrics/unknown", "get", &["metrics"]),
            (Method::GET, "/stats/summary", "get", &["stats"]),
            (Method::POST, "/stats/container", "create", &["stats"]),
            (Method::GET, "/logs/", "get", &["log"]),
            (Method::GET, "/pods", "get", &["pods", "proxy"]),
            (Method::GET, "/healthz", "get", &["healthz", "proxy"]),
            (
                Method::GET,
                "/containerLogs/shop/web/web",
                "get",
                &["proxy"],
            ),
            (Method::GET, "/configz", "get", &["proxy"]),
            (Method::DELETE, "/configz", "delete", &["proxy"]),
            (Method::PUT, "/configz", "update", &["proxy"]),
            (Method::PATCH, "/configz", "patch", &["proxy"]),
        ] {
            let attributes = Attributes::of(&Route::of_path(path), &method);
            let expected = Attributes { verb, subresources };
            assert_eq!(attributes, expected, "{method} {path}");
        }
    }

    #[test]
    fn a_request_that_runs_something_needs_create_whatever_its_method() {
        for path in [
            "/exec/shop/web/web",
            "/attach/shop/web/web",
            "/portForward/shop/web",
            "/run/shop/web/web",
        ] {
            for method in [Method::GET, Method::POST, Method::PUT] {
                let attributes = Attributes::of(&Route::of_path(path), &method);
                assert_eq!(attributes.verb, "create", "{method} {path}");
                assert_eq!(attributes.subresources, ["proxy"], "{method} {path}");
            }
        }
    }
}
