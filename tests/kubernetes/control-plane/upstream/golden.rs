//! Objects of a running deployment of upstream v1.2: `rome` is the consumer, and `milan` the provider.
//!
//! `golden.json` has these objects with the keys, certificates and addresses of that deployment replaced by names that
//! begin with `@`, and without times, UIDs, versions and generations. [`compare`] puts in fresh values, and compares field by
//! field.

use super::liqoctl::decoded;
use super::rest::Rest;
use crate::authentication::site::Site;
use crate::fixture::{Deadline, SOON, until};
use anyhow::{Context as _, Result, ensure};
use control_credentials::{ClusterKey, Subject, request};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const GOLDEN: &str = include_str!("golden.json");

/// Fields that no two deployments share.
const VOLATILE: [&str; 6] = [
    "creationTimestamp",
    "generation",
    "lastTransitionTime",
    "managedFields",
    "resourceVersion",
    "uid",
];

/// A field that differs from upstream's, in all objects of a kind.
pub(super) struct Exception {
    cluster: &'static str,
    kind: &'static str,
    /// Beginning of the path.
    path: &'static str,
    /// The reason of the difference.
    pub(super) reason: &'static str,
}

/// All differences from upstream's objects. A listed difference that does not occur fails the test too.
const EXCEPTIONS: &[Exception] = &[Exception {
    cluster: "milan",
    kind: "Secret",
    path: "metadata.annotations.",
    reason: "the nonce is bound to the first key, and a certificate to the Tenant or ResourceSlice of its request",
}];

/// The side of a peering whose objects are compared.
pub(super) struct Compared<'a> {
    pub(super) consumer: &'a Site,
    pub(super) provider: &'a Site,
    /// The clusters whose objects are compared.
    pub(super) clusters: &'a [&'a str],
}

impl Compared<'_> {
    /// Waits until each golden object exists and is equal but for the exceptions.
    pub(super) async fn compare(&self) -> Result<()> {
        let values = self.values().await?;
        let golden: Vec<Value> = serde_json::from_str(GOLDEN)?;
        let mut unused: Vec<_> = EXCEPTIONS
            .iter()
            .filter(|it| self.clusters.contains(&it.cluster))
            .collect();
        let mut differences = Vec::new();
        for entry in &golden {
            let cluster = entry["cluster"].as_str().context("no cluster")?;
            if !self.clusters.contains(&cluster) {
                continue;
            }
            let site = match cluster == self.consumer.name {
                true => self.consumer,
                false => self.provider,
            };
            let expected = filled(&entry["object"], &values);
            for difference in differences_of(site, &expected).await? {
                let (path, _) = difference.split_once(": ").unwrap_or_default();
                let kind = expected["kind"].as_str().unwrap_or_default();
                let known = EXCEPTIONS.iter().find(|it| {
                    it.cluster == cluster && it.kind == kind && path.starts_with(it.path)
                });
                match known {
                    Some(known) => unused.retain(|it| !std::ptr::eq(*it, known)),
                    None => differences.push(format!("{cluster} {kind} {difference}")),
                }
            }
        }
        ensure!(differences.is_empty(), "{}", differences.join("\n"));
        let unused: Vec<_> = unused
            .iter()
            .map(|it| (it.kind, it.path, it.reason))
            .collect();
        ensure!(unused.is_empty(), "no such difference: {unused:?}");

        Ok(())
    }

    /// Returns the fresh values, by the names in the golden objects.
    async fn values(&self) -> Result<BTreeMap<&'static str, String>> {
        let (rome, milan) = (rest(self.consumer), rest(self.provider));
        let remote = self.provider.tenant_namespace();
        let key = rome.get("Secret", "liqo", "authentication-keys").await?;
        let key = ClusterKey::from_pem(&decoded(&key["data"]["privateKey"])?)?;
        let nonce = milan.get("Secret", &remote, "liqo-nonce").await?;
        let nonce = decoded(&nonce["data"]["nonce"])?;
        ensure!(nonce.len() == 88, "{} bytes", nonce.len());
        let authority = milan.get("ConfigMap", "liqo", "kube-root-ca.crt").await?;
        let authority = authority["data"]["ca.crt"].as_str().context("no CA")?;
        let certificate = async |name| {
            let secret = milan.get("Secret", &remote, name).await?;
            decoded(&secret["data"]["certificate"])
        };
        let csr = |subject| request::create(&key, &subject).map(String::into_bytes);
        let values = [
            ("@ca", authority.as_bytes().to_vec()),
            (
                "@certificate",
                certificate("liqo-remote-certificate").await?,
            ),
            (
                "@slice-certificate",
                certificate("liqo-remote-certificate-milan").await?,
            ),
            ("@csr", csr(Subject::control_plane("rome"))?),
            ("@slice-csr", csr(Subject::resource_slice("rome", "milan"))?),
            ("@nonce", nonce.clone()),
            ("@private-key", key.to_pem().as_bytes().to_vec()),
            ("@public-key", key.public_key().to_pem().into_bytes()),
            ("@signature", key.sign(&nonce)?),
        ];
        let mut values: BTreeMap<_, _> = values
            .into_iter()
            .map(|(name, bytes)| (name, base64(bytes)))
            .collect();
        values.insert("@server", self.provider.server().to_owned());

        Ok(values)
    }
}

fn rest(site: &Site) -> Rest {
    Rest::new(site.client.clone(), "kubectl")
}

/// Returns the differences from a golden object, when the object exists and there are none but exceptions, or at the end of
/// the wait.
async fn differences_of(site: &Site, expected: &Value) -> Result<Vec<String>> {
    let text = |path: &str| {
        expected
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    let namespace = text("/metadata/namespace");
    let object = until(Deadline::after(SOON), name, async || {
        rest(site).get(kind, namespace, name).await
    })
    .await?;
    let (expected, found) = (leaves(expected), leaves(&readable(object)?));
    let paths = expected.keys().chain(found.keys());
    let mut differences: Vec<_> = paths
        .filter(|path| expected.get(*path) != found.get(*path))
        .map(|path| {
            let value = |values: &BTreeMap<String, Value>| match values.get(path) {
                Some(value) => value.to_string(),
                None => "absent".to_owned(),
            };
            format!(
                "{path}: {name} has {}, not {}",
                value(&found),
                value(&expected)
            )
        })
        .collect();
    differences.sort();
    differences.dedup();

    Ok(differences)
}

/// Decodes the kubeconfig of a Secret.
fn readable(mut object: Value) -> Result<Value> {
    if object["kind"] == "Secret" && !object["data"]["kubeconfig"].is_null() {
        let text = String::from_utf8(decoded(&object["data"]["kubeconfig"])?)?;
        object["data"]["kubeconfig"] = json!(text);
    }
    Ok(object)
}

fn base64(bytes: Vec<u8>) -> String {
    let encoded = json!(ByteString(bytes));
    encoded.as_str().unwrap_or_default().to_owned()
}

/// Returns an object with the fresh values.
fn filled(value: &Value, values: &BTreeMap<&'static str, String>) -> Value {
    match value {
        Value::String(text) => {
            let mut text = text.clone();
            for (name, value) in values {
                text = text.replace(name, value);
            }
            json!(text)
        }
        Value::Array(items) => items.iter().map(|it| filled(it, values)).collect(),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, it)| (key.clone(), filled(it, values)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

/// Returns the values of an object by their paths, without the volatile ones.
fn leaves(object: &Value) -> BTreeMap<String, Value> {
    fn visit(path: &str, value: &Value, found: &mut BTreeMap<String, Value>) {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(fields) => {
                let fields = fields.iter();
                let fields = fields.filter(|(key, _)| !VOLATILE.contains(&key.as_str()));
                fields.map(|(key, it)| (key.clone(), it)).collect()
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items.map(|(index, it)| (index.to_string(), it)).collect()
            }
            leaf => {
                found.insert(path.to_owned(), leaf.clone());
                return;
            }
        };
        if children.is_empty() {
            found.insert(path.to_owned(), value.clone());
        }
        for (key, child) in children {
            let path = if path.is_empty() {
                key
            } else {
                format!("{path}.{key}")
            };
            visit(&path, child, found);
        }
    }
    let mut found = BTreeMap::new();
    visit("", object, &mut found);

    found
}
