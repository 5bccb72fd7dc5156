//! Mechanisms that a test may switch off, to see that another test notices.
//!
//! Without the cargo feature `mutants` every question is answered `false` at
//! compile time, and the environment is never asked.

/// The variable that names the one mechanism to switch off.
#[cfg(feature = "mutants")]
pub(crate) const VARIABLE: &str = "LIQO_MUTANT";

/// Tells whether `mechanism` is switched off.
#[cfg(feature = "mutants")]
pub(crate) fn disables(mechanism: &str) -> bool {
    use std::sync::LazyLock;

    static MUTANT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(VARIABLE).ok());

    MUTANT.as_deref() == Some(mechanism)
}

/// Tells whether `mechanism` is switched off: never, in this build.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn disables(_mechanism: &str) -> bool {
    false
}
