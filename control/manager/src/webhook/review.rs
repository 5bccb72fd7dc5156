//! AdmissionReview of `admission.k8s.io`: the request of the API server, and the response.
//!
//! Versions v1 and v1beta1 have the same fields. The response has the version of the request.

use super::patch::Patch;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

/// Longest message of a refusal or a warning, in bytes. Messages contain names of the object.
const MESSAGE_LEN_MAX: usize = 1024;

/// A review, as the API server posts it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review {
    api_version: String,
    kind: String,
    request: Option<Request>,
}

/// The request to decide about.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    /// Identifies the review. The response repeats it.
    pub(super) uid: String,
    pub(super) operation: Operation,
    /// Namespace of the object; empty for an object without namespace.
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) user_info: UserInfo,
    /// The object after the request; `Null` for a deletion.
    #[serde(default)]
    pub(super) object: Value,
    /// The object before the request; `Null` for a creation.
    #[serde(default)]
    pub(super) old_object: Value,
}

/// The verb of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Operation {
    #[default]
    Create,
    Update,
    Delete,
    Connect,
}

/// The user who sends the request.
#[derive(Debug, Default, Deserialize)]
pub(super) struct UserInfo {
    #[serde(default)]
    pub(super) username: String,
}

/// A body is no review that can be decided.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    #[error("failed to decode the AdmissionReview")]
    Syntax(#[source] serde_json::Error),
    #[error(
        "{kind} of {api_version} is not supported: send an AdmissionReview of admission.k8s.io/v1"
    )]
    Kind { api_version: String, kind: String },
    #[error("request is missing in the AdmissionReview")]
    NoRequest,
}

/// Answer to an AdmissionReview (`response` of `admission.k8s.io/v1`).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Response {
    pub(super) verdict: Verdict,
    /// Messages for the user who sends the request.
    pub(super) warnings: Vec<String>,
}

/// Whether the request is allowed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Allowed with these changes.
    Allow(Patch),
    /// Refused, with a message that names field, cause and remedy.
    Deny(String),
}

impl Review {
    /// Parses the body of a request, which may come from any pod.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the body.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ReviewError> {
        let review: Self = serde_json::from_slice(body).map_err(ReviewError::Syntax)?;
        let is_known = matches!(
            review.api_version.as_str(),
            "admission.k8s.io/v1" | "admission.k8s.io/v1beta1"
        );
        if !is_known || review.kind != "AdmissionReview" {
            let kind = bounded(review.kind);
            let api_version = bounded(review.api_version);
            return Err(ReviewError::Kind { api_version, kind });
        }
        if review.request.is_none() {
            return Err(ReviewError::NoRequest);
        }

        Ok(review)
    }

    /// Decides the request, and returns the body of the response.
    pub(super) fn decide(&self, decide: impl FnOnce(&Request) -> Response) -> (Value, Outcome) {
        let default = Request::default();
        let request = self.request.as_ref().unwrap_or(&default);
        let response = decide(request);
        let outcome = response.outcome();
        let review = json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "response": response.into_json(&request.uid),
        });

        (review, outcome)
    }
}

/// Outcome of a review, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Allowed,
    Patched,
    Denied,
}

impl Outcome {
    /// Returns the value of the label.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Patched => "patched",
            Self::Denied => "denied",
        }
    }
}

impl Response {
    /// Allows the request without changes.
    pub(super) fn allow() -> Self {
        Patch::default().into()
    }

    /// Refuses the request.
    pub(super) fn deny(message: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Deny(message.into()),
            warnings: Vec::new(),
        }
    }

    fn outcome(&self) -> Outcome {
        match &self.verdict {
            Verdict::Allow(patch) if patch.is_empty() => Outcome::Allowed,
            Verdict::Allow(_) => Outcome::Patched,
            Verdict::Deny(_) => Outcome::Denied,
        }
    }

    fn into_json(self, uid: &str) -> Value {
        let mut response = json!({"uid": uid, "allowed": true});
        match self.verdict {
            Verdict::Allow(patch) if patch.is_empty() => {}
            Verdict::Allow(patch) => {
                let operations = patch.into_json().to_string();
                response["patchType"] = "JSONPatch".into();
                response["patch"] = STANDARD.encode(operations).into();
            }
            Verdict::Deny(message) => {
                response["allowed"] = false.into();
                response["status"] = json!({
                    "code": 403,
                    "message": bounded(message),
                    "reason": "Forbidden",
                    "status": "Failure",
                });
            }
        }
        if !self.warnings.is_empty() {
            let warnings = self.warnings.into_iter().map(bounded);
            response["warnings"] = warnings.collect();
        }

        response
    }
}

impl From<Patch> for Response {
    fn from(patch: Patch) -> Self {
        Self {
            verdict: Verdict::Allow(patch),
            warnings: Vec::new(),
        }
    }
}

fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MESSAGE_LEN_MAX));
    text
}
