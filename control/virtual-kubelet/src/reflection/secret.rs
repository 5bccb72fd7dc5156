//! Secret -> Secret of the provider.

use super::metadata::reflected;
use super::peering::Peering;
use k8s_openapi::api::core::v1::Secret;

/// Type of Secrets with a token of a ServiceAccount, which a controller of their cluster writes.
pub(super) const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// Type of Secrets with arbitrary data, and of those without a type.
pub(super) const OPAQUE: &str = "Opaque";

/// Annotation of a Secret of the type [`SERVICE_ACCOUNT_TOKEN`], and label of the reflected one. Value: name of the
/// ServiceAccount.
pub(super) const SERVICE_ACCOUNT: &str = "kubernetes.io/service-account.name";

/// Which Secrets with tokens of ServiceAccounts are reflected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ServiceAccountTokens {
    /// None: each pod has tokens of its own.
    #[default]
    Excluded,
    /// All, as Secrets of type `Opaque`.
    Reflected,
}

/// Returns the reflected Secret; `None` if its type is not reflected.
pub(crate) fn remote(
    local: &Secret,
    peering: &Peering,
    tokens: ServiceAccountTokens,
) -> Option<Secret> {
    let type_ = remote_type(local.type_.as_deref(), tokens)?;
    let mut metadata = reflected(&local.metadata, peering);
    if let (Some(account), Some(labels)) = (account(local), &mut metadata.labels) {
        labels.insert(SERVICE_ACCOUNT.to_owned(), account.to_owned());
    }

    Some(Secret {
        metadata,
        data: local.data.clone(),
        immutable: local.immutable,
        string_data: None,
        type_: Some(type_),
    })
}

/// Returns the ServiceAccount whose token a Secret contains.
pub(super) fn account(local: &Secret) -> Option<&str> {
    let annotations = local.metadata.annotations.as_ref();
    let account = annotations.and_then(|it| it.get(SERVICE_ACCOUNT))?;
    let is_token = local.type_.as_deref() == Some(SERVICE_ACCOUNT_TOKEN);

    is_token.then_some(account.as_str())
}

/// Returns the type of the reflected Secret; `None` if the type is not reflected.
pub(super) fn remote_type(local: Option<&str>, tokens: ServiceAccountTokens) -> Option<String> {
    match (local.unwrap_or(OPAQUE), tokens) {
        (SERVICE_ACCOUNT_TOKEN, ServiceAccountTokens::Excluded) => None,
        (SERVICE_ACCOUNT_TOKEN, ServiceAccountTokens::Reflected) => Some(OPAQUE.to_owned()),
        (type_, ServiceAccountTokens::Excluded | ServiceAccountTokens::Reflected) => {
            Some(type_.to_owned())
        }
    }
}
