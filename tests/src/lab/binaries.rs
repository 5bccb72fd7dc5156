//! The paths of the programs under test.

use std::path::{Path, PathBuf};

/// The directory in which `cargo xtask test` builds them.
#[cfg(target_arch = "x86_64")]
const SHIPPED: &str = "x86_64-unknown-linux-musl/release";
#[cfg(target_arch = "aarch64")]
const SHIPPED: &str = "aarch64-unknown-linux-musl/release";

/// The programs that a laboratory runs.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// The program `gateway`.
    pub gateway: PathBuf,
    /// The program `route-agent`.
    pub route_agent: PathBuf,
}

impl Binaries {
    /// The programs in the directory `LIQO_BIN_DIR`, else those that this workspace
    /// builds for images.
    pub fn find() -> Self {
        let directory = std::env::var_os("LIQO_BIN_DIR")
            .map_or_else(|| target_dir().join(SHIPPED), PathBuf::from);

        Self {
            gateway: directory.join("gateway"),
            route_agent: directory.join("route-agent"),
        }
    }
}

/// The build directory of this workspace.
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
