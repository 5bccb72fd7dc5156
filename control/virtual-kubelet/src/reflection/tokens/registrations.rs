//! The resources of tokens.

use super::settings::TokenSettings;
use crate::pod::kept;
use crate::reflection::registrations::{LOCAL_ROLE, REMOTE_ROLE, reflected};
use crate::reflection::summary::keep;
use control_api::NamespaceMap;
use control_api::root_ca::reflected_name;
use control_runtime::{Registration, Resource, Scope, Selector, WatchId};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use std::collections::BTreeSet;

pub(super) fn registrations(settings: &TokenSettings) -> Vec<Registration> {
    let tenant = Scope::Namespace(settings.tenant_namespace.clone());
    vec![
        Registration::whole::<NamespaceMap>(tenant).name(&*settings.peering.destination),
        kept::pods(Scope::All).node(&*settings.node),
        reflected::<Secret>(),
        // Only the root CA of this cluster, which pods wait for.
        Registration::of(Scope::Planned, keep::<ConfigMap>).written_in(Scope::Bound(REMOTE_ROLE)),
        Registration::of(Scope::Bound(LOCAL_ROLE), |account: ServiceAccount| account)
            .subresource("token", "create"),
    ]
}

/// Returns the watches in a namespace of the provider.
pub(super) fn watches(settings: &TokenSettings, namespace: &str) -> BTreeSet<WatchId> {
    BTreeSet::from([secrets(settings, namespace), root_ca(settings, namespace)])
}

/// Returns the watch of the Secrets with tokens of the virtual node's pods.
pub(super) fn secrets(settings: &TokenSettings, namespace: &str) -> WatchId {
    WatchId {
        cluster: settings.peering.cluster(),
        resource: Resource::of::<Secret>(),
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            labels: settings.peering.selector_of_node(&settings.node),
            ..Selector::default()
        },
    }
}

/// Returns the watch of the reflected root CA.
fn root_ca(settings: &TokenSettings, namespace: &str) -> WatchId {
    WatchId {
        cluster: settings.peering.cluster(),
        resource: Resource::of::<ConfigMap>(),
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            labels: String::new(),
            name: Some(reflected_name(&settings.peering.origin)),
            ..Selector::default()
        },
    }
}
