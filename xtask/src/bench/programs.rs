//! Builds or finds the programs of the tunnels that this project is compared with.

use super::ends;
use super::metric::Tunnel;
use crate::setup::go::{self, Module};
use crate::setup::rust::{self, Crate};
use crate::shell::Shell;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The newest wireguard-go. It is pinned by commit, because the last release does not use UDP
/// segmentation offload.
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

/// The newest nebula that builds from the Go module proxy. Versions 1.11.2 and 1.12.0 need the
/// module `github.com/DefinedNet/netlink`, which the proxy refuses to serve.
const NEBULA: Module = Module {
    path: "github.com/slackhq/nebula/cmd/nebula",
    version: "v1.11.1",
};

/// The program that creates nebula's certificates.
const NEBULA_CERT: Module = Module {
    path: "github.com/slackhq/nebula/cmd/nebula-cert",
    version: NEBULA.version,
};

/// A tunnel program of another project.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// Additional arguments, which only this program needs.
    pub(super) arguments: &'static [&'static str],
    /// The version as it is stored in results.
    pub(super) version: String,
    /// A helper program that creates the configuration, such as `nebula-cert`; empty if there is
    /// none.
    pub(super) companion: PathBuf,
}

/// The programs of other projects, by tunnel.
pub(super) type Programs = BTreeMap<Tunnel, Program>;

/// Builds or finds the programs of `tunnels`. `wireguard_go` names an installed program that
/// replaces the newest wireguard-go.
///
/// # Errors
///
/// Returns an error if a program is not installed and cannot be built.
pub(super) fn find(
    shell: &mut Shell,
    tunnels: &[Tunnel],
    wireguard_go: Option<&str>,
) -> Result<Programs> {
    let mut programs = Programs::new();
    for &tunnel in tunnels {
        let program = match (tunnel, wireguard_go) {
            (
                Tunnel::Gateway
                | Tunnel::Fabric
                | Tunnel::FabricDefaults
                | Tunnel::FabricEverywhere,
                _,
            ) => continue,
            (Tunnel::WireguardGo, Some(chosen)) => installed(chosen)?,
            (Tunnel::WireguardGo, None) => module(shell, &WIREGUARD_GO)?,
            // `cargo xtask setup` installs Debian's package.
            (Tunnel::WireguardGoDebian, _) => installed("wireguard-go")?,
            (Tunnel::Boringtun, _) => Program {
                // By default, boringtun uses four threads, which reorder packets and so halve the
                // throughput of TCP.
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
            .context("is it installed? `cargo xtask setup` installs Debian's package")?,
        ..Program::default()
    })
}

fn module(shell: &mut Shell, module: &Module) -> Result<Program> {
    let path = go::program(shell, module)?;

    Ok(Program {
        path,
        // The version of the module is stored. For a program that was built from a commit,
        // `--version` would print the last release or nothing.
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
