//! Lets mutation tests switch off one mechanism. Releases are compiled without the switch.

#[cfg(feature = "mutants")]
mod switch {
    use aya_ebpf::Global;
    pub(crate) use ebpf_common::mutant::Mechanism;

    /// Number of the [`Mechanism`] that is switched off; zero means none.
    #[unsafe(no_mangle)]
    static MUTANT: Global<u32> = Global::new(0);

    #[inline(always)]
    pub(crate) fn is_on(mechanism: Mechanism) -> bool {
        MUTANT.load() != mechanism as u32
    }
}

#[cfg(feature = "mutants")]
macro_rules! is_on {
    ($mechanism:ident) => {
        $crate::mutants::switch_is_on($crate::mutants::Mechanism::$mechanism)
    };
}

/// Evaluates to `true`, because only builds for mutation tests can switch off a mechanism.
#[cfg(not(feature = "mutants"))]
macro_rules! is_on {
    ($mechanism:ident) => {
        $crate::mutants::always()
    };
}

#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn always() -> bool {
    true
}

pub(crate) use is_on;
#[cfg(feature = "mutants")]
pub(crate) use switch::{Mechanism, is_on as switch_is_on};
