//! Address and certificate authority of this cluster's API server, for consumers.

use super::objects::Local;
use crate::network::ADDRESS_TYPES;
use control_api::authentication::auth_params::AuthParams;
use control_api::labels;
use control_runtime::Key;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Node;
use std::net::Ipv6Addr;

/// ConfigMap of each namespace with the certificate authority of the API server. Kubernetes maintains it.
pub(super) const ROOT_CA: &str = "kube-root-ca.crt";

/// Port of an API server whose address is that of its node.
const PORT: u16 = 6443;

/// Settings of the API server's address, from the chart's value `apiServer`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiServerSettings {
    /// Address that consumers use instead of that of a node; empty if it is not set.
    pub(crate) address: String,
    /// PEM bundle that consumers use instead of the cluster's certificate authority.
    pub(crate) ca: Option<Vec<u8>>,
    /// Whether the API server's certificate is by an authority that consumers trust already.
    pub(crate) is_trusted: bool,
}

/// Returns what all consumers receive: address and certificate authority.
pub(super) fn auth_params(settings: &ApiServerSettings, local: &Local<'_>) -> AuthParams {
    AuthParams {
        api_server: address(settings, local),
        ca: certificate_authority(settings, local),
        ..AuthParams::default()
    }
}

fn certificate_authority(settings: &ApiServerSettings, local: &Local<'_>) -> Option<ByteString> {
    if let Some(ca) = &settings.ca {
        return Some(ByteString(ca.clone()));
    }
    if settings.is_trusted {
        return None;
    }
    let map = local.config_maps.get(&Key::new(local.namespace, ROOT_CA))?;
    let text = map.data.as_ref()?.get("ca.crt")?;

    Some(ByteString(text.clone().into_bytes()))
}

fn address(settings: &ApiServerSettings, local: &Local<'_>) -> Option<String> {
    let address = settings.address.trim();
    if address.starts_with("https://") {
        return Some(address.to_owned());
    }
    if !address.is_empty() {
        return Some(format!("https://{address}"));
    }
    let address = local.nodes.iter().find_map(|(_, node)| address_of(node))?;

    let host = match address.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => address.to_owned(),
    };

    Some(format!("https://{host}:{PORT}"))
}

/// Returns the address of a node for other clusters, if it runs an API server.
pub(super) fn address_of(node: &Node) -> Option<&str> {
    let labels = node.metadata.labels.as_ref()?;
    if !labels.contains_key(labels::CONTROL_PLANE_NODE) {
        return None;
    }
    let addresses = node.status.as_ref()?.addresses.as_deref()?;

    ADDRESS_TYPES.iter().find_map(|type_| {
        let address = addresses.iter().find(|it| it.type_ == *type_)?;
        Some(address.address.as_str())
    })
}
