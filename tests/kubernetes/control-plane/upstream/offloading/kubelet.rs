//! The requests of upstream's virtual kubelet at a provider, with the credentials of its ResourceSlice.

use super::golden::Golden;
use crate::fixture::{Deadline, SOON, until};
use crate::upstream::informer::Informer;
use crate::upstream::rest::{Rest, refusal};
use anyhow::{Context as _, Result, ensure};
use kube::api::PostParams;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The kinds of a mapped namespace that it lists and watches before it reflects anything.
const FOLLOWED: [&str; 9] = [
    "Pod",
    "ConfigMap",
    "Secret",
    "Service",
    "Ingress",
    "PersistentVolumeClaim",
    "Event",
    "ShadowPod",
    "ShadowEndpointSlice",
];

/// The field manager of objects that it applies.
pub(super) const MANAGER: &str = "reflection.liqo.io";

/// The label that the provider's webhook adds to ShadowPods.
const CREATOR: &str = "liqo.io/creator-user";

/// Upstream's virtual kubelet, without a cluster: its objects are the golden ones.
pub(crate) struct Kubelet {
    pub(crate) rest: Rest,
    golden: Golden,
    informers: BTreeMap<&'static str, Informer>,
}

impl Kubelet {
    /// Follows all kinds of a mapped namespace.
    pub(super) async fn start(rest: Rest, golden: Golden, namespace: &str) -> Result<Self> {
        let mut informers = BTreeMap::new();
        for kind in FOLLOWED {
            informers.insert(kind, rest.follow(kind, namespace).await?);
        }

        Ok(Self {
            rest,
            golden,
            informers,
        })
    }

    /// Waits for a state of an object that `check` accepts.
    pub(super) async fn until(
        &mut self,
        kind: &str,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let informer = self.informers.get_mut(kind).context("it is not followed")?;
        informer.until(what, check).await
    }

    /// Reflects the objects that the pod `web` needs, twice as after a restart.
    pub(super) async fn reflect(&self) -> Result<()> {
        for (kind, name) in [
            ("configmaps", self.golden.root_ca()),
            ("configmaps", "web-conf".to_owned()),
            ("secrets", "web-secret".to_owned()),
            ("secrets", "web-token".to_owned()),
            ("services", "web".to_owned()),
            ("services", "local".to_owned()),
        ] {
            let object = self.golden.reflected(kind, &name)?;
            let first = self.rest.apply(&object, MANAGER).await?;
            let second = self.rest.apply(&object, MANAGER).await?;
            ensure!(version(&first) == version(&second), "{second}");
        }

        Ok(())
    }

    /// Creates a ShadowPod. Waits until the API server calls the webhooks.
    pub(super) async fn create(&self, shadow: &Value) -> Result<Value> {
        let mut shadow = shadow.clone();
        without_creator(&mut shadow);
        let tried = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        until(Deadline::after(SOON), "the webhook", async || {
            let stored = self.rest.create_with(&shadow, &tried).await?;
            ensure!(stored["metadata"]["labels"][CREATOR].is_string());
            Ok(())
        })
        .await?;

        self.rest.create(&shadow).await
    }

    /// Writes labels and annotations of a ShadowPod, and the spec as it is, after a conflict again. Returns whether it has a new
    /// version.
    pub(super) async fn update(&self, shadow: &Value) -> Result<bool> {
        let (namespace, name) = key(shadow)?;
        loop {
            let present = self.rest.get("ShadowPod", namespace, name).await?;
            let mut desired = present.clone();
            for field in ["labels", "annotations"] {
                desired["metadata"][field] = shadow["metadata"][field].clone();
            }
            without_creator(&mut desired);
            match self.rest.update(&desired).await {
                Ok(stored) => return Ok(version(&stored) != version(&present)),
                Err(error) if refusal(&error) == Some(409) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the namespace and the name of an object.
pub(super) fn key(object: &Value) -> Result<(&str, &str)> {
    let text = |field: &str| object["metadata"][field].as_str();
    let key = text("namespace").zip(text("name"));

    key.with_context(|| format!("no namespace or no name: {object}"))
}

pub(super) fn version(object: &Value) -> &Value {
    &object["metadata"]["resourceVersion"]
}

/// Removes the label of the provider's webhook, which upstream's virtual kubelet does not write.
fn without_creator(shadow: &mut Value) {
    if let Some(labels) = shadow["metadata"]["labels"].as_object_mut() {
        labels.remove(CREATOR);
    }
}

/// Returns a ShadowPod or a pod with another name and this number of processors.
pub(super) fn with_processors(object: &Value, name: &str, count: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["name"] = json!(name);
    for field in ["requests", "limits"] {
        object["spec"]["pod"]["containers"][0]["resources"][field]["cpu"] = json!(count);
    }

    object
}
