//! The wireguard-go to compare with: the newest, not the one that Debian has.

use crate::setup::go::{self, Module};
use crate::shell::Shell;
use anyhow::{Context as _, Result};

/// Debian 12's is of 2022, before it learnt to use segmentation offloads, and several
/// times slower.
const NEWEST: Module = Module {
    path: "golang.zx2c4.com/wireguard",
    version: "v0.0.0-20260522210424-ecfc5a8d5446",
};

/// A wireguard-go, and how a result names it.
#[derive(Clone, Debug)]
pub(super) struct Yardstick {
    /// The program.
    pub(super) program: String,
    /// Its version.
    pub(super) version: String,
}

/// Returns the one that the caller has chosen, else builds the newest.
///
/// # Errors
///
/// Returns an error if it can be neither run nor built.
pub(super) fn choose(shell: &mut Shell, chosen: Option<&str>) -> Result<Yardstick> {
    if let Some(program) = chosen {
        return Ok(Yardstick {
            program: program.to_owned(),
            version: super::ends::version(program)?,
        });
    }
    let program = go::program(shell, &NEWEST)?;
    let program = program
        .to_str()
        .context("the path of wireguard-go is not UTF-8")?;

    Ok(Yardstick {
        program: program.to_owned(),
        // It prints that of a release, and there have been none for years.
        version: format!("wireguard-go {}", NEWEST.version),
    })
}
