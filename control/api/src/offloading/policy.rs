//! Which objects are reflected: by the policy of their kind, and by annotations.

use super::reflected_resource::{ALLOW_LIST, DENY_LIST};
use crate::annotations::{ALLOW_REFLECTION, SKIP_REFLECTION};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Which objects of a kind are reflected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// All but those with the annotation `liqo.io/skip-reflection`.
    #[default]
    DenyList,
    /// Objects with the annotation `liqo.io/allow-reflection`.
    AllowList,
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            DENY_LIST => Ok(Self::DenyList),
            ALLOW_LIST => Ok(Self::AllowList),
            _ => Err(format!("use {DENY_LIST} or {ALLOW_LIST}")),
        }
    }
}

/// Both annotations of one object are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the annotations {SKIP_REFLECTION} and {ALLOW_REFLECTION} contradict each other: remove one of them"
)]
pub struct ContradictionError;

/// The annotations of an object about its reflection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Whether [`SKIP_REFLECTION`] is set.
    pub skips: bool,
    /// Whether [`ALLOW_REFLECTION`] is set.
    pub allows: bool,
    /// Whether there is an annotation, also one that is `false`.
    is_set: bool,
}

impl Marks {
    /// Reads the annotations. Each value but `false` sets one.
    #[must_use]
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Self {
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
    #[must_use]
    pub fn or(self, namespace: Self) -> Self {
        if self.is_set { self } else { namespace }
    }

    /// Returns whether the object is reflected.
    #[must_use]
    pub fn is_reflected(self, policy: Policy) -> bool {
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
    pub fn is_slice_reflected(
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
