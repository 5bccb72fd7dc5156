//! Secret -> Secret of the provider.

use super::metadata::reflected;
use super::peering::Peering;
use k8s_openapi::api::core::v1::Secret;

/// Type of Secrets with a token of a ServiceAccount, which a controller of their cluster writes. They are not reflected, since
/// each pod has tokens of its own.
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// Type of Secrets with arbitrary data, and of those without a type.
pub(super) const OPAQUE: &str = "Opaque";

/// Returns the reflected Secret; `None` if its type is not reflected.
pub(crate) fn remote(local: &Secret, peering: &Peering) -> Option<Secret> {
    Some(Secret {
        metadata: reflected(&local.metadata, peering),
        data: local.data.clone(),
        immutable: local.immutable,
        string_data: None,
        type_: Some(remote_type(local.type_.as_deref())?.to_owned()),
    })
}

/// Returns the type of the reflected Secret; `None` if the type is not reflected.
pub(super) fn remote_type(local: Option<&str>) -> Option<&str> {
    let type_ = local.unwrap_or(OPAQUE);
    (type_ != SERVICE_ACCOUNT_TOKEN).then_some(type_)
}
