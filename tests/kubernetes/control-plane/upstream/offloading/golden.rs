//! Objects of upstream's clusters (v1.2.0) without networking: `rome` is the consumer, `milan` the provider.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Pods, their ShadowPods, and the statuses of the remote pods.
const PODS: &str = include_str!("../../../../../control/virtual-kubelet/src/pod/tests/golden.json");

/// Objects that are reflected.
const REFLECTED: &str =
    include_str!("../../../../../control/virtual-kubelet/src/reflection/tests/golden.json");

/// The names of `rome` in the objects: its cluster ID, and the digest of this in the user of its ResourceSlice.
const ROME: (&str, &str) = ("rome", "a8a4c692b93b");

/// Fields that the API server sets.
const SERVER_FIELDS: [&str; 5] = [
    "creationTimestamp",
    "generation",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

/// The golden objects of the pod `web` with a consumer of any name.
#[derive(Clone, Copy)]
pub(super) struct Golden {
    /// Cluster ID.
    consumer: &'static str,
    /// The first 6 bytes of its SHA-256.
    digest: &'static str,
}

impl Golden {
    pub(super) const ROME: Self = Self {
        consumer: ROME.0,
        digest: ROME.1,
    };
    pub(super) const TURIN: Self = Self {
        consumer: "turin",
        digest: "5cd5d53aaf09",
    };

    /// Returns the user of the ResourceSlice `milan`.
    pub(super) fn user(self) -> String {
        format!("milan-{}", self.digest)
    }

    /// Returns the name at the provider of the ConfigMap with the root CA.
    pub(super) fn root_ca(self) -> String {
        format!("kube-root-ca.crt.{}", self.consumer)
    }

    /// Returns the pod of the consumer, as the scheduler has bound it.
    pub(super) fn pod(self) -> Result<Value> {
        let mut pod = written(&self.read(PODS)?["web"]["local"])?;
        let labels = pod["metadata"]["labels"].as_object_mut();
        labels.context("no labels")?.remove("liqo.io/shadowPod");

        Ok(pod)
    }

    /// Returns the ShadowPod. It has the label that the provider's webhook adds.
    pub(super) fn shadow(self) -> Result<Value> {
        written(&self.read(PODS)?["web"]["shadow"])
    }

    /// Returns the status of the pod at the consumer.
    pub(super) fn local_status(self) -> Result<Value> {
        Ok(self.read(PODS)?["web"]["local"]["status"].clone())
    }

    /// Returns the statuses of the pod at the provider, as a kubelet writes them while the pod starts. The last one is the golden
    /// one.
    pub(super) fn remote_statuses(self) -> Result<[Value; 4]> {
        let ready = self.read(PODS)?["web"]["remote"]["status"].clone();
        let mut started = ready.clone();
        started["containerStatuses"][0]["ready"] = json!(false);
        started["containerStatuses"][0]["started"] = json!(false);
        for index in [2, 3] {
            started["conditions"][index]["status"] = json!("False");
        }
        let mut creating = started.clone();
        creating["phase"] = json!("Pending");
        let container = creating["containerStatuses"][0].as_object_mut();
        let container = container.context("no container")?;
        container
            .retain(|field, _| ["name", "image", "lastState", "restartCount"].contains(&&**field));
        container.insert("ready".to_owned(), json!(false));
        container.insert("imageID".to_owned(), json!(""));
        let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
        container.insert("state".to_owned(), waiting);
        let scheduled = json!({
            "phase": "Pending",
            "qosClass": ready["qosClass"],
            "conditions": [ready["conditions"][4]],
        });

        Ok([scheduled, creating, started, ready])
    }

    /// Returns the object that upstream's virtual kubelet reflects to the provider.
    pub(super) fn reflected(self, kind: &str, name: &str) -> Result<Value> {
        self.reflection("remote", kind, name)
    }

    /// Returns the object of the consumer that is reflected.
    pub(super) fn original(self, kind: &str, name: &str) -> Result<Value> {
        self.reflection("local", kind, name)
    }

    fn reflection(self, side: &str, kind: &str, name: &str) -> Result<Value> {
        let all = self.read(REFLECTED)?;
        let objects = all["2-offloaded"][kind][side].as_array();
        let namespaces = [json!("demo"), json!(format!("demo-{}", self.consumer))];
        let mut objects = objects.with_context(|| format!("no {kind}"))?.iter();
        let object = objects.find(|it| {
            it["metadata"]["name"] == name && namespaces.contains(&it["metadata"]["namespace"])
        });
        let mut object = written(object.with_context(|| format!("no {name}"))?)?;
        // The API server allocates them.
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.retain(|field, _| !["clusterIP", "clusterIPs", "ipFamilies"].contains(&&**field));
        }

        Ok(object)
    }

    fn read(self, text: &str) -> Result<Value> {
        let text = text.replace(ROME.0, self.consumer);
        let text = text.replace(ROME.1, self.digest);

        Ok(serde_json::from_str(&text)?)
    }
}

/// Returns what a client writes of an object.
fn written(object: &Value) -> Result<Value> {
    let mut object = object.clone();
    let fields = object.as_object_mut().context("no object")?;
    fields.remove("status");
    let metadata = object["metadata"].as_object_mut().context("no metadata")?;
    metadata.retain(|field, _| !SERVER_FIELDS.contains(&&**field));

    Ok(object)
}
