//! ConfigMap -> ConfigMap of the provider.

use super::metadata::reflected;
use super::peering::Peering;
use k8s_openapi::api::core::v1::ConfigMap;

/// ConfigMap with the CA of the API server, which Kubernetes creates in every namespace of both clusters.
pub(crate) const ROOT_CA: &str = "kube-root-ca.crt";

/// Characters of the cluster ID in the name of the reflected [`ROOT_CA`].
const ROOT_CA_ID_LENGTH: usize = 5;

/// Returns the reflected ConfigMap.
pub(crate) fn remote(local: &ConfigMap, peering: &Peering) -> ConfigMap {
    let mut metadata = reflected(&local.metadata, peering);
    let name = metadata.name.as_deref().unwrap_or_default();
    metadata.name = Some(remote_name(name, &peering.origin));
    ConfigMap {
        metadata,
        data: local.data.clone(),
        binary_data: local.binary_data.clone(),
        immutable: local.immutable,
    }
}

/// Returns the name at the provider of a ConfigMap of the cluster `origin`.
pub(crate) fn remote_name(name: &str, origin: &str) -> String {
    if name == ROOT_CA {
        return root_ca_name(origin);
    }
    name.to_owned()
}

/// Returns the name in this cluster of a reflected ConfigMap.
pub(crate) fn local_name<'a>(name: &'a str, origin: &str) -> &'a str {
    if name == root_ca_name(origin) {
        return ROOT_CA;
    }
    name
}

/// Returns the name at the provider of the ConfigMap with the CA of the cluster `origin`.
pub(crate) fn root_ca_name(origin: &str) -> String {
    let id: String = origin.chars().take(ROOT_CA_ID_LENGTH).collect();
    // A name ends with a letter or a digit.
    let end = match id.ends_with(|it: char| it.is_ascii_alphanumeric()) {
        true => "",
        false => "a",
    };
    format!("{ROOT_CA}.{id}{end}")
}
