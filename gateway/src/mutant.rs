//! Switches off one mechanism of the gateway for a mutation test.
//!
//! The mutation test verifies that at least one other test fails without the mechanism.
//!
//! The environment variable `LIQO_MUTANT` names the mechanism. Without the Cargo feature `mutants`,
//! the gateway does not read the variable, and no mechanism can be switched off.

/// Environment variable that names the mechanism to switch off.
#[cfg(feature = "mutants")]
pub(crate) const VARIABLE: &str = "LIQO_MUTANT";

/// Returns whether `mechanism` is switched off.
#[cfg(feature = "mutants")]
pub(crate) fn disables(mechanism: &str) -> bool {
    use std::sync::LazyLock;

    static MUTANT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(VARIABLE).ok());

    MUTANT.as_deref() == Some(mechanism)
}

/// Returns false, because this build lacks the feature `mutants`.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn disables(_mechanism: &str) -> bool {
    false
}
