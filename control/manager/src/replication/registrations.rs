//! The resources of the replication controller.

use super::peer::{BY_PROVIDER, provider_of};
use crate::network::keep;
use control_api::{ExportedService, ForeignCluster, NamespaceMap, Renew, ResourceSlice, labels};
use control_runtime::{Registration, Scope};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};

/// Why an Apply takes fields of a status from other field managers.
const FORCE: &str =
    "the status of a replicated object is the provider's; a user may have edited one";

/// Returns the resources that the controller follows, with Liqo in `namespace`. Its watches at providers need no rights in
/// this cluster.
pub(crate) fn registrations(namespace: &str) -> Vec<Registration> {
    let replicated = |registration: Registration| {
        // The finalizer is a patch of the object.
        registration
            .verbs(&["patch"])
            .subresource("status", "patch")
            .force("status", FORCE)
    };

    vec![
        replicated(Registration::whole::<ResourceSlice>(Scope::All)),
        replicated(Registration::whole::<Renew>(Scope::All)),
        replicated(Registration::whole::<NamespaceMap>(Scope::All)),
        // It has no status.
        Registration::whole::<ExportedService>(Scope::All).verbs(&["patch"]),
        // A provider may lack the kind.
        Registration::whole::<ExportedService>(Scope::Planned).optional(),
        // The authentication controller adds the watches, which follow the rights of the manager.
        Registration::whole::<Secret>(Scope::Planned)
            .labels(labels::REMOTE_CLUSTER_ID)
            .index(BY_PROVIDER, |secret: &Secret| {
                provider_of(&secret.metadata)
                    .into_iter()
                    .map(str::to_owned)
                    .collect()
            }),
        Registration::whole::<ForeignCluster>(Scope::All),
        Registration::of(Scope::All, keep::<Namespace>),
        Registration::of(Scope::Namespace(namespace.to_owned()), keep::<ConfigMap>).labels(
            format!("{}={}", labels::APP_NAME, labels::CLUSTER_ID_CONFIG_MAP),
        ),
    ]
}
