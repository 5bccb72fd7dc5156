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
use std::collections::{BTreeMap, BTreeSet};

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

/// A field that differs from upstream's.
struct Exception {
    cluster: &'static str,
    kind: &'static str,
    /// Beginning of the object's name.
    name: &'static str,
    /// Beginning of the path.
    path: &'static str,
    /// The reason of the difference.
    reason: &'static str,
}

/// The virtual kubelet is not part of the peering: until it runs, a VirtualNode has neither Deployment nor Node.
const NO_KUBELET: &str = "there is no virtual kubelet";

/// All differences from upstream's objects.
const EXCEPTIONS: &[Exception] = &[
    Exception {
        cluster: "milan",
        kind: "Secret",
        name: "liqo-",
        path: "metadata.annotations.",
        reason: "the nonce is bound to the first key that was verified with it, and a certificate to its owner",
    },
    Exception {
        cluster: "rome",
        kind: "Secret",
        name: "liqo-signed-nonce",
        path: "metadata.ownerReferences.0.",
        reason: "the signed nonce ends with the Identity",
    },
    Exception {
        cluster: "rome",
        kind: "Secret",
        name: "kubeconfig-controlplane-milan",
        path: "metadata.finalizers.0",
        reason: "replication needs no finalizer on its credentials",
    },
    Exception {
        cluster: "rome",
        kind: "ForeignCluster",
        name: "milan",
        path: "metadata.finalizers.0",
        reason: "a probe of the API server needs no finalizer",
    },
    Exception {
        cluster: "rome",
        kind: "ForeignCluster",
        name: "milan",
        path: "status.conditions.",
        reason: "the API server has not been probed yet",
    },
    Exception {
        cluster: "rome",
        kind: "ForeignCluster",
        name: "milan",
        path: "status.modules.offloading.conditions.1.",
        reason: NO_KUBELET,
    },
    Exception {
        cluster: "rome",
        kind: "VirtualNode",
        name: "milan",
        path: "metadata.finalizers.0",
        reason: NO_KUBELET,
    },
    Exception {
        cluster: "rome",
        kind: "VirtualNode",
        name: "milan",
        path: "spec.template.",
        reason: NO_KUBELET,
    },
    Exception {
        cluster: "rome",
        kind: "VirtualNode",
        name: "milan",
        path: "spec.offloadingPatch.annotationsNotReflected.",
        reason: NO_KUBELET,
    },
    Exception {
        cluster: "rome",
        kind: "VirtualNode",
        name: "milan",
        path: "status.conditions.",
        reason: NO_KUBELET,
    },
];

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
        let mut used = BTreeSet::new();
        let mut compared = 0;
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
            used.extend(until_equal(site, &expected).await?);
            compared += 1;
        }
        let all = golden.len();
        eprintln!("golden: {compared} of {all} objects are equal, but for: {used:#?}");

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

/// Waits until an object is equal to a golden one, but for the exceptions, and returns the reasons of these.
async fn until_equal(site: &Site, expected: &Value) -> Result<Vec<&'static str>> {
    let text = |path: &str| {
        expected
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    let namespace = text("/metadata/namespace");
    let what = format!("{kind} {name} in {}", site.name);
    until(Deadline::after(SOON), &what, async || {
        let found = rest(site).get(kind, namespace, name).await?;
        let mut reasons = Vec::new();
        let mut differences = Vec::new();
        for (path, difference) in differences_of(&readable(found)?, expected) {
            let known = EXCEPTIONS.iter().find(|it| {
                it.cluster == site.name
                    && it.kind == kind
                    && name.starts_with(it.name)
                    && path.starts_with(it.path)
            });
            match known {
                Some(known) => reasons.push(known.reason),
                None => differences.push(difference),
            }
        }
        ensure!(differences.is_empty(), "{}", differences.join("\n"));
        Ok(reasons)
    })
    .await
}

/// Returns the paths of the fields that differ, each with a description.
pub(super) fn differences_of(found: &Value, expected: &Value) -> BTreeMap<String, String> {
    let (found, expected) = (leaves(found), leaves(expected));
    let paths = expected.keys().chain(found.keys());
    let different = paths.filter(|path| expected.get(*path) != found.get(*path));
    let text = |values: &BTreeMap<String, Value>, path: &str| match values.get(path) {
        Some(value) => value.to_string(),
        None => "absent".to_owned(),
    };
    let described = different.map(|path| {
        let (found, expected) = (text(&found, path), text(&expected, path));
        (path.clone(), format!("{path} is {found}, not {expected}"))
    });

    described.collect()
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
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
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
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                found.insert(path.to_owned(), value.clone());
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
