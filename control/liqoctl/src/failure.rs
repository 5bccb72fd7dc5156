//! Explains errors of an API server, with the remedy.

use anyhow::anyhow;
use std::fmt;

/// The API server is unreachable. A later request may succeed.
#[derive(Debug)]
pub(crate) struct Unreachable(String);

impl fmt::Display for Unreachable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Unreachable {}

/// A right of the user is missing.
#[derive(Debug)]
pub(crate) struct Forbidden(String);

impl fmt::Display for Forbidden {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Forbidden {}

/// Returns the error of `action` in the cluster that messages call `place`: an [`Unreachable`] if
/// no response arrived, a [`Forbidden`] if a right is missing.
pub(crate) fn explain(action: &str, place: &str, error: &kube::Error) -> anyhow::Error {
    let text = format!("failed to {action} in {place}: {}", cause(error));
    match code(error) {
        Some(403) => Forbidden(text).into(),
        Some(_) => anyhow!(text),
        None => Unreachable(text).into(),
    }
}

/// Returns the result, or none if a right is missing.
///
/// # Errors
///
/// Returns every other error.
pub(crate) fn if_permitted<T>(result: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is::<Forbidden>() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether the API server reports that the object or its kind does not exist.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    code(error) == Some(404)
}

/// Returns whether the API server reports that a right is missing.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    code(error) == Some(403)
}

/// Returns whether the object exists already, or was changed by another writer.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    code(error) == Some(409)
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
            "its API server is unreachable ({}); check the server in the kubeconfig, and the network path to it",
            innermost(error)
        );
    };
    match status.code {
        401 => "its API server refused the credentials; check the user in the kubeconfig, whose certificate or token may have expired".to_owned(),
        403 => format!("{}; request this right from an administrator", status.message),
        404 if status.message.contains("could not find the requested resource")
            || status.message.contains("page not found") =>
        {
            "its API server does not serve the kind: Liqo's CRDs are missing or have another version; run `liqoctl install`".to_owned()
        }
        code if status.message.is_empty() => {
            format!("it returned HTTP status {code} without a reason; check whether the URL is that of an API server, and not of a proxy")
        }
        _ => status.message.clone(),
    }
}

/// Returns the text of the root cause, which the outer errors repeat.
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

    fn api_error(code: u16, message: &str) -> kube::Error {
        let mut status = Status::failure(message, "");
        status.code = code;
        kube::Error::Api(status.boxed())
    }

    #[test]
    fn the_remedy_for_a_missing_kind_is_an_installation() {
        let error = api_error(404, "the server could not find the requested resource");

        let text = explain("list Networks", "the local cluster", &error).to_string();

        assert!(text.starts_with("failed to list Networks in the local cluster: "));
        assert!(text.contains("liqoctl install"));
        assert!(is_not_found(&error));
    }

    #[test]
    fn a_missing_right_is_named() {
        let error = api_error(403, "nodes is forbidden: User \"x\" cannot list");

        let explained = explain("list nodes", "the remote cluster", &error);

        let text = explained.to_string();
        assert!(text.ends_with("cannot list; request this right from an administrator"));
        assert!(is_forbidden(&error));
        assert_eq!(if_permitted::<()>(Err(explained)).unwrap(), None);
    }

    #[test]
    fn wrong_credentials_are_distinguished_from_missing_rights() {
        let text = explain("read", "it", &api_error(401, "Unauthorized")).to_string();

        assert!(text.contains("refused the credentials"));
    }

    #[test]
    fn a_response_without_a_reason_is_reported_by_its_status_code() {
        let text = explain("read", "it", &api_error(502, "")).to_string();

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
                .contains("is unreachable (connection refused)")
        );
    }
}
