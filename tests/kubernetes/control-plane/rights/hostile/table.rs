//! Hostile requests as data: one YAML file for each attacker, which the page about security lists.

use super::super::attack::{Refusal, check_refusal};
use crate::fixture::{Deadline, until};
use anyhow::{Context as _, Result, ensure};
use http::Method;
use http::header::CONTENT_TYPE;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The limit for retries: the controllers of the provider may change an object at the same time.
const LIMIT: Duration = Duration::from_secs(10);

/// A request that must be refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hostile {
    /// Verb of Kubernetes' RBAC, or `apply` for a server-side apply, whose verb is `patch`.
    verb: String,
    /// Path of the API, with the query.
    pub(super) path: String,
    /// The object to create or apply, a merge patch, or options of a deletion. An update merges it into the present
    /// object.
    #[serde(default)]
    body: Value,
    /// The user who is impersonated.
    #[serde(rename = "as")]
    impersonated: Option<Impersonated>,
    /// An object that exists. For requests without dry run, it shows that the path is right.
    existing: Option<String>,
    /// The admission policy or webhook that refuses the request; none for RBAC.
    by: Option<String>,
    /// Purpose of the attacker, for the documentation.
    #[serde(rename = "why")]
    _why: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Impersonated {
    user: String,
    group: Option<String>,
}

/// Parses the requests of an attacker. Replaces the texts `{request}`, `{long}` and `{large}`.
pub(super) fn parse(yaml: &str, request: &str) -> Result<Vec<Hostile>> {
    let mut requests: Vec<Hostile> =
        serde_saphyr::from_str(yaml).context("a table of hostile requests is invalid")?;
    let (long, large) = ("A".repeat(200_000), "A".repeat(1_000_000));
    for hostile in &mut requests {
        for (text, value) in [
            ("{request}", request),
            ("{long}", &long),
            ("{large}", &large),
        ] {
            replace(&mut hostile.body, text, value);
        }
    }

    Ok(requests)
}

/// Replaces a text in all fields.
pub(super) fn replace(body: &mut Value, text: &str, value: &str) {
    match body {
        Value::String(found) if found == text => value.clone_into(found),
        Value::Array(list) => list.iter_mut().for_each(|it| replace(it, text, value)),
        Value::Object(map) => map.values_mut().for_each(|it| replace(it, text, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

impl Hostile {
    /// Returns verb and path, for messages.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.verb, self.path)
    }

    /// Sends the request as the administrator, who may do everything, and then as the attacker, who must be refused.
    pub(super) async fn check(&self, administrator: &Client, attacker: &Client) -> Result<()> {
        let title = self.title();
        until(Deadline::after(LIMIT), &title, async || {
            let body = self.body_of(administrator).await?;
            let proof = match &self.existing {
                Some(path) => text(administrator, &Method::GET, path, None, None).await,
                None => self.send(administrator, &body).await,
            };
            proof.context("the request is refused for the administrator, too")?;

            let Err(error) = self.send(attacker, &body).await else {
                anyhow::bail!("it was allowed");
            };
            let kube::Error::Api(status) = error else {
                return Err(error).context("no response");
            };
            let refusal = self.by.as_deref().map_or(Refusal::Rbac, Refusal::of);
            check_refusal(&status, refusal)
        })
        .await
    }

    /// Returns the body to send. An update needs the present object.
    async fn body_of(&self, administrator: &Client) -> Result<Value> {
        if self.verb != "update" {
            return Ok(self.body.clone());
        }
        let present = text(administrator, &Method::GET, &self.path, None, None).await?;
        let mut present = serde_json::from_str(&present)?;
        merge(&mut present, &self.body);

        Ok(present)
    }

    /// Sends the request as a dry run.
    async fn send(&self, client: &Client, body: &Value) -> Result<String, kube::Error> {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        let with = |query: &str| format!("{}{separator}{query}", self.path);
        let as_user = self.impersonated.as_ref();
        let (method, path, body, type_) = match self.verb.as_str() {
            "watch" => (Method::GET, with("watch=true&timeoutSeconds=1"), None, ""),
            "create" => (Method::POST, with("dryRun=All"), Some(body.clone()), "json"),
            "update" => (Method::PUT, with("dryRun=All"), Some(body.clone()), "json"),
            "patch" => {
                let path = with("dryRun=All");
                (Method::PATCH, path, Some(body.clone()), "merge-patch+json")
            }
            "apply" => {
                let path = with("dryRun=All&fieldManager=hostile&force=true");
                (Method::PATCH, path, Some(body.clone()), "apply-patch+yaml")
            }
            "delete" | "deletecollection" => {
                let mut options =
                    json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
                merge(&mut options, body);
                (Method::DELETE, self.path.clone(), Some(options), "json")
            }
            _ => (Method::GET, self.path.clone(), None, ""),
        };
        let body = body.map(|body| (format!("application/{type_}"), body));

        text(client, &method, &path, body, as_user).await
    }
}

/// Sends a request, and returns the text of the response.
async fn text(
    client: &Client,
    method: &Method,
    path: &str,
    body: Option<(String, Value)>,
    impersonated: Option<&Impersonated>,
) -> Result<String, kube::Error> {
    let mut request = http::Request::builder().method(method).uri(path);
    if let Some((type_, _)) = &body {
        request = request.header(CONTENT_TYPE, type_);
    }
    if let Some(impersonated) = impersonated {
        request = request.header("Impersonate-User", &impersonated.user);
        if let Some(group) = &impersonated.group {
            request = request.header("Impersonate-Group", group);
        }
    }
    let body = body.map(|(_, body)| body.to_string()).unwrap_or_default();
    let request = request
        .body(body.into_bytes())
        .map_err(kube::Error::HttpError)?;

    client.request_text(request).await
}

/// Applies a JSON merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        if !patch.is_null() {
            target.clone_from(patch);
        }
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().map(|target| target.remove(key));
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// Checks that the requests are distinct.
pub(super) fn check_distinct(requests: &[Hostile]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for hostile in requests {
        let key = format!("{hostile:?}");
        ensure!(seen.insert(key), "{} occurs twice", hostile.title());
    }

    Ok(())
}
