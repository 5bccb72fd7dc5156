//! Which objects are reflected: by the policy of their kind, and by annotations.

use std::collections::BTreeMap;

/// Annotation of an object that is not reflected with [`Policy::DenyList`].
pub(crate) const SKIP_REFLECTION: &str = "liqo.io/skip-reflection";
/// Annotation of an object that is reflected with [`Policy::AllowList`].
pub(crate) const ALLOW_REFLECTION: &str = "liqo.io/allow-reflection";

/// Which objects of a kind are reflected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum Policy {
    /// All but those with the annotation `liqo.io/skip-reflection`.
    #[default]
    DenyList,
    /// Objects with the annotation `liqo.io/allow-reflection`.
    AllowList,
}

/// Both annotations of one object are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the annotations {SKIP_REFLECTION} and {ALLOW_REFLECTION} contradict each other: remove one of them"
)]
pub(crate) struct ContradictionError;

/// The annotations of an object about its reflection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) skips: bool,
    pub(crate) allows: bool,
    /// Whether there is an annotation, also one that is `false`.
    is_set: bool,
}

impl Marks {
    /// Reads the annotations. Each value but `false` sets one.
    pub(crate) fn of(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let value = |key: &str| annotations.and_then(|it| it.get(key));
        let values = [value(SKIP_REFLECTION), value(ALLOW_REFLECTION)];
        let [skips, allows] =
            values.map(|it| it.is_some_and(|it| !it.eq_ignore_ascii_case("false")));
        Self {
            skips,
            allows,
            is_set: values.into_iter().any(|it| it.is_some()),
        }
    }

    /// Returns the annotations of the namespace for an object without one.
    pub(crate) fn or(self, namespace: Self) -> Self {
        if self.is_set { self } else { namespace }
    }

    /// Returns whether the object is reflected.
    pub(crate) fn is_reflected(self, policy: Policy) -> bool {
        match policy {
            Policy::DenyList => !self.skips,
            Policy::AllowList => self.allows,
        }
    }

    /// Returns whether an EndpointSlice is reflected. Its own annotation takes precedence over those of its Service.
    ///
    /// # Errors
    ///
    /// Returns [`ContradictionError`] if it has both annotations.
    pub(crate) fn is_slice_reflected(
        self,
        service: Option<Self>,
        policy: Policy,
    ) -> Result<bool, ContradictionError> {
        match (self.skips, self.allows) {
            (true, true) => Err(ContradictionError),
            (true, false) => Ok(false),
            (false, true) => Ok(true),
            (false, false) => Ok(service.unwrap_or(self).is_reflected(policy)),
        }
    }
}
