//! The programs to compare with: the newest of each, built or installed here.

use super::ends;
use super::metric::Tunnel;
use crate::setup::go::{self, Module};
use crate::setup::rust::{self, Crate};
use crate::shell::Shell;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The newest wireguard-go. Its last release is older than its use of segmentation
/// offloads for UDP, so that this names a commit.
const WIREGUARD_GO: Module = Module {
    path: "golang.zx2c4.com/wireguard",
    version: "v0.0.0-20260522210424-ecfc5a8d5446",
};

const BORINGTUN: Crate = Crate {
    name: "boringtun-cli",
    version: "0.7.1",
    program: "boringtun-cli",
};

const GOTATUN: Crate = Crate {
    name: "gotatun-cli",
    version: "0.10.2",
    program: "gotatun",
};

/// The newest that can be built from the module proxy alone: 1.11.2 and 1.12.0 need modules
/// (`github.com/DefinedNet/netlink`) that it refuses to hand out.
const NEBULA: Module = Module {
    path: "github.com/slackhq/nebula/cmd/nebula",
    version: "v1.11.1",
};

/// What makes nebula's certificates.
const NEBULA_CERT: Module = Module {
    path: "github.com/slackhq/nebula/cmd/nebula-cert",
    version: NEBULA.version,
};

/// A program to compare with, and how a result names it.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    /// The program.
    pub(super) path: PathBuf,
    /// Arguments before those that all of its kind take.
    pub(super) arguments: &'static [&'static str],
    /// Its version.
    pub(super) version: String,
    /// A program that prepares what it needs.
    pub(super) companion: PathBuf,
}

/// The programs of all tunnels that are not ours.
pub(super) type Programs = BTreeMap<Tunnel, Program>;

/// Builds or finds what `tunnels` need; the caller may have chosen another wireguard-go.
///
/// # Errors
///
/// Returns an error if a program can be neither run nor built.
pub(super) fn find(
    shell: &mut Shell,
    tunnels: &[Tunnel],
    wireguard_go: Option<&str>,
) -> Result<Programs> {
    let mut programs = Programs::new();
    for &tunnel in tunnels {
        let program = match (tunnel, wireguard_go) {
            (Tunnel::Gateway | Tunnel::Fabric, _) => continue,
            (Tunnel::WireguardGo, Some(chosen)) => installed(chosen)?,
            (Tunnel::WireguardGo, None) => module(shell, &WIREGUARD_GO)?,
            // `cargo xtask setup` installs the package.
            (Tunnel::WireguardGoDebian, _) => installed("wireguard-go")?,
            (Tunnel::Boringtun, _) => Program {
                // Its usual four threads reorder packets, which halves TCP.
                arguments: &["--threads", "1", "--disable-drop-privileges"],
                ..registered(shell, &BORINGTUN)?
            },
            (Tunnel::Gotatun, _) => Program {
                arguments: &["--disable-drop-privileges"],
                ..registered(shell, &GOTATUN)?
            },
            (Tunnel::Nebula, _) => Program {
                companion: go::program(shell, &NEBULA_CERT)?,
                ..module(shell, &NEBULA)?
            },
        };
        programs.insert(tunnel, program);
    }

    Ok(programs)
}

fn installed(program: &str) -> Result<Program> {
    Ok(Program {
        path: program.into(),
        version: ends::version(program)
            .context("is it installed? `cargo xtask setup` brings Debian's")?,
        ..Program::default()
    })
}

fn module(shell: &mut Shell, module: &Module) -> Result<Program> {
    let path = go::program(shell, module)?;

    Ok(Program {
        path,
        // What they print is that of a release, or nothing.
        version: format!("{} {}", module.path, module.version),
        ..Program::default()
    })
}

fn registered(shell: &mut Shell, of: &Crate) -> Result<Program> {
    Ok(Program {
        path: rust::program(shell, of)?,
        version: format!("{} {}", of.name, of.version),
        ..Program::default()
    })
}
