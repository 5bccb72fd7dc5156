//! Values of the flags and the VirtualNode.

use super::kind::Kind;
use super::peering::Peering;
use control_api::offloading::policy::Policy;
use control_runtime::{Key, Resource};
use ipnet::IpNet;
use std::collections::BTreeMap;

/// Values of the flags and the VirtualNode.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// The clusters, and the keys that are not reflected.
    pub(crate) peering: Peering,
    /// Namespace of the provider's NamespaceMap.
    pub(crate) tenant_namespace: String,
    /// Policies of the kinds that are reflected. A kind with `workers: 0` is left out.
    pub(crate) policies: BTreeMap<Kind, Policy>,
    /// Pod CIDRs of this cluster.
    pub(crate) pod_cidrs: Vec<IpNet>,
    /// Class of the provider's load balancers, if the VirtualNode offers one.
    pub(crate) load_balancer_class: Option<String>,
    /// Class of the provider's Ingresses, if the VirtualNode offers one.
    pub(crate) ingress_class: Option<String>,
}

impl Settings {
    /// Returns whether a kind is reflected.
    pub(super) fn is_enabled(&self, kind: Kind) -> bool {
        self.policies.contains_key(&kind)
    }

    /// Returns the kind of a resource of this cluster.
    pub(super) fn kind_of_local(&self, resource: &Resource) -> Option<Kind> {
        let mut kinds = self.policies.keys().copied();
        kinds.find(|kind| kind.local() == *resource)
    }

    /// Returns the kind of a resource of the provider.
    pub(super) fn kind_of_remote(&self, resource: &Resource) -> Option<Kind> {
        let mut kinds = self.policies.keys().copied();
        kinds.find(|kind| kind.remote() == *resource)
    }

    /// Returns the kinds that flags name.
    pub(super) fn others(&self) -> impl Iterator<Item = Kind> + '_ {
        self.policies.keys().copied().filter(|it| it.is_other())
    }

    /// Returns the policy of a kind. EndpointSlices have that of Services.
    pub(super) fn policy(&self, kind: Kind) -> Policy {
        let of_service = kind == Kind::EndpointSlice && self.is_enabled(Kind::Service);
        let kind = if of_service { Kind::Service } else { kind };
        self.policies.get(&kind).copied().unwrap_or_default()
    }

    /// Returns the key of the provider's NamespaceMap.
    pub(super) fn map(&self) -> Key {
        Key::new(&*self.tenant_namespace, &*self.peering.destination)
    }
}
