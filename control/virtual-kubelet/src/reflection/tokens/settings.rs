//! Values of the flags.

use crate::pod::forge::ApiServerSupport;
use crate::pod::is_bound;
use crate::reflection::peering::Peering;
use crate::reflection::token::TokenSecret;
use control_runtime::Key;
use k8s_openapi::api::core::v1::Pod;

/// Values of the flags.
#[derive(Clone, Debug)]
pub(crate) struct TokenSettings {
    /// This cluster and the provider, with the labels of reflected objects.
    pub(crate) peering: Peering,
    /// Namespace of the provider's NamespaceMap.
    pub(crate) tenant_namespace: String,
    /// Name of the Node.
    pub(crate) node: String,
    /// Which tokens pods have that do not say it by an annotation.
    pub(crate) api_server_support: ApiServerSupport,
    /// Whether the root CA of this cluster is reflected, so that pods wait for it.
    pub(crate) reflects_root_ca: bool,
}

impl TokenSettings {
    /// Returns the key of the provider's NamespaceMap.
    pub(super) fn map(&self) -> Key {
        Key::new(&*self.tenant_namespace, &*self.peering.destination)
    }

    /// Returns whether a pod is bound to the Node.
    pub(super) fn is_bound(&self, pod: &Pod) -> bool {
        is_bound(pod, &self.node)
    }

    /// Returns the Secret that a pod needs.
    pub(super) fn secret_of(&self, pod: &Pod) -> TokenSecret {
        TokenSecret::of(pod, self.api_server_support)
    }
}
