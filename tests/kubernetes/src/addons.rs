//! Addons of every cluster: DNS, storage, and kube-proxy's RBAC.

use crate::manifest;
use crate::spec::Spec;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::BTreeMap;

/// Namespace and name of each Deployment that must be available before a cluster is up.
pub(crate) const DEPLOYMENTS: [(&str, &str); 2] = [
    ("kube-system", "coredns"),
    ("local-path-storage", "local-path-provisioner"),
];

/// Returns the objects of all addons.
///
/// # Errors
///
/// Returns an error if `versions.json` lacks the version of a program.
pub(crate) fn all(spec: &Spec, versions: &BTreeMap<String, String>) -> Result<Vec<Value>> {
    let version = |program: &str| {
        versions
            .get(program)
            .with_context(|| format!("versions.json has no version of {program}"))
    };
    let text = include_str!("../manifests/addons.yaml")
        .replace("${DNS}", &spec.dns_service().to_string())
        .replace("${COREDNS}", version("coredns")?)
        .replace("${LOCAL_PATH}", version("local-path-provisioner")?);

    manifest::parse(&text)
}
