//! The two clusters that all tests share.

use crate::{MILAN, ROME};
use anyhow::{Context as _, Result};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::spec::Spec;
use kubernetes_lab::suite::{self, Shared};

pub(crate) use kubernetes_lab::suite::{artifacts, machine};
pub(crate) use kubernetes_lab::{calm, rough};

/// All tests of this program.
pub(crate) type Suite = suite::Suite<Clusters>;

/// Two clusters with the same networks.
#[derive(Debug)]
pub(crate) struct Clusters {
    pub(crate) rome: Cluster,
    pub(crate) milan: Cluster,
}

impl Clusters {
    /// A namespace in the first of them.
    pub(crate) async fn namespace(&self, name: &str) -> Result<Namespace> {
        Namespace::create(&self.rome, name).await
    }
}

impl Shared for Clusters {
    const NAMES: &'static [&'static str] = &[ROME, MILAN];

    fn make() -> Result<Self> {
        let specs = Self::NAMES.iter().map(|name| Spec::new(*name)).collect();
        let mut clusters = suite::up(specs)?.into_iter();
        let mut next = || clusters.next().context("a cluster is missing");

        Ok(Self {
            rome: next()?,
            milan: next()?,
        })
    }
}

/// A call of the laboratory's command.
pub(crate) fn command() -> std::process::Command {
    std::process::Command::new(env!("CARGO_BIN_EXE_cluster"))
}
