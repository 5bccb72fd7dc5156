//! Switches for single mechanisms, with which tests verify that other tests notice a missing one.
//!
//! Without the cargo feature `mutants` no mechanism can be switched off, and the environment is
//! not read.

/// The environment variable with the name of the mechanism to switch off.
#[cfg(feature = "mutants")]
pub(crate) const VARIABLE: &str = "LIQO_MUTANT";

/// Returns whether `mechanism` is switched off.
#[cfg(feature = "mutants")]
pub(crate) fn disables(mechanism: &str) -> bool {
    use std::sync::LazyLock;

    static MUTANT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(VARIABLE).ok());

    MUTANT.as_deref() == Some(mechanism)
}

/// Returns `false`: this build has no switches.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn disables(_mechanism: &str) -> bool {
    false
}
