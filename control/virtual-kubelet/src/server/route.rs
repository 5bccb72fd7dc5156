//! Paths of the kubelet's API.

use super::refusal::Refusal;
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;

/// Longest name of a pod or a container. Kubernetes allows DNS subdomains.
const NAME_LEN_MAX: usize = 253;

/// An endpoint, with the objects that its path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Whether the process works.
    Healthz,
    /// The pods of the Node.
    Pods,
    /// Usage of resources, as JSON.
    Summary,
    /// Metrics of the provider, by its path without the leading slash.
    Metrics(&'static str),
    /// Log of a container.
    Logs(Container),
    /// A stream to a pod.
    Stream(Stream),
    /// No endpoint. The request is authorized nevertheless, by the prefix of its path.
    Unknown(Prefix),
}

/// Prefixes of paths with a subresource of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// `/stats`
    Stats,
    /// `/metrics`
    Metrics,
    /// `/logs`
    Log,
    /// `/run`, which starts a process.
    Run,
    /// All others.
    None,
}

/// A request that switches to a protocol with several streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Runs a command in a container.
    Exec(Container),
    /// Attaches to the process of a container.
    Attach(Container),
    /// Connects to ports of a pod.
    PortForward(PodName),
}

impl Stream {
    /// Returns the pod.
    pub(crate) fn pod(&self) -> &PodName {
        match self {
            Self::Exec(container) | Self::Attach(container) => &container.pod,
            Self::PortForward(pod) => pod,
        }
    }

    /// Returns the subresource of pods.
    pub(crate) fn subresource(&self) -> &'static str {
        match self {
            Self::Exec(_) => "exec",
            Self::Attach(_) => "attach",
            Self::PortForward(_) => "portforward",
        }
    }
}

/// A pod of this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodName {
    /// Namespace of the pod.
    pub(crate) namespace: String,
    /// Name of the pod.
    pub(crate) name: String,
    /// UID that the pod must have, if the path names one.
    pub(crate) uid: Option<String>,
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Container {
    /// The pod.
    pub(crate) pod: PodName,
    /// Name of the container.
    pub(crate) name: String,
}

impl Route {
    /// Parses a path as the client sent it, percent-encoded.
    pub(crate) fn of_path(path: &str) -> Self {
        let Some(segments) = segments(path) else {
            return Self::Unknown(Prefix::of_path(path));
        };
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let route = match segments.as_slice() {
            ["healthz"] => Some(Self::Healthz),
            ["pods"] => Some(Self::Pods),
            ["stats", "summary"] => Some(Self::Summary),
            ["metrics"] => Some(Self::Metrics("metrics")),
            ["metrics", "resource"] => Some(Self::Metrics("metrics/resource")),
            ["metrics", "cadvisor"] => Some(Self::Metrics("metrics/cadvisor")),
            ["metrics", "probes"] => Some(Self::Metrics("metrics/probes")),
            ["containerLogs", rest @ ..] => container(rest, false).map(Self::Logs),
            ["exec", rest @ ..] => container(rest, true).map(Stream::Exec).map(Self::Stream),
            ["attach", rest @ ..] => container(rest, true).map(Stream::Attach).map(Self::Stream),
            ["portForward", rest @ ..] => pod(rest).map(Stream::PortForward).map(Self::Stream),
            _ => None,
        };

        route.unwrap_or_else(|| Self::Unknown(Prefix::of_path(path)))
    }

    /// Returns the name of the endpoint, for metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Pods => "pods",
            Self::Summary => "stats/summary",
            Self::Metrics(path) => path,
            Self::Logs(_) => "containerLogs",
            Self::Stream(Stream::Exec(_)) => "exec",
            Self::Stream(Stream::Attach(_)) => "attach",
            Self::Stream(Stream::PortForward(_)) => "portForward",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Checks the method.
    ///
    /// # Errors
    ///
    /// Returns a refusal with the methods of the endpoint.
    pub(crate) fn check_method(&self, method: &Method) -> Result<(), Refusal> {
        let methods: &[Method] = match self {
            Self::Unknown(_) => {
                return Err(Refusal::new(StatusCode::NOT_FOUND, "404 page not found"));
            }
            Self::Stream(_) => &[Method::GET, Method::POST],
            Self::Healthz | Self::Pods | Self::Summary | Self::Metrics(_) | Self::Logs(_) => {
                &[Method::GET]
            }
        };
        if methods.contains(method) {
            return Ok(());
        }
        let names: Vec<_> = methods.iter().map(Method::as_str).collect();

        Err(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!(
                "the method {method} is not supported here: use {}",
                names.join(" or ")
            ),
        ))
    }
}

impl Prefix {
    fn of_path(path: &str) -> Self {
        // Decoded, so that an encoded path is authorized like the plain one.
        let decoded = percent_decode_str(path).decode_utf8_lossy();
        let first = decoded.trim_start_matches('/').split('/').next();
        match first.unwrap_or_default() {
            "stats" => Self::Stats,
            "metrics" => Self::Metrics,
            "logs" => Self::Log,
            "run" => Self::Run,
            _ => Self::None,
        }
    }
}

/// Returns the decoded segments of a path; `None` if one of them is empty or is not UTF-8.
fn segments(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix('/')?;
    let decoded = path.split('/').map(|segment| {
        let decoded = percent_decode_str(segment).decode_utf8().ok()?;
        (!decoded.is_empty()).then(|| decoded.into_owned())
    });

    decoded.collect()
}

/// Parses `NAMESPACE/POD[/UID]/CONTAINER`.
fn container(segments: &[&str], may_have_uid: bool) -> Option<Container> {
    let (name, of_pod) = segments.split_last()?;
    let pod = pod(of_pod).filter(|it| may_have_uid || it.uid.is_none())?;

    is_name(name).then(|| Container {
        pod,
        name: (*name).to_owned(),
    })
}

/// Parses `NAMESPACE/POD[/UID]`.
fn pod(segments: &[&str]) -> Option<PodName> {
    let (namespace, name, uid) = match segments {
        [namespace, name] => (namespace, name, None),
        [namespace, name, uid] => (namespace, name, Some(*uid)),
        _ => return None,
    };
    let is_valid = is_name(namespace) && is_name(name) && uid.is_none_or(is_name);

    is_valid.then(|| PodName {
        namespace: (*namespace).to_owned(),
        name: (*name).to_owned(),
        uid: uid.map(str::to_owned),
    })
}

/// Returns whether a text is a DNS subdomain (RFC 1123), as all these names are. It contains neither `/` nor `..`, so it
/// stays one segment of the path at the provider.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        label.bytes().all(is_inner)
            && !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
    };

    text.len() <= NAME_LEN_MAX && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn web(uid: Option<&str>) -> PodName {
        PodName {
            namespace: "shop".to_owned(),
            name: "web-0.a".to_owned(),
            uid: uid.map(str::to_owned),
        }
    }

    fn container(uid: Option<&str>) -> Container {
        Container {
            pod: web(uid),
            name: "web".to_owned(),
        }
    }

    #[test]
    fn paths_are_those_of_a_kubelet() {
        let uid = Some("5c9e4a1b-0b7d-4b5c-8f0e-4f2f7f4a1d11");
        for (path, route) in [
            ("/healthz", Route::Healthz),
            ("/pods", Route::Pods),
            ("/stats/summary", Route::Summary),
            ("/metrics", Route::Metrics("metrics")),
            ("/metrics/resource", Route::Metrics("metrics/resource")),
            ("/metrics/cadvisor", Route::Metrics("metrics/cadvisor")),
            ("/metrics/probes", Route::Metrics("metrics/probes")),
            (
                "/containerLogs/shop/web-0.a/web",
                Route::Logs(container(None)),
            ),
            (
                "/exec/shop/web-0.a/web",
                Route::Stream(Stream::Exec(container(None))),
            ),
            (
                "/exec/shop/web-0.a/5c9e4a1b-0b7d-4b5c-8f0e-4f2f7f4a1d11/web",
                Route::Stream(Stream::Exec(container(uid))),
            ),
            (
                "/attach/shop/web-0.a/web",
                Route::Stream(Stream::Attach(container(None))),
            ),
            (
                "/portForward/shop/web-0.a",
                Route::Stream(Stream::PortForward(web(None))),
            ),
            (
                "/portForward/shop/web-0.a/5c9e4a1b-0b7d-4b5c-8f0e-4f2f7f4a1d11",
                Route::Stream(Stream::PortForward(web(uid))),
            ),
            (
                "/portForward/sho%70/web%2D0.a",
                Route::Stream(Stream::PortForward(web(None))),
            ),
        ] {
            assert_eq!(Route::of_path(path), route, "{path}");
        }
    }

    #[test]
    fn other_paths_have_the_subresource_of_their_prefix() {
        for (path, prefix) in [
            ("/run/shop/web/web", Prefix::Run),
            ("/%72un/shop/web/web", Prefix::Run),
            ("/stats", Prefix::Stats),
            ("/stats/", Prefix::Stats),
            ("/metrics/../exec/shop/web/web", Prefix::Metrics),
            ("/logs/kube-apiserver.log", Prefix::Log),
            ("/logsx", Prefix::None),
            ("/configz", Prefix::None),
            ("/runningpods/", Prefix::None),
            ("/", Prefix::None),
            ("", Prefix::None),
            ("*", Prefix::None),
        ] {
            assert_eq!(Route::of_path(path), Route::Unknown(prefix), "{path}");
        }
    }

    #[test]
    fn names_that_would_leave_their_segment_are_no_path() {
        for name in [
            "..", ".", "a%2fb", "a%2Fb", "%2e%2e", "a..b", "a%00", "a%3Fb", "A", "-a", "a-", "a_b",
            "%ff", "a b", "",
        ] {
            for path in [
                format!("/exec/shop/{name}/web"),
                format!("/exec/{name}/web/web"),
                format!("/exec/shop/web/{name}"),
                format!("/exec/shop/web/{name}/web"),
                format!("/portForward/shop/{name}"),
                format!("/containerLogs/shop/web/{name}"),
            ] {
                assert_eq!(
                    Route::of_path(&path),
                    Route::Unknown(Prefix::None),
                    "{path}"
                );
            }
        }
        let long = "a".repeat(NAME_LEN_MAX + 1);
        assert_eq!(
            Route::of_path(&format!("/portForward/shop/{long}")),
            Route::Unknown(Prefix::None)
        );
    }

    #[test]
    fn other_methods_than_those_of_the_endpoint_are_refused() {
        let exec = Route::of_path("/exec/shop/web/web");
        assert_eq!(exec.check_method(&Method::POST), Ok(()));
        assert_eq!(exec.check_method(&Method::GET), Ok(()));
        let refusal = exec.check_method(&Method::PUT).unwrap_err();
        assert_eq!(refusal.status, StatusCode::METHOD_NOT_ALLOWED);
        let refusal = Route::Pods.check_method(&Method::POST).unwrap_err();
        assert!(refusal.message.contains("use GET"), "{}", refusal.message);
        let run = Route::of_path("/run/shop/web/web");
        let refusal = run.check_method(&Method::POST).unwrap_err();
        assert_eq!(refusal.status, StatusCode::NOT_FOUND);
    }

    proptest! {
        #[test]
        fn no_path_names_more_than_one_segment(path in "/(exec|attach|portForward|containerLogs)(/[a-zA-Z0-9.%/_-]{0,9}){0,5}") {
            let (Route::Logs(Container { pod, .. })
            | Route::Stream(
                Stream::Exec(Container { pod, .. })
                | Stream::Attach(Container { pod, .. })
                | Stream::PortForward(pod),
            )) = Route::of_path(&path)
            else {
                return Ok(());
            };
            for name in [&pod.namespace, &pod.name] {
                prop_assert!(!name.contains(['/', '%', '?']) && !name.contains("..") && name != ".");
            }
        }
    }
}
