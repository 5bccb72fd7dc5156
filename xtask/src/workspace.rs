//! Where things are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The top of the checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate is a folder of the workspace")
}

/// Where cargo builds; respects `CARGO_TARGET_DIR`, as cargo does.
pub(crate) fn target() -> PathBuf {
    let from_environment = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);

    root().join(from_environment.unwrap_or_else(|| "target".into()))
}

/// Where the binaries of the processes are, as they are in the images.
pub(crate) fn binaries() -> PathBuf {
    let target = format!("{}-unknown-linux-musl", env::consts::ARCH);

    self::target().join(target).join("release")
}

/// A call of the cargo that runs this crate, at the top of the checkout.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    // Set by the outer `cargo run` for this crate; they would make the build
    // scripts of others believe that they were rebuilt for it.
    for (name, _) in env::vars_os() {
        let name_ = name.to_string_lossy();
        if name_.starts_with("CARGO_PKG_") || name_.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}
