//! A provider that controls its API server, its custom resource definitions and all statuses there, and uses them against the
//! consumer.

use super::counterparts::peered;
use super::liqoctl;
use super::provider::Provider;
use super::rest::Rest;
use crate::authentication::site::Site;
use crate::fixture::{Deadline, Fixture, SOON, until};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Map, Value, json};

/// Name of the ResourceSlice and of the VirtualNode.
const NAME: &str = "milan";

/// Tenant namespaces of the consumer and of the provider.
const LOCAL: &str = "liqo-tenant-milan";
const REMOTE: &str = "liqo-tenant-rome";

/// Label of the VirtualNode that shows which status the consumer has copied.
const MARK: &str = "mark";

/// Most labels and resources of a VirtualNode.
const ENTRIES_MAX: usize = 64;

pub(super) async fn a_hostile_provider_gains_nothing_by_its_statuses(
    _: &'static Fixture,
) -> Result<()> {
    let (rome, milan) = peered().await?;
    let provider = Provider::new(&milan);
    let upstream = liqoctl(&rome, &milan);
    let consumer = upstream.consumer.rest;
    let slice = consumer.get("ResourceSlice", LOCAL, NAME).await?;
    let mut victim = Victim {
        provider: provider.rest,
        consumer,
        granted: slice["status"].clone(),
        requested: slice["spec"].clone(),
        marks: 0,
    };
    for kind in ["resourceslices", "renews"] {
        accept_everything(&milan, kind).await?;
    }

    for (what, fields) in partly_valid() {
        victim
            .takes_valid_parts(&fields)
            .await
            .with_context(|| what)?;
    }
    for (what, status) in invalid(&victim.granted) {
        victim.survives(&status).await.with_context(|| what)?;
    }
    for (what, certificate) in foreign_certificates()? {
        let mut status = victim.granted.clone();
        status["authParams"]["signedCRT"] = certificate;
        victim.survives(&status).await.with_context(|| what)?;
    }
    victim.restores_the_request().await?;
    liqoctl(&rome, &milan).unpeer().await
}

/// Removes the schema of a kind, so that the API server stores any object.
async fn accept_everything(site: &Site, plural: &str) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(site.client.clone());
    let name = format!("{plural}.authentication.liqo.io");
    let mut versions = json!(api.get(&name).await?.spec.versions);
    for version in versions.as_array_mut().into_iter().flatten() {
        version["schema"]["openAPIV3Schema"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        version
            .as_object_mut()
            .context("no version")?
            .remove("additionalPrinterColumns");
    }
    let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
    api.patch(&name, &PatchParams::default(), &patch).await?;

    Ok(())
}

/// Returns fields of a status of which the consumer takes the valid parts only.
fn partly_valid() -> Vec<(&'static str, Value)> {
    let many = |value: &str| {
        let entries = (0..1000).map(|number| (format!("k{number}"), json!(value)));
        Value::Object(Map::from_iter(entries))
    };
    let labels = |key: &str| json!({"nodeLabels": {key: "x"}});
    vec![
        ("the name of a node", labels("kubernetes.io/hostname")),
        (
            "a control plane",
            labels("node-role.kubernetes.io/control-plane"),
        ),
        ("a zone", labels("topology.kubernetes.io/zone")),
        ("another cluster", labels("liqo.io/remote-cluster-id")),
        ("a virtual node of another type", labels("liqo.io/type")),
        ("a key with a space", labels("a b")),
        ("a long value", json!({"nodeLabels": {"a": "x".repeat(64)}})),
        ("many labels", json!({"nodeLabels": many("x")})),
        (
            "a selector of nodes",
            json!({"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}}),
        ),
        (
            "a negative amount",
            json!({"resources": {"cpu": "-5", "memory": "1Gi"}}),
        ),
        (
            "an absurd amount",
            json!({"resources": {"cpu": "1e300", "memory": "1Gi"}}),
        ),
        ("many resources", json!({"resources": many("1")})),
        (
            "a class with a long name",
            json!({"storageClasses": [{"storageClassName": "x".repeat(300)}]}),
        ),
    ]
}

/// Returns statuses that the consumer does not copy.
fn invalid(granted: &Value) -> Vec<(&'static str, Value)> {
    let with = |field: &str, value: Value| {
        let mut status = granted.clone();
        status[field] = value;
        status
    };
    vec![
        ("a text", json!("accepted")),
        ("a list", json!([1, 2, 3])),
        ("conditions of another type", with("conditions", json!(5))),
        (
            "an unknown condition",
            with("conditions", json!([{"type": "Admin", "status": "Yes"}])),
        ),
        ("labels of another type", with("nodeLabels", json!([["a"]]))),
        (
            "a number as an amount",
            with("resources", json!({"cpu": {"a": {}}})),
        ),
        (
            "credentials of another type",
            with("authParams", json!("secret")),
        ),
        (
            "a status of 300 KiB",
            with("nodeLabels", json!({"a": "x".repeat(300 << 10)})),
        ),
    ]
}

/// Returns certificates that are not of the consumer's key.
fn foreign_certificates() -> Result<Vec<(&'static str, Value)>> {
    let key = KeyPair::generate()?;
    let other = CertificateParams::new(["rome".to_owned()])?.self_signed(&key)?;
    let bytes = |text: String| json!(ByteString(text.into_bytes()));
    Ok(vec![
        ("a certificate of another key", bytes(other.pem())),
        ("a private key", bytes(key.serialize_pem())),
        ("no PEM", bytes("\u{0}\n- exec: sh".to_owned())),
    ])
}

/// The consumer, and the provider that attacks it.
struct Victim {
    provider: Rest,
    consumer: Rest,
    /// The status of the ResourceSlice before the attack.
    granted: Value,
    /// The spec of the ResourceSlice.
    requested: Value,
    /// Number of the last mark.
    marks: usize,
}

impl Victim {
    /// Writes fields of the status, with a mark. Checks the VirtualNode once it has the mark.
    async fn takes_valid_parts(&mut self, fields: &Value) -> Result<()> {
        let mut status = self.marked();
        for (field, value) in fields.as_object().into_iter().flatten() {
            match (field.as_str(), value.as_object()) {
                ("nodeLabels", Some(labels)) => {
                    let mark = status["nodeLabels"][MARK].take();
                    status["nodeLabels"] = json!(labels);
                    // Sorted, it is among the labels that are taken.
                    status["nodeLabels"]["a-mark"] = mark.clone();
                    status["nodeLabels"][MARK] = mark;
                }
                _ => status[field] = value.clone(),
            }
        }
        self.write(&status).await?;
        self.is_unharmed().await
    }

    /// Writes a status that the consumer does not copy, and then a valid one.
    async fn survives(&mut self, status: &Value) -> Result<()> {
        self.write(status).await?;
        let status = self.marked();
        self.write(&status).await?;
        self.is_unharmed().await
    }

    /// The provider changes the request; the consumer restores it.
    async fn restores_the_request(&self) -> Result<()> {
        let mut replica = self.provider.get("ResourceSlice", REMOTE, NAME).await?;
        replica["spec"] = json!({"class": "other", "resources": {"cpu": "1000"}});
        self.provider.update(&replica).await?;
        let is_restored = |it: &Value| it["spec"] == self.requested;
        let replica = ("ResourceSlice", REMOTE, NAME);
        self.provider.until(replica, is_restored).await?;

        Ok(())
    }

    /// Returns the status before the attack, with another mark.
    fn marked(&mut self) -> Value {
        self.marks += 1;
        let mut status = self.granted.clone();
        status["nodeLabels"] = json!({MARK: self.marks.to_string()});
        status
    }

    async fn write(&self, status: &Value) -> Result<()> {
        until(Deadline::after(SOON), "the status", async || {
            let mut replica = self.provider.get("ResourceSlice", REMOTE, NAME).await?;
            replica["status"] = status.clone();
            self.provider.update_part("status", &replica).await
        })
        .await
        .map(drop)
    }

    /// Waits for the last mark. Checks what the provider may not determine.
    async fn is_unharmed(&self) -> Result<()> {
        let mark = json!(self.marks.to_string());
        let node = ("VirtualNode", LOCAL, NAME);
        let is_marked = |it: &Value| {
            let labels = &it["spec"]["labels"];
            labels[MARK] == mark || labels["a-mark"] == mark
        };
        let node = self.consumer.until(node, is_marked).await?;
        let labels = node["spec"]["labels"].as_object().context("no labels")?;
        ensure!(labels.len() <= ENTRIES_MAX + 1, "{} labels", labels.len());
        ensure!(labels["liqo.io/remote-cluster-id"] == "milan", "{labels:?}");
        let reserved = ["kubernetes.io", "k8s.io", "liqo.io"];
        let foreign = labels.keys().find(|key| {
            let is_reserved = reserved.iter().any(|it| key.contains(it));
            is_reserved && *key != "liqo.io/remote-cluster-id" || key.contains(' ')
        });
        ensure!(foreign.is_none(), "{foreign:?}");
        let hard = node["spec"]["resourceQuota"]["hard"].as_object();
        for (name, amount) in hard.into_iter().flatten() {
            let text = amount.as_str().context("no amount")?;
            ensure!(!text.starts_with('-'), "{name}: {text}");
        }
        ensure!(hard.is_none_or(|it| it.len() <= ENTRIES_MAX));

        let identity = ("Identity", LOCAL, "resourceslice-milan");
        let is_kept = |it: &Value| {
            it["spec"]["authParams"]["signedCRT"] == self.granted["authParams"]["signedCRT"]
        };
        self.consumer.until(identity, is_kept).await?;
        let slice = self.consumer.get("ResourceSlice", LOCAL, NAME).await?;
        ensure!(slice["spec"] == self.requested, "{}", slice["spec"]);

        Ok(())
    }
}
