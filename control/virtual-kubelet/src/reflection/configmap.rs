//! ConfigMap -> ConfigMap of the provider.

use super::metadata::reflected;
use super::peering::Peering;
use crate::pod::forge::reflected_config_map_name;
use control_api::root_ca::{ROOT_CA, reflected_name};
use k8s_openapi::api::core::v1::ConfigMap;

/// Returns the reflected ConfigMap.
pub(crate) fn remote(local: &ConfigMap, peering: &Peering) -> ConfigMap {
    let mut metadata = reflected(&local.metadata, peering);
    let name = metadata.name.as_deref().unwrap_or_default();
    metadata.name = Some(reflected_config_map_name(name, &peering.origin));
    ConfigMap {
        metadata,
        data: local.data.clone(),
        binary_data: local.binary_data.clone(),
        immutable: local.immutable,
    }
}

/// Returns the name in this cluster of a reflected ConfigMap.
pub(crate) fn local_name<'a>(name: &'a str, origin: &str) -> &'a str {
    if name == reflected_name(origin) {
        return ROOT_CA;
    }
    name
}
