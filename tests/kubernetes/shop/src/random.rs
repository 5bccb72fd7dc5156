//! Identifiers of sessions, orders and transactions.

use std::hash::{BuildHasher as _, RandomState};

/// Returns 32 random hexadecimal digits. The standard library seeds each `RandomState` with random
/// keys, which is sufficient for a demo.
pub(crate) fn id() -> String {
    let part = || RandomState::new().hash_one("");

    format!("{:016x}{:016x}", part(), part())
}
