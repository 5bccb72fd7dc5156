//! The two clusters that all tests share.

use crate::{MILAN, ROME};
use anyhow::{Context as _, Result};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::spec::Spec;
use kubernetes_lab::suite::{self, Shared};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::{env, fs, process};

pub(crate) use kubernetes_lab::suite::{artifacts, machine};
pub(crate) use kubernetes_lab::{parallel, serial};

/// The tests of this program, which share one value of [`Clusters`].
pub(crate) type Suite = suite::Suite<Clusters>;

/// Two clusters with the same CIDRs. Tests that need a single cluster use rome.
#[derive(Debug)]
pub(crate) struct Clusters {
    pub(crate) rome: Cluster,
    pub(crate) milan: Cluster,
}

impl Clusters {
    /// Creates a namespace in rome.
    pub(crate) async fn namespace(&self, name: &str) -> Result<Namespace> {
        Namespace::create(&self.rome, name).await
    }
}

impl Shared for Clusters {
    const NAMES: &'static [&'static str] = &[ROME, MILAN];

    fn make() -> Result<Self> {
        let mut clusters = up()?.into_iter();
        let mut next = || clusters.next().context("a cluster is missing");

        Ok(Self {
            rome: next()?,
            milan: next()?,
        })
    }

    fn restore(&self) -> Result<()> {
        up().map(drop)
    }
}

fn up() -> Result<Vec<Cluster>> {
    suite::up(
        Clusters::NAMES
            .iter()
            .map(|name| Spec::new(*name))
            .collect(),
    )
}

/// Creates an empty folder for a test. The folder is removed after the test.
pub(crate) fn scratch(name: &str) -> Result<PathBuf> {
    let folder = env::temp_dir().join(format!("liqo-lab-it-{name}-{}", process::id()));
    let created = folder.clone();
    cleanup::defer(
        format!("folder {}", folder.display()),
        async move || match fs::remove_dir_all(&created) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        },
    );
    fs::create_dir_all(&folder)
        .with_context(|| format!("failed to create {}", folder.display()))?;

    Ok(folder)
}

/// Returns a command that runs the laboratory's program `cluster`.
pub(crate) fn command() -> std::process::Command {
    std::process::Command::new(env!("CARGO_BIN_EXE_cluster"))
}
