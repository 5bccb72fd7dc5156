//! Keys of annotations, as Liqo's.

/// Of an object that the installation made, not a user: `true`.
pub const PREINSTALLED: &str = "liqo.io/preinstalled";
