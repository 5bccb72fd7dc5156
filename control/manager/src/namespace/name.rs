//! Names of remote namespaces.

use control_api::NamespaceOffloading;
use control_api::offloading::namespace_offloading::NamespaceMappingStrategy as Strategy;

/// Longest name of a namespace (RFC 1123 label).
const LEN_MAX: usize = 63;

/// Why a namespace has no remote name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NameError {
    #[error(
        "spec.remoteNamespaceName is missing, and the strategy SelectedName needs it: delete this object, and create it with \
         the name or another strategy"
    )]
    Missing,
    #[error(
        "the remote name `{name}` has {len} characters, and names of namespaces have {LEN_MAX} at most: delete this object, \
         and create it with the strategy EnforceSameName or SelectedName"
    )]
    TooLong { name: String, len: usize },
    #[error(
        "the remote name `{0}` is no name of a namespace, which has lower-case letters, digits and dashes: delete this \
         object, and create it with another one"
    )]
    Invalid(String),
}

/// Returns the name of the remote namespaces of `namespace`. The one in the status precedes, because it is immutable.
///
/// # Errors
///
/// Returns [`NameError`] if there is no valid name.
pub(super) fn remote_name(
    offloading: &NamespaceOffloading,
    namespace: &str,
    cluster_id: &str,
) -> Result<String, NameError> {
    let spec = &offloading.spec;
    let fixed = offloading.status.as_ref();
    let fixed = fixed.and_then(|it| it.remote_namespace_name.clone());
    let name = match fixed.filter(|name| !name.is_empty()) {
        Some(name) => name,
        None => match spec.namespace_mapping_strategy.unwrap_or_default() {
            Strategy::EnforceSameName => namespace.to_owned(),
            Strategy::DefaultName => format!("{namespace}-{cluster_id}"),
            Strategy::SelectedName => {
                let name = spec.remote_namespace_name.clone();
                name.filter(|name| !name.is_empty())
                    .ok_or(NameError::Missing)?
            }
        },
    };
    if name.len() > LEN_MAX {
        let len = name.len();
        return Err(NameError::TooLong { name, len });
    }
    if !is_label(&name) {
        return Err(NameError::Invalid(name));
    }

    Ok(name)
}

/// Returns whether a text is a label of RFC 1123, as names of namespaces are.
pub(super) fn is_label(text: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];

    text.len() <= LEN_MAX
        && bytes
            .iter()
            .all(|byte| is_alphanumeric(*byte) || *byte == b'-')
        && ends
            .iter()
            .all(|end| end.is_some_and(|byte| is_alphanumeric(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::NamespaceOffloadingSpec;

    fn name(strategy: Strategy, selected: Option<&str>) -> Result<String, NameError> {
        let spec = NamespaceOffloadingSpec {
            namespace_mapping_strategy: Some(strategy),
            remote_namespace_name: selected.map(str::to_owned),
            ..NamespaceOffloadingSpec::default()
        };
        remote_name(
            &NamespaceOffloading::new("offloading", spec),
            "shop",
            "rome",
        )
    }

    #[test]
    fn the_strategy_determines_the_name() {
        assert_eq!(name(Strategy::EnforceSameName, None), Ok("shop".to_owned()));
        assert_eq!(
            name(Strategy::DefaultName, None),
            Ok("shop-rome".to_owned())
        );
        assert_eq!(
            name(Strategy::SelectedName, Some("store")),
            Ok("store".to_owned())
        );
    }

    #[test]
    fn invalid_names_are_errors() {
        assert_eq!(name(Strategy::SelectedName, None), Err(NameError::Missing));
        for invalid in ["Shop", "-shop", "shop-", "a/b", "..", "a.b"] {
            let result = name(Strategy::SelectedName, Some(invalid));
            assert_eq!(result, Err(NameError::Invalid(invalid.to_owned())));
        }
        let long = "a".repeat(64);
        assert!(matches!(
            name(Strategy::SelectedName, Some(&long)),
            Err(NameError::TooLong { len: 64, .. })
        ));
    }

    #[test]
    fn a_name_in_the_status_precedes_a_changed_strategy() {
        let mut offloading =
            NamespaceOffloading::new("offloading", NamespaceOffloadingSpec::default());
        offloading
            .status
            .get_or_insert_default()
            .remote_namespace_name = Some("store".to_owned());

        assert_eq!(
            remote_name(&offloading, "shop", "rome"),
            Ok("store".to_owned())
        );
    }
}
