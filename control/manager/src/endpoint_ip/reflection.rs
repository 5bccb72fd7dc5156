//! Which EndpointSlices virtual kubelets reflect to which providers.

use super::objects::Local;
use crate::authentication::label;
use crate::network::ReachedService;
use control_api::offloading::policy::{Marks, Policy};
use control_api::{VirtualNode, labels};
use control_runtime::Key;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;

/// The only type of addresses that is remapped.
const ADDRESS_TYPE: &str = "IPv4";

/// Values of [`labels::SLICE_MANAGED_BY`] on EndpointSlices of other clusters.
const FROM_OTHER_CLUSTERS: [&str; 2] = [
    labels::SLICE_MANAGED_BY_REFLECTION,
    labels::SLICE_MANAGED_BY_SERVICE_IMPORT,
];

/// Flags of a virtual kubelet about EndpointSlices.
const TYPE: &str = "--service-reflection-type";
const WORKERS: &str = "--endpointslice-reflection-workers";

/// Returns the policy for EndpointSlices of a virtual kubelet; `None` if it reflects none, or has no template yet.
pub(super) fn policy(node: &VirtualNode) -> Option<Policy> {
    let deployment = node.spec.template.as_ref()?.spec.as_ref()?;
    let pod = deployment.template.spec.as_ref()?;
    let arguments = pod
        .containers
        .iter()
        .flat_map(|it| it.args.iter().flatten());
    let arguments: Vec<_> = arguments.map(String::as_str).collect();
    let is_off = value(&arguments, WORKERS) == Some("0");
    let policy = value(&arguments, TYPE).and_then(|it| it.parse().ok());

    (!is_off).then(|| policy.unwrap_or_default())
}

/// Returns the value of a flag, in the same argument or in the next one.
fn value<'a>(arguments: &[&'a str], flag: &str) -> Option<&'a str> {
    let number = arguments.iter().position(|it| it.starts_with(flag))?;
    let rest = &arguments[number][flag.len()..];

    rest.strip_prefix('=')
        .or_else(|| arguments.get(number + 1).copied())
}

impl<'a> Local<'a> {
    /// Returns the cluster IDs of the providers to which an EndpointSlice of a namespace is reflected.
    pub(super) fn reflected_to(&self, namespace: &str, slice: &EndpointSlice) -> BTreeSet<&'a str> {
        let name = label(&slice.metadata, labels::SERVICE_NAME);
        let service = name.and_then(|name| self.services.get(&Key::new(namespace, name)));
        let of_service = service.map(|it| marks(&it.metadata)).unwrap_or_default();
        let of_service = of_service.or(self.marks(namespace));
        let own = marks(&slice.metadata);
        let is_of_api_server =
            ReachedService::ApiServer.key("") == Key::new(namespace, name.unwrap_or_default());
        if is_of_api_server || !is_reflected(slice) {
            return BTreeSet::new();
        }
        let is_chosen = |policy| own.is_slice_reflected(Some(of_service), policy) == Ok(true);
        let providers = self.providers(namespace).into_iter();
        let providers = providers.filter(|provider| {
            let mut policies = self.policies(provider).into_iter();
            policies.any(is_chosen)
        });

        providers.collect()
    }

    /// Returns the policies of the virtual kubelets of a provider.
    fn policies(&self, provider: &str) -> Vec<Policy> {
        let nodes = self.virtual_nodes.iter();
        let nodes = nodes.filter(|(_, node)| node.spec.cluster_id.as_deref() == Some(provider));

        nodes.filter_map(|(_, node)| policy(node)).collect()
    }

    /// Returns the annotations of a namespace about the reflection of its objects.
    fn marks(&self, namespace: &str) -> Marks {
        let namespace = self.cache.local::<Namespace>(&Key::cluster(namespace));
        namespace.map(|it| marks(&it.metadata)).unwrap_or_default()
    }
}

/// Returns the annotations of an object about its reflection.
pub(super) fn marks(metadata: &ObjectMeta) -> Marks {
    Marks::of(metadata.annotations.as_ref())
}

/// Returns whether virtual kubelets may reflect an EndpointSlice: it is not from another cluster, and has addresses that they
/// translate.
fn is_reflected(slice: &EndpointSlice) -> bool {
    let manager = label(&slice.metadata, labels::SLICE_MANAGED_BY);

    slice.address_type == ADDRESS_TYPE
        && slice.metadata.deletion_timestamp.is_none()
        && manager.is_none_or(|it| !FROM_OTHER_CLUSTERS.contains(&it))
}
