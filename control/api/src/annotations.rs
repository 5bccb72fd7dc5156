//! Keys of Liqo's annotations.

/// On an object that the installation created, not a user. Value: `true`.
pub const PREINSTALLED: &str = "liqo.io/preinstalled";
