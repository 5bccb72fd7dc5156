//! Ingresses, Services, ConfigMaps, Secrets and Events that one of the virtual kubelets reflects.

use super::controllers::NAMESPACE;
use super::golden::Golden;
use super::kubelet::{Kubelet, MANAGER, version};
use super::scene::{GOLDEN, Scene};
use super::turin;
use super::virtual_node::{is_equal, ours};
use crate::authentication::site::Site;
use crate::upstream::rest::Rest;
use crate::upstream::until_gone;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// Upstream's virtual kubelet applies each object, applies it again, changes and deletes it, and applies another one of the name.
/// The objects are those of the consumer, as at upstream's provider.
pub(super) async fn check(milan: &Site, kubelet: &mut Kubelet) -> Result<()> {
    for (resource, kind, name, path, value) in [
        (
            "ingresses",
            "Ingress",
            "web",
            "/spec/rules/0/host",
            "b.example",
        ),
        (
            "services",
            "Service",
            "local",
            "/spec/sessionAffinity",
            "ClientIP",
        ),
        (
            "configmaps",
            "ConfigMap",
            "web-conf",
            "/metadata/labels/tier",
            "front",
        ),
        (
            "secrets",
            "Secret",
            "web-secret",
            "/metadata/labels/tier",
            "front",
        ),
    ] {
        let object = Golden::TURIN.reflected(resource, name)?;
        let first = kubelet.rest.apply(&object, MANAGER).await?;
        kubelet
            .until(kind, name, |it| it["metadata"]["name"] == name)
            .await?;
        let same = kubelet.rest.apply(&object, MANAGER).await?;
        ensure!(version(&first) == version(&same), "{same}");

        let mut changed = object.clone();
        let (parent, field) = path.rsplit_once('/').context("no field")?;
        changed.pointer_mut(parent).context("no parent")?[field] = json!(value);
        let stored = kubelet.rest.apply(&changed, MANAGER).await?;
        ensure!(stored.pointer(path) == Some(&json!(value)), "{stored}");
        ensure!(uid(&stored) == uid(&first), "{stored}");
        kubelet.rest.delete_object(&stored).await?;
        let left = kubelet.rest.get_opt(kind, turin::NAMESPACE, name).await?;
        ensure!(left.is_none(), "{left:?}");
        let other = kubelet.rest.apply(&object, MANAGER).await?;
        ensure!(uid(&other) != uid(&first), "{other}");
    }
    let rest = Rest::new(milan.client.clone(), "kubelet");
    let pulled = event(&rest, (turin::NAMESPACE, "Pod", "web")).await?;
    let is_it = |it: &Value| uid(it) == uid(&pulled);
    kubelet.until("Event", "that of the pod", is_it).await?;

    Ok(())
}

impl Scene<'_> {
    /// The provider has the Ingress that upstream's virtual kubelet would write, and the consumer Events of upstream's provider.
    pub(super) async fn reflects(&self) -> Result<()> {
        let web = ("Ingress", NAMESPACE, "web");
        let provider = &self.controllers.rest;
        let expected = ours(GOLDEN.reflected("ingresses", "web")?);
        self.rome
            .apply(&GOLDEN.original("ingresses", "web")?)
            .await?;
        let is_reflected = |found: &Value| is_equal(&without_status(found), &expected);
        let mut edited = provider.until_checked(web, is_reflected).await?;
        edited["spec"]["rules"][0]["host"] = json!("other.example");
        provider.update(&edited).await?;
        provider.until_checked(web, is_reflected).await?;
        self.rest.delete("Ingress", "demo", "web").await?;
        let origin = "offloading.liqo.io/origin=rome";
        until_gone(provider, "Ingress", NAMESPACE, origin).await?;

        for kind in ["Pod", "ShadowPod"] {
            let event = event(provider, (NAMESPACE, kind, "web")).await?;
            let name = event["metadata"]["name"].as_str().context("no name")?;
            let reflected = self.rest.until(("Event", "demo", name), |_| true).await?;
            let pod = self.rest.get("Pod", "demo", "web").await?;
            let object = &reflected["involvedObject"];
            ensure!(
                object["kind"] == "Pod" && object["uid"] == *uid(&pod),
                "{reflected}"
            );
            for field in ["reason", "message", "type", "count"] {
                ensure!(reflected[field] == event[field], "{reflected}");
            }
            ensure!(
                reflected["source"]["component"] == "kubelet (remote)",
                "{reflected}"
            );
        }

        Ok(())
    }
}

/// Creates an Event about an object, as the recorders of Go's clients write it.
async fn event(rest: &Rest, (namespace, kind, name): (&str, &str, &str)) -> Result<Value> {
    let object = rest.get(kind, namespace, name).await?;
    let time = "2026-11-21T07:20:00Z";
    rest.create(&json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{name}.{}", kind.to_lowercase()), "namespace": namespace},
        "involvedObject": {
            "apiVersion": object["apiVersion"],
            "kind": kind,
            "name": name,
            "namespace": namespace,
            "resourceVersion": version(&object),
            "uid": uid(&object),
        },
        "type": "Normal",
        "reason": "Pulled",
        "message": "Container image \"web:1\" already present on machine",
        "source": {"component": "kubelet", "host": "milan-cp"},
        "reportingComponent": "kubelet",
        "reportingInstance": "milan-cp",
        "count": 1,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "eventTime": null,
    }))
    .await
}

fn uid(object: &Value) -> &Value {
    &object["metadata"]["uid"]
}

fn without_status(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }

    object
}
