//! A switch that disables one mechanism of the agent, for mutation tests.
//!
//! A mutation test disables a mechanism, and verifies that the tests of this mechanism then fail.
//! In a build without the cargo feature `mutants`, no mechanism can be disabled.

/// Environment variable with the name of the mechanism to disable.
#[cfg(feature = "mutants")]
pub(crate) const VARIABLE: &str = "LIQO_MUTANT";

/// Returns whether the environment disables `mechanism`.
#[cfg(feature = "mutants")]
pub(crate) fn disables(mechanism: &str) -> bool {
    use std::sync::LazyLock;

    static MUTANT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(VARIABLE).ok());

    MUTANT.as_deref() == Some(mechanism)
}

/// Returns `false`, because no mechanism can be disabled without the cargo feature `mutants`.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn disables(_mechanism: &str) -> bool {
    false
}
