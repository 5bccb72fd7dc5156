//! Conditions of the authentication module.

use super::condition::{Line, Status, Type};
use super::peer::Peer;
use control_api::authentication::resource_slice::{
    REPLICATION_FORBIDDEN, ResourceSliceConditionStatus, ResourceSliceConditionType,
};
use control_api::authentication::tenant::AuthzPolicy;
use control_api::{ResourceSlice, Tenant};

/// Returns the condition of each identity that exists. `is_refused` is whether the peer, as provider, refuses the requests
/// of this cluster.
pub(super) fn lines(peer: &Peer<'_>, is_refused: bool) -> Vec<Line<'static>> {
    let tenant = peer.tenant.map(|tenant| tenant_line(is_ready(tenant)));
    let has_identity = peer.identity.is_some() || peer.secret.is_some();
    // The peer refuses these credentials, although they are complete.
    let is_refused = is_refused || peer.slices.iter().any(|slice| is_forbidden(slice, peer.id));
    let identity = has_identity.then(|| identity_line(peer.secret.is_some() && !is_refused));
    tenant.into_iter().chain(identity).collect()
}

fn tenant_line(is_ready: bool) -> Line<'static> {
    let part = Type::AuthTenantStatus;
    if is_ready {
        (
            part,
            Status::Ready,
            "TenantReady",
            "The tenant has been successfully configured",
        )
    } else {
        (
            part,
            Status::NotReady,
            "TenantNotReady",
            "The tenant is not correctly configured",
        )
    }
}

fn identity_line(is_ready: bool) -> Line<'static> {
    let part = Type::AuthIdentityControlPlaneStatus;
    if is_ready {
        (
            part,
            Status::Ready,
            "IdentityReady",
            "The identity has been successfully configured",
        )
    } else {
        (
            part,
            Status::NotReady,
            "IdentityNotReady",
            "The identity is not correctly configured",
        )
    }
}

/// Returns whether the consumer has its rights, and its credentials unless the policy expects none.
fn is_ready(tenant: &Tenant) -> bool {
    let status = tenant.status.as_ref();
    let expects_none = tenant.spec.authz_policy == Some(AuthzPolicy::TolerateNoHandshake);
    status.is_some_and(|status| {
        let namespace = status.tenant_namespace.as_deref().unwrap_or_default();
        !namespace.is_empty() && (expects_none || status.auth_params.is_some())
    })
}

/// Returns whether the peer, as provider, refuses to receive a slice of this cluster.
fn is_forbidden(slice: &ResourceSlice, peer: &str) -> bool {
    let conditions = slice.status.iter().flat_map(|it| &it.conditions);
    let is_of_consumer = slice.spec.provider_cluster_id.as_deref() == Some(peer);
    is_of_consumer
        && conditions.into_iter().any(|it| {
            it.type_ == ResourceSliceConditionType::Resources
                && it.status == ResourceSliceConditionStatus::Denied
                && it.reason.as_deref() == Some(REPLICATION_FORBIDDEN)
        })
}
