//! Responses to requests that are refused, in plain text as a kubelet's.

use http::{HeaderValue, StatusCode, header};

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Status of the response.
    pub(crate) status: StatusCode,
    /// Cause and remedy, for users.
    pub(crate) message: String,
}

impl Refusal {
    /// Creates a refusal.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    /// Creates the refusal of a request with invalid content.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Creates the refusal of a request for an object that does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// Creates the refusal of a request that the provider does not answer.
    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, message)
    }

    /// Returns the response.
    pub(crate) fn response(self) -> http::Response<String> {
        let mut response = http::Response::new(self.message + "\n");
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(header::CONTENT_TYPE, text);
        // The text may contain a part of the request.
        let nosniff = HeaderValue::from_static("nosniff");
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, bearer);
            // Clients without credentials do not occupy connections.
            let close = HeaderValue::from_static("close");
            headers.insert(header::CONNECTION, close);
        }

        response
    }
}
