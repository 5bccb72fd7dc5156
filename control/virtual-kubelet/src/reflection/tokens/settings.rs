//! Values of the flags and the VirtualNode.

use crate::reflection::peering::Peering;
use crate::reflection::token::TokenSecret;
use control_runtime::{Key, Registration};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

/// Returns the Secret that a pod needs.
pub(crate) type SecretOf = Arc<dyn Fn(&Pod) -> TokenSecret + Send + Sync>;

/// Values of the flags and the VirtualNode.
#[derive(Clone)]
pub(crate) struct TokenSettings {
    /// The clusters.
    pub(crate) peering: Peering,
    /// Namespace of the provider's NamespaceMap.
    pub(crate) tenant_namespace: String,
    /// Name of the Node.
    pub(crate) node: String,
    /// The pods of this cluster, as the controller of pods registers them.
    pub(crate) pods: Registration,
    /// Returns the Secret that a pod needs.
    pub(crate) secret_of: SecretOf,
}

impl TokenSettings {
    /// Returns the key of the provider's NamespaceMap.
    pub(super) fn map(&self) -> Key {
        Key::new(&*self.tenant_namespace, &*self.peering.destination)
    }

    /// Returns whether a pod is bound to the Node.
    pub(super) fn is_bound(&self, pod: &Pod) -> bool {
        let node = pod.spec.as_ref().and_then(|it| it.node_name.as_deref());
        node == Some(self.node.as_str())
    }
}
