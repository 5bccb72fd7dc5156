//! Where the laboratory keeps things.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Built once, used by every checkout and every cluster of the machine.
const CACHE: &str = "/var/cache/liqo-lab";

/// All that `down` removes.
const STATE: &str = "/var/lib/liqo-lab";

/// Where the programs and images of one Kubernetes version are.
pub const ARTIFACTS_VARIABLE: &str = "LIQO_LAB_ARTIFACTS";

/// The program whose hidden commands run nodes, if it is not this one.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// The folder of what is built; `LIQO_LAB_CACHE` changes it.
pub fn cache() -> PathBuf {
    from_environment("LIQO_LAB_CACHE", CACHE)
}

/// The folder of everything that belongs to clusters; `LIQO_LAB_STATE` changes it.
pub fn state() -> PathBuf {
    from_environment("LIQO_LAB_STATE", STATE)
}

/// The folder of all clusters.
pub fn clusters() -> PathBuf {
    state().join("clusters")
}

/// Has `program` run the nodes that this process starts: a test is no such program
/// itself. Only the first call counts.
pub fn use_program(program: impl Into<PathBuf>) {
    let _ = PROGRAM.set(program.into());
}

/// The program whose hidden commands run a node: that of [`use_program`], or this one.
///
/// # Errors
///
/// Returns an error if the process cannot tell its own program.
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
    /// Those in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Kubernetes, containerd, etcd, helm and so on.
    pub fn programs(&self) -> PathBuf {
        self.0.join("bin")
    }

    /// One of those programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs().join(name)
    }

    /// The CNI plugins.
    pub fn plugins(&self) -> PathBuf {
        self.0.join("cni")
    }

    /// The images of every node, as archives.
    pub fn images(&self) -> PathBuf {
        self.0.join("images")
    }

    /// The version of each program, as in `v1.35.4`.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder is not complete.
    pub fn versions(&self) -> Result<BTreeMap<String, String>> {
        let path = self.0.join("versions.json");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    /// A containerd's folder that holds these images already, to be copied.
    pub fn seed(&self) -> PathBuf {
        self.0.join("seed")
    }
}
