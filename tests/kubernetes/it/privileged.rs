//! To be written.
use crate::fixture::Suite;
pub(crate) fn add(_suite: &mut Suite) {}
