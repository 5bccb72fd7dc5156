//! The resources of the controller.

use super::OWNER;
use crate::network::keep;
use crate::shadow_endpoint_slice;
use control_api::{ExportedService, ForeignCluster, ServiceExport, ServiceImport, labels};
use control_runtime::{Registration, Scope};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::ClusterRole;

/// Index of EndpointSlices and Services by namespace and name of the imported Service.
pub(super) const BY_IMPORT: &str = "multi-cluster/import";

/// Returns the resources that the controller follows, with Liqo in namespace `liqo`.
pub(crate) fn registrations(liqo: &str) -> Vec<Registration> {
    let mut registrations = vec![
        // The definitions may be those of another installation.
        Registration::whole::<ServiceExport>(Scope::Planned)
            .optional()
            .subresource("status", "patch")
            .written_in(Scope::All),
        Registration::whole::<ServiceImport>(Scope::Planned)
            .optional()
            .verbs(&["create", "patch", "delete"])
            .subresource("status", "patch")
            // It is the owner that controls the Service and the EndpointSlices.
            .subresource("finalizers", "update")
            .written_in(Scope::All),
        // A provider may not have the kind.
        Registration::whole::<ExportedService>(Scope::Planned).optional(),
        Registration::whole::<ExportedService>(Scope::All).verbs(&["create", "patch", "delete"]),
        Registration::whole::<Service>(Scope::All)
            .labels(own())
            .verbs(&["create", "patch", "delete"]),
        Registration::whole::<EndpointSlice>(Scope::All)
            .labels(own())
            .index(BY_IMPORT, |slice: &EndpointSlice| {
                super::objects::import_of(&slice.metadata)
                    .iter()
                    .map(ToString::to_string)
                    .collect()
            })
            .verbs(&["create", "patch", "delete"]),
        Registration::whole::<Service>(Scope::Planned),
        Registration::whole::<EndpointSlice>(Scope::Planned),
        Registration::whole::<ForeignCluster>(Scope::All),
        // The administrator chooses namespaces by any labels.
        Registration::whole::<Namespace>(Scope::All),
        Registration::whole::<ClusterRole>(Scope::All).name(OWNER),
        Registration::of(Scope::Namespace(liqo.to_owned()), keep::<ConfigMap>).labels(format!(
            "{}={}",
            labels::APP_NAME,
            labels::CLUSTER_ID_CONFIG_MAP
        )),
    ];
    registrations.extend(shadow_endpoint_slice::addresses(liqo));

    registrations
}

/// Returns the selector of the objects of imported Services.
fn own() -> String {
    format!(
        "{}={}",
        labels::MANAGED_BY,
        labels::MANAGED_BY_SERVICE_IMPORT
    )
}
