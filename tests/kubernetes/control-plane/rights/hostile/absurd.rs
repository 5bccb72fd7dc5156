//! Objects that the rights of an attacker permit, and that are refused for their contents.

use super::scene::Scene;
use crate::fixture::{Deadline, SOON, until};
use anyhow::{Context as _, Result, bail, ensure};
use http::header::CONTENT_TYPE;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;

/// An object that must be refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Absurd {
    by: String,
    /// Path of the collection in which the object is created.
    path: String,
    body: Value,
    /// The status code if the API server refuses the object.
    code: Option<u16>,
    /// The conditions whose status must be `Denied`.
    #[serde(default)]
    denied: Vec<String>,
    /// The reason of the Event about the object.
    event: Option<String>,
    /// A part of the refusal's text, in the response or in the Event.
    #[serde(default)]
    message: String,
    /// Path of an object that must not exist afterwards.
    absent: Option<String>,
    /// Purpose of the attacker, for the documentation.
    #[serde(rename = "why")]
    why: String,
}

/// Parses the objects. Replaces the texts `{request}`, `{name}` and `{huge}`.
pub(super) fn parse(yaml: &str, request: &str) -> Result<Vec<Absurd>> {
    let mut objects: Vec<Absurd> =
        serde_saphyr::from_str(yaml).context("the table of absurd objects is invalid")?;
    let (name, huge) = ("a".repeat(250), "a".repeat(4_000_000));
    for absurd in &mut objects {
        for (text, value) in [("{request}", request), ("{name}", &name), ("{huge}", &huge)] {
            super::table::replace(&mut absurd.body, text, value);
        }
    }

    Ok(objects)
}

impl Absurd {
    /// Creates the object, and waits for its refusal.
    pub(super) async fn check(&self, scene: &Scene) -> Result<()> {
        let attacker = match self.by.as_str() {
            "consumer" => &scene.consumer,
            "slice" => &scene.slice,
            "peering-user" => &scene.peering_user,
            "peering-user-of-legion" => &scene.peering_user_of_legion,
            other => bail!("attacker {other} does not exist"),
        };
        let request = http::Request::post(&self.path).header(CONTENT_TYPE, "application/json");
        let request = request.body(self.body.to_string().into_bytes())?;
        let outcome = attacker.request::<Value>(request).await;
        if let Some(code) = self.code {
            let Err(kube::Error::Api(status)) = outcome else {
                bail!("{}: no error: {outcome:?}", self.why);
            };
            let is_expected = status.code == code && status.message.contains(&self.message);
            ensure!(is_expected, "{}: {status:?}", self.why);
            return Ok(());
        }
        let created = outcome.with_context(|| format!("{}: not created", self.why))?;
        let administrator = &scene.milan.client;
        until(Deadline::after(SOON), &self.why, async || {
            self.is_denied(administrator, &created).await?;
            self.is_reported(administrator, &created).await
        })
        .await?;
        let Some(path) = &self.absent else {
            return Ok(());
        };
        let request = http::Request::get(path).body(Vec::new())?;
        match administrator.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => bail!("{}: {path} exists: {other:?}", self.why),
        }
    }

    async fn is_denied(&self, administrator: &Client, created: &Value) -> Result<()> {
        let name = created["metadata"]["name"].as_str().context("no name")?;
        let request = http::Request::get(format!("{}/{name}", self.path)).body(Vec::new())?;
        let object: Value = administrator.request(request).await?;
        let conditions = object["status"]["conditions"].as_array();
        let is_denied = |type_: &String| {
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it["type"] == **type_ && it["status"] == "Denied")
        };
        ensure!(self.denied.iter().all(is_denied), "{conditions:?}");
        let credentials = &object["status"]["authParams"];
        ensure!(credentials.is_null(), "it has credentials: {credentials}");

        Ok(())
    }

    async fn is_reported(&self, administrator: &Client, created: &Value) -> Result<()> {
        let reason = self.event.as_deref().context("no event is expected")?;
        let namespace = created["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default();
        let events: Api<Event> = Api::namespaced(administrator.clone(), namespace);
        let events = events.list(&ListParams::default()).await?.items;
        let about = events.iter().filter(|event| {
            let regarding = event.regarding.as_ref().and_then(|it| it.uid.as_deref());
            regarding == created["metadata"]["uid"].as_str()
        });
        let notes: Vec<_> = about
            .map(|it| (it.reason.as_deref(), it.note.as_deref().unwrap_or_default()))
            .collect();
        let is_expected = |(found, note): &(Option<&str>, &str)| {
            *found == Some(reason) && note.contains(&self.message)
        };
        ensure!(
            notes.iter().any(is_expected),
            "no Event {reason}: {notes:?}"
        );

        Ok(())
    }
}
