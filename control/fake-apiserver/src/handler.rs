//! Handles requests.

use crate::Shared;
use crate::objects::{Change, Objects, merged};
use crate::request::{Target, is_selected, parameter};
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use std::convert::Infallible;

/// Maximum size of an object, in bytes.
const BODY_MAX: usize = 4 << 20;

/// Reason of a refused request.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    NotFound,
    AlreadyExists,
    Conflict,
    Invalid,
}

pub(crate) async fn handle(objects: Shared, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let query = head.uri.query().unwrap_or_default().to_owned();
    if objects.is_unknown(head.uri.path()) {
        // A real API server also responds with this text instead of a Status object.
        return (StatusCode::NOT_FOUND, "404 page not found\n").into_response();
    }
    if head.method != Method::GET
        && let Some(delay) = objects.delay(head.uri.path())
    {
        tokio::time::sleep(delay).await;
    }
    if head.uri.path() == "/version" {
        return (
            [("content-type", "application/json")],
            version().to_string(),
        )
            .into_response();
    }
    let Some(target) = Target::parse(head.uri.path()) else {
        return refuse(Refusal::NotFound);
    };
    let Ok(body) = to_bytes(body, BODY_MAX).await else {
        return refuse(Refusal::Invalid);
    };
    let body = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let is_apply = head
        .headers
        .get("content-type")
        .is_some_and(|it| it.to_str().is_ok_and(|text| text.contains("apply-patch")));
    let result = match head.method {
        Method::GET if target.is_object() => get(&objects.lock(), &target),
        Method::GET if parameter(&query, "watch").is_some_and(|it| it != "false") => {
            return watch(objects, target, query);
        }
        Method::GET => Ok(list(&objects.lock(), &target, &query)),
        Method::POST => objects.change(|objects| create(objects, &target, body)),
        Method::PUT => objects.change(|objects| replace(objects, &target, body)),
        Method::PATCH => objects.change(|objects| patch(objects, &target, body, is_apply)),
        Method::DELETE => objects.change(|objects| delete(objects, &target, &body)),
        _ => Err(Refusal::Invalid),
    };

    result.map_or_else(refuse, |object| {
        ([("content-type", "application/json")], object.to_string()).into_response()
    })
}

/// Returns the version that the server reports.
fn version() -> Value {
    json!({
        "major": "1", "minor": "35", "gitVersion": "v1.35.0", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.25", "compiler": "gc", "platform": "linux/amd64",
    })
}

fn get(objects: &Objects, target: &Target) -> Result<Value, Refusal> {
    let object = objects.get(&target.path(None));
    object.cloned().ok_or(Refusal::NotFound)
}

fn list(objects: &Objects, target: &Target, query: &str) -> Value {
    let items: Vec<_> = selected(objects, target, query).collect();

    json!({
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": objects.version().to_string()},
        "items": items,
    })
}

/// Returns the objects of a list.
fn selected<'a>(
    objects: &'a Objects,
    target: &'a Target,
    query: &'a str,
) -> impl Iterator<Item = &'a Value> {
    let objects = objects.iter();
    let selected =
        objects.filter(|(path, object)| target.holds(path) && is_selected(query, object));
    selected.map(|(_, object)| object)
}

fn create(objects: &mut Objects, target: &Target, object: Value) -> Result<Value, Refusal> {
    let name = object["metadata"]["name"]
        .as_str()
        .ok_or(Refusal::Invalid)?;
    let path = target.path(Some(name));
    if objects.get(&path).is_some() {
        return Err(Refusal::AlreadyExists);
    }

    Ok(objects.put(&path, object))
}

fn replace(objects: &mut Objects, target: &Target, object: Value) -> Result<Value, Refusal> {
    let path = target.path(None);
    let old = objects.get(&path).ok_or(Refusal::NotFound)?;
    let version = &object["metadata"]["resourceVersion"];
    if !version.is_null() && *version != old["metadata"]["resourceVersion"] {
        return Err(Refusal::Conflict);
    }

    Ok(objects.put(&path, object))
}

fn patch(
    objects: &mut Objects,
    target: &Target,
    patch: Value,
    is_apply: bool,
) -> Result<Value, Refusal> {
    let path = target.path(None);
    let old = match objects.get(&path) {
        Some(old) => old.clone(),
        None if is_apply => json!({}),
        None => return Err(Refusal::NotFound),
    };
    let version = &patch["metadata"]["resourceVersion"];
    if !version.is_null() && *version != old["metadata"]["resourceVersion"] {
        return Err(Refusal::Conflict);
    }

    Ok(objects.put(&path, merged(old, patch)))
}

fn delete(objects: &mut Objects, target: &Target, options: &Value) -> Result<Value, Refusal> {
    let path = target.path(None);
    let old = objects.get(&path).ok_or(Refusal::NotFound)?;
    let uid = &options["preconditions"]["uid"];
    if !uid.is_null() && *uid != old["metadata"]["uid"] {
        return Err(Refusal::Conflict);
    }

    objects.remove(&path).ok_or(Refusal::NotFound)
}

/// Sends every change after the resource version of the query, until the client disconnects. A streaming list begins
/// with all objects, and a bookmark.
fn watch(objects: Shared, target: Target, query: String) -> Response {
    let is_set = |name: &str, value: &str| parameter(&query, name).as_deref() == Some(value);
    let is_streaming_list = is_set("sendInitialEvents", "true");
    if is_streaming_list && !is_set("resourceVersionMatch", "NotOlderThan") {
        return refuse(Refusal::Invalid);
    }
    let (sent, initial) = if is_streaming_list {
        let objects = objects.lock();
        let initial = initial_events(&objects, &target, &query);
        (objects.version(), Some(initial))
    } else {
        let since = parameter(&query, "resourceVersion").and_then(|it| it.parse().ok());
        (since.unwrap_or_default(), None)
    };
    let changed = objects.subscribe();
    let events = stream::unfold((sent, changed), move |(sent, mut changed)| {
        let (objects, target, query) = (objects.clone(), target.clone(), query.clone());
        async move {
            loop {
                changed.borrow_and_update();
                let (version, text) = {
                    let objects = objects.lock();
                    let changes = objects.since(sent).filter(|change| {
                        target.holds(&change.path) && is_selected(&query, &change.object)
                    });
                    (
                        objects.version(),
                        changes.map(of_change).collect::<String>(),
                    )
                };
                if !text.is_empty() {
                    return Some((Ok::<_, Infallible>(text), (version, changed)));
                }
                changed.changed().await.ok()?;
            }
        }
    });
    let events = stream::iter(initial.map(Ok)).chain(events);

    let content_type = [("content-type", "application/json")];
    (content_type, Body::from_stream(events)).into_response()
}

/// Returns the events of a streaming list.
fn initial_events(objects: &Objects, target: &Target, query: &str) -> String {
    let added = selected(objects, target, query).map(|object| line("ADDED", object));
    let bookmark = json!({
        "apiVersion": "v1",
        "kind": "Bookmark",
        "metadata": {
            "resourceVersion": objects.version().to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
    });

    added.collect::<String>() + &line("BOOKMARK", &bookmark)
}

fn of_change(change: &Change) -> String {
    line(change.event, &change.object)
}

fn line(event: &str, object: &Value) -> String {
    // kube-apiserver also writes the type first.
    format!("{{\"type\":{},\"object\":{object}}}\n", json!(event))
}

fn refuse(refusal: Refusal) -> Response {
    let code = match refusal {
        Refusal::NotFound => StatusCode::NOT_FOUND,
        Refusal::AlreadyExists | Refusal::Conflict => StatusCode::CONFLICT,
        Refusal::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let status = json!({
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "message": format!("{refusal:?}"),
        "reason": format!("{refusal:?}"),
        "code": code.as_u16(),
    });

    (
        code,
        [("content-type", "application/json")],
        status.to_string(),
    )
        .into_response()
}
