//! What an API server's refusal means, in a sentence with its cure.

use anyhow::anyhow;
use std::fmt;

/// An API server that did not answer; it may, later.
#[derive(Debug)]
pub(crate) struct Unreachable(String);

impl fmt::Display for Unreachable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Unreachable {}

/// Returns the error of an attempt to do `what` in `place` (a cluster, named for a reader):
/// an [`Unreachable`] if no answer came.
pub(crate) fn explain(what: &str, place: &str, error: &kube::Error) -> anyhow::Error {
    let text = format!("failed to {what} in {place}: {}", cause(error));
    match code(error) {
        Some(_) => anyhow!(text),
        None => Unreachable(text).into(),
    }
}

/// Returns whether the object, or its kind, is not there.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    code(error) == Some(404)
}

/// Returns whether the right is missing.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    code(error) == Some(403)
}

fn code(error: &kube::Error) -> Option<u16> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    Some(status.code)
}

fn cause(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else {
        return format!(
            "its API server cannot be reached ({}); check the kubeconfig's server and the way to it",
            innermost(error)
        );
    };
    match status.code {
        401 => "its API server does not accept the credentials; check the kubeconfig's user, it may have expired".to_owned(),
        403 => format!("{}; ask for that right", status.message),
        404 if status.message.contains("could not find the requested resource")
            || status.message.contains("page not found") =>
        {
            "its API server does not know the kind, Liqo's CRDs are missing or of another version; run `liqoctl install`".to_owned()
        }
        code if status.message.is_empty() => {
            format!("it answers with HTTP status {code}; is it an API server, or a proxy on the way?")
        }
        _ => status.message.clone(),
    }
}

/// Returns the text of the error that began it all: the outer ones repeat it.
fn innermost(error: &kube::Error) -> String {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn refusal(code: u16, message: &str) -> kube::Error {
        let mut status = Status::failure(message, "");
        status.code = code;
        kube::Error::Api(status.boxed())
    }

    #[test]
    fn a_missing_kind_is_cured_by_an_installation() {
        let error = refusal(404, "the server could not find the requested resource");

        let text = explain("list Networks", "the local cluster", &error).to_string();

        assert!(text.starts_with("failed to list Networks in the local cluster: "));
        assert!(text.contains("liqoctl install"));
        assert!(is_not_found(&error));
    }

    #[test]
    fn a_missing_right_is_named() {
        let error = refusal(403, "nodes is forbidden: User \"x\" cannot list");

        let text = explain("list nodes", "the remote cluster", &error).to_string();

        assert!(text.ends_with("cannot list; ask for that right"));
        assert!(is_forbidden(&error));
    }

    #[test]
    fn wrong_credentials_are_told_apart_from_missing_rights() {
        let text = explain("read", "it", &refusal(401, "Unauthorized")).to_string();

        assert!(text.contains("does not accept the credentials"));
    }

    #[test]
    fn an_answer_without_reason_is_told_by_its_number() {
        let text = explain("read", "it", &refusal(502, "")).to_string();

        assert!(text.contains("HTTP status 502"));
    }

    #[test]
    fn an_unreachable_server_is_not_a_refusal() {
        let broken = std::io::Error::other("connection refused");
        let error = kube::Error::ReadEvents(broken);

        let explained = explain("list nodes", "the remote cluster", &error);

        assert!(explained.downcast_ref::<Unreachable>().is_some());
        assert!(
            explained
                .to_string()
                .contains("cannot be reached (connection refused)")
        );
    }
}
