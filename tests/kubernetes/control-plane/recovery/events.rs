//! Events of the provider about reflected objects and remote pods, and those of the consumer.

use super::comparison::REMOTE;
use super::objects::{name, object};
use super::pods;
use crate::fixture::{Deadline, SOON, until};
use crate::refusals::scene::Scene;
use crate::upstream::rest::Rest;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// Kinds whose Events are reflected.
pub(super) const KINDS: [&str; 6] = [
    "ConfigMap",
    "Secret",
    "Ingress",
    "Service",
    "EndpointSlice",
    "Pod",
];

/// Component that reports the Events.
const COMPONENT: &str = "laboratory";

/// A count that no other Event has.
const LAST: u64 = 1_000;

/// Reports an Event about an object of the provider, with its UID if it exists.
pub(super) async fn report(rest: &Rest, (kind, name): (&str, &str), count: u64) -> Result<()> {
    until(Deadline::after(SOON), "an Event", async || {
        let object = rest.get_opt(kind, REMOTE, name).await?;
        let uid = object.map(|it| it["metadata"]["uid"].clone());
        let event = event((kind, name), uid, count);
        rest.apply(&event, COMPONENT).await?;
        Ok(())
    })
    .await
}

/// Returns the name of the Event about an object.
fn event_name((kind, name): (&str, &str)) -> String {
    format!("{}.{name}", kind.to_lowercase())
}

fn event(object: (&str, &str), uid: Option<Value>, count: u64) -> Value {
    let (kind, name) = object;
    let mut involved = json!({"kind": kind, "namespace": REMOTE, "name": name});
    if let Some(uid) = uid {
        involved["uid"] = uid;
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(object), "namespace": REMOTE},
        "involvedObject": involved,
        "type": "Normal",
        "reason": "Synced",
        "message": count.to_string(),
        "source": {"component": COMPONENT},
        "count": count,
    })
}

/// Reports Events about objects that exist, whose number is `number`, and waits until the consumer has the last state of each Event
/// about an object that exists.
pub(super) async fn until_reported(scene: &Scene, number: usize) -> Result<()> {
    let (rome, milan) = (&scene.rome, &scene.milan);
    for kind in KINDS {
        let name = match kind {
            "Pod" => pods::name(pods::PODS),
            _ => name(number),
        };
        report(milan, (kind, &name), LAST).await?;
        let event = event_name((kind, &name));
        let is_last = |it: &Value| it["count"] == LAST;
        rome.until(("Event", "shop", &event), is_last).await?;
    }
    until(Deadline::after(SOON), "the Events", async || {
        let mut events = milan.list("Event", REMOTE, "").await?;
        events.retain(|it| it["source"]["component"] == COMPONENT);
        for event in &events {
            if is_current(milan, event).await? {
                is_reflected(rome, event).await?;
            }
        }
        Ok(())
    })
    .await
}

/// Returns whether the object that an Event is about exists. An EndpointSlice is created again with another UID for the same object of
/// the consumer.
async fn is_current(milan: &Rest, event: &Value) -> Result<bool> {
    let involved = &event["involvedObject"];
    let kind = involved["kind"].as_str().context("no kind")?;
    let name = involved["name"].as_str().context("no name")?;
    let Some(object) = milan.get_opt(kind, REMOTE, name).await? else {
        return Ok(false);
    };
    let uid = &involved["uid"];

    Ok(kind == "EndpointSlice" || uid.is_null() || *uid == object["metadata"]["uid"])
}

async fn is_reflected(rome: &Rest, event: &Value) -> Result<()> {
    let name = event["metadata"]["name"].as_str().context("no name")?;
    let reflected = rome.get("Event", "shop", name).await?;
    for path in [
        "/count",
        "/message",
        "/involvedObject/kind",
        "/involvedObject/name",
    ] {
        let [found, expected] = [&reflected, event].map(|it| it.pointer(path));
        ensure!(found == expected, "{reflected}, not {event}");
    }

    Ok(())
}

/// Checks that an Event about an object that is gone, whose number is `number`, is not reflected.
pub(super) async fn are_of_existing_objects(scene: &Scene, number: usize) -> Result<()> {
    let (rome, milan) = (&scene.rome, &scene.milan);
    let name = name(number);
    let gone = ("Service", name.as_str());
    rome.create(&object("Service", number, 1)).await?;
    let remote = milan.until(("Service", REMOTE, &name), |_| true).await?;
    rome.delete("Service", "shop", &name).await?;
    until(Deadline::after(SOON), "the deletion", async || {
        let left = milan.get_opt("Service", REMOTE, &name).await?;
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
    .await?;

    let uid = remote["metadata"]["uid"].clone();
    let event = event(gone, Some(uid), LAST);
    milan.apply(&event, COMPONENT).await?;
    // The watch reports the Events in their order.
    let pod = pods::name(pods::PODS);
    report(milan, ("Pod", &pod), LAST + 1).await?;
    let next = event_name(("Pod", &pod));
    let is_next = |it: &Value| it["count"] == LAST + 1;
    rome.until(("Event", "shop", &next), is_next).await?;
    let reflected = rome.get_opt("Event", "shop", &event_name(gone)).await?;
    ensure!(reflected.is_none(), "{reflected:?}");

    Ok(())
}
