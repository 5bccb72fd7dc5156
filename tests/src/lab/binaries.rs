//! Finds the programs under test.

use std::path::{Path, PathBuf};

/// Directory below the build directory in which `cargo xtask test` builds the programs.
#[cfg(target_arch = "x86_64")]
const SHIPPED: &str = "x86_64-unknown-linux-musl/release";
#[cfg(target_arch = "aarch64")]
const SHIPPED: &str = "aarch64-unknown-linux-musl/release";

/// Paths of the programs that a laboratory runs.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// Path of the program `gateway`.
    pub gateway: PathBuf,
    /// Path of the program `route-agent`.
    pub route_agent: PathBuf,
}

impl Binaries {
    /// Returns the paths of the programs in the directory that `$LIQO_BIN_DIR` names.
    ///
    /// Without the variable, returns the paths of the static programs that this workspace builds.
    pub fn find() -> Self {
        let directory = std::env::var_os("LIQO_BIN_DIR")
            .map_or_else(|| target_dir().join(SHIPPED), PathBuf::from);

        Self {
            gateway: directory.join("gateway"),
            route_agent: directory.join("route-agent"),
        }
    }
}

/// Returns the build directory of this workspace.
pub(super) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || {
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("..")
                .join("target")
        },
        PathBuf::from,
    )
}
