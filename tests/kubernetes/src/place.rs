//! Folders of the laboratory.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The default of [`cache`]: programs and images, shared by all checkouts and clusters.
const CACHE: &str = "/var/cache/liqo-lab";

/// The default of [`state`].
const STATE: &str = "/var/lib/liqo-lab";

/// The variable with the folder of programs and images of one Kubernetes version.
pub const ARTIFACTS_VARIABLE: &str = "LIQO_LAB_ARTIFACTS";

/// The program that runs nodes, if it is not this one.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// The folder of programs and images; `LIQO_LAB_CACHE` overrides it.
pub fn cache() -> PathBuf {
    from_environment("LIQO_LAB_CACHE", CACHE)
}

/// The folder of all state of clusters, which `down` removes; `LIQO_LAB_STATE` overrides it.
pub fn state() -> PathBuf {
    from_environment("LIQO_LAB_STATE", STATE)
}

/// The folder of all clusters.
pub fn clusters() -> PathBuf {
    state().join("clusters")
}

/// Sets the program that runs nodes, for tests, which have no commands for it. Only the first call
/// has an effect.
pub fn use_program(program: impl Into<PathBuf>) {
    let _ = PROGRAM.set(program.into());
}

/// The program that runs nodes: that of [`use_program`], or this one.
///
/// # Errors
///
/// Returns an error if the path of this program is unknown.
pub fn program() -> Result<PathBuf> {
    match PROGRAM.get() {
        Some(program) => Ok(program.clone()),
        None => env::current_exe().context("failed to find this program's own file"),
    }
}

fn from_environment(variable: &str, default: &str) -> PathBuf {
    env::var_os(variable).map_or_else(|| default.into(), PathBuf::from)
}

/// The programs and images of one Kubernetes version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifacts(PathBuf);

impl Artifacts {
    /// Uses the programs and images in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// The folder of this version.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The folder of programs: Kubernetes, containerd, etcd, helm and others.
    pub fn programs(&self) -> PathBuf {
        self.0.join("bin")
    }

    /// The path of a program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs().join(name)
    }

    /// The folder of CNI plugins.
    pub fn plugins(&self) -> PathBuf {
        self.0.join("cni")
    }

    /// The folder of image archives for nodes.
    pub fn images(&self) -> PathBuf {
        self.0.join("images")
    }

    /// The version of each program, such as `v1.35.4`.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder is incomplete.
    pub fn versions(&self) -> Result<BTreeMap<String, String>> {
        let path = self.0.join("versions.json");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    /// A folder of containerd that contains these images, to be linked into nodes.
    pub fn seed(&self) -> PathBuf {
        self.0.join("seed")
    }
}
