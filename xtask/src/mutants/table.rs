//! Every mechanism that can be switched off, and the test that must notice.

/// A mechanism and its test.
#[derive(Debug)]
pub(super) struct Mutant {
    /// As `LIQO_MUTANT` names it.
    pub(super) name: &'static str,
    /// The full name of a test of the laboratory.
    pub(super) test: &'static str,
}

/// All of them, kernel programs first, in the order of a packet's way.
pub(super) const MUTANTS: &[Mutant] = &[];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_mechanism_is_listed_once() {
        let names: BTreeSet<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();

        assert_eq!(names.len(), MUTANTS.len());
    }
}
