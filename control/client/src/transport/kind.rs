//! The kinds of request, and how long each may take.

use http::{HeaderMap, Method, Request, Uri, header};
use std::time::Duration;

/// A class of requests with a deadline of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A GET of one object, or a discovery document.
    Read,
    /// One page of a list.
    List,
    /// A request that changes an object.
    Write,
    /// Any request for a Lease.
    Lease,
    /// A stream of changes.
    Watch,
    /// A container's log, which may be of any length.
    Log,
    /// A request that switches to another protocol: exec, attach, port-forward.
    Upgrade,
}

/// The request did not end in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server did not complete the request ({kind:?}) within {} s", .limit.as_secs())]
pub struct DeadlineError {
    /// The kind of request that timed out.
    pub kind: Kind,
    /// The limit that the request exceeded.
    pub limit: Duration,
}

/// An extension of a request: a shorter time than that of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit(pub Duration);

impl TimeLimit {
    /// Returns the time that a request may take.
    pub(super) fn of<B>(request: &Request<B>, kind: Kind) -> Duration {
        let limit = request.extensions().get::<Self>();
        limit.map_or(kind.deadline(), |limit| limit.0.min(kind.deadline()))
    }
}

impl Kind {
    /// Returns the kind of a request with this method, URI and headers.
    pub fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        if headers.contains_key(header::UPGRADE) {
            return Self::Upgrade;
        }
        if uri.path().contains("/apis/coordination.k8s.io/") && !is_set(uri, "watch") {
            return Self::Lease;
        }
        if method != Method::GET {
            return Self::Write;
        }
        if is_set(uri, "watch") {
            return Self::Watch;
        }
        if is_log(uri.path()) {
            return Self::Log;
        }
        if has(uri, "limit") {
            return Self::List;
        }

        Self::Read
    }

    /// Returns whether a response of this kind lasts until one side ends it.
    pub fn is_endless(self) -> bool {
        matches!(self, Self::Watch | Self::Log | Self::Upgrade)
    }

    /// Returns the time from sending the request to the end of its response, or to the head of the
    /// response if the kind is endless.
    ///
    /// An admission webhook may take 30 s, so a write takes longer than a read. A Lease request
    /// must end well before the renew deadline of 10 s.
    pub fn deadline(self) -> Duration {
        match self {
            Self::Lease => Duration::from_secs(3),
            Self::Read => Duration::from_secs(10),
            Self::List | Self::Watch | Self::Log | Self::Upgrade => Duration::from_secs(30),
            Self::Write => Duration::from_secs(35),
        }
    }
}

/// Returns whether a path is that of a pod's subresource `log`.
fn is_log(path: &str) -> bool {
    let mut segments = path.rsplit('/');
    segments.next() == Some("log") && segments.nth(1) == Some("pods")
}

/// Returns whether the query contains `name` with a value that Kubernetes parses as true.
fn is_set(uri: &Uri, name: &str) -> bool {
    parameters(uri).any(|(key, value)| key == name && !matches!(value, "false" | "0"))
}

/// Returns whether the query contains `name`.
fn has(uri: &Uri, name: &str) -> bool {
    parameters(uri).any(|(key, _)| key == name)
}

fn parameters(uri: &Uri) -> impl Iterator<Item = (&str, &str)> {
    let query = uri.query().unwrap_or_default();
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_kind_follows_from_method_path_and_query() {
        let cases = [
            ("GET", "/api/v1/namespaces/a/pods/b", Kind::Read),
            ("GET", "/apis", Kind::Read),
            ("GET", "/api/v1/pods?limit=500", Kind::List),
            (
                "GET",
                "/api/v1/pods?&watch=true&timeoutSeconds=290",
                Kind::Watch,
            ),
            ("GET", "/api/v1/pods?&watch=1", Kind::Watch),
            ("GET", "/api/v1/pods?watch=false&limit=5", Kind::List),
            (
                "GET",
                "/api/v1/namespaces/a/pods/b/log?follow=true",
                Kind::Log,
            ),
            ("GET", "/api/v1/namespaces/a/pods/b/log", Kind::Log),
            ("GET", "/api/v1/namespaces/a/pods/log", Kind::Read),
            ("PATCH", "/api/v1/namespaces/a/pods/b", Kind::Write),
            ("POST", "/api/v1/namespaces/a/pods", Kind::Write),
            ("DELETE", "/api/v1/namespaces/a/pods/b", Kind::Write),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
                Kind::Lease,
            ),
            (
                "GET",
                "/apis/coordination.k8s.io/v1/leases?watch=true",
                Kind::Watch,
            ),
            ("GET", "/base/api/v1/nodes?limit=500", Kind::List),
        ];

        for (method, uri, kind) in cases {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let uri = uri.parse().expect("a URI");
            assert_eq!(Kind::of(&method, &uri, &HeaderMap::new()), kind, "{uri}");
        }
    }

    #[test]
    fn a_request_with_an_upgrade_header_is_an_upgrade() {
        let uri = Uri::from_static("/api/v1/namespaces/a/pods/b/exec?command=ls");
        let headers = [(header::UPGRADE, HeaderValue::from_static("websocket"))];

        let kind = Kind::of(&Method::GET, &uri, &headers.into_iter().collect());

        assert_eq!(kind, Kind::Upgrade);
    }

    #[test]
    fn a_write_outlasts_the_slowest_admission_webhook() {
        assert!(Kind::Write.deadline() > Duration::from_secs(30));
    }
}
