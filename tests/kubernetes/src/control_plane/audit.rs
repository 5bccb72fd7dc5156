//! The audit log of the API server: one event at the receipt of a request, and one at its end.

use anyhow::{Context as _, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// An audit policy that logs the metadata of all requests. The bodies of requests are not logged.
pub(super) const POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["ResponseStarted"],
  "rules": [{"level": "Metadata"}]
}"#;

/// The audit log of a control plane.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
}

/// An event of the audit log. See `Event` of `audit.k8s.io/v1`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// Identifies the request. All events of a request have the same id.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// `RequestReceived`, `ResponseComplete` or `Panic`.
    pub stage: String,
    /// When the request reached this stage, by the clock of the API server.
    pub stage_timestamp: MicroTime,
    /// The verb, such as `get`, `watch` or `patch`.
    pub verb: String,
    /// The path and the query of the request.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// The user that the API server has authenticated.
    pub user: AuditUser,
    /// The header `User-Agent`. Empty if the request has none.
    #[serde(default)]
    pub user_agent: String,
    /// The object or the list that the request refers to. `None` for other paths such as `/readyz`.
    pub object_ref: Option<ObjectRef>,
    /// The response. `None` at the stage `RequestReceived`.
    pub response_status: Option<ResponseStatus>,
}

/// A user in an audit event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AuditUser {
    /// The user's name.
    pub username: String,
}

/// The object in an audit event. Fields that the request does not have are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectRef {
    /// The API group. Empty for the core group.
    pub api_group: String,
    /// The plural of the kind, such as `configmaps`.
    pub resource: String,
    /// The subresource, such as `status`.
    pub subresource: String,
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object. Empty for lists.
    pub name: String,
}

/// The response in an audit event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ResponseStatus {
    /// The HTTP status code.
    pub code: u16,
}

impl AuditLog {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the log's file, which has one JSON document per line.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the current end of the log in bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, for example because auditing is off.
    pub fn end(&self) -> Result<u64> {
        let file = fs::metadata(&self.path)
            .with_context(|| format!("failed to read {}", self.path.display()))?;

        Ok(file.len())
    }

    /// Returns the events after `position`, which [`AuditLog::end`] has returned.
    ///
    /// The API server writes the event `ResponseComplete` after it has sent the response. A test
    /// therefore waits for this event.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if an event is malformed.
    pub fn since(&self, position: u64) -> Result<Vec<AuditEvent>> {
        let mut text = String::new();
        File::open(&self.path)
            .and_then(|mut file| {
                file.seek(SeekFrom::Start(position))?;
                file.read_to_string(&mut text)
            })
            .with_context(|| format!("failed to read {}", self.path.display()))?;

        parse(&text)
    }
}

/// Parses the complete lines of a log.
fn parse(text: &str) -> Result<Vec<AuditEvent>> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete
        .lines()
        .map(|line| {
            serde_json::from_str(line)
                .with_context(|| format!("an audit event is malformed: {line}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_yet_complete_is_left_out() {
        let line = r#"{"auditID":"1","stage":"RequestReceived","stageTimestamp":"2026-01-02T03:04:05.678901Z","verb":"get","requestURI":"/readyz","user":{"username":"admin"}}"#;

        let events = parse(&format!("{line}\n{{\"auditID\":")).unwrap();

        let verbs: Vec<_> = events.iter().map(|it| it.verb.as_str()).collect();
        assert_eq!(verbs, ["get"]);
        assert_eq!(parse("").unwrap(), []);
        assert!(parse("{}\n").is_err());
    }
}
