//! The release of Liqo under test: `liqoctl`, images and chart.

use crate::cluster::Cluster;
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{env, fs};

/// Environment variables that `cargo xtask` sets to the paths of its artifacts.
const LIQOCTL: &str = "LIQO_LAB_LIQOCTL";
const IMAGES: &str = "LIQO_LAB_IMAGES";
const CHART: &str = "LIQO_LAB_CHART";

/// Flags of `liqoctl install` for all of the laboratory's clusters, which also need `--pod-cidr`.
pub const INSTALL: [&str; 2] = ["--set=tag=dev", "--set=pullPolicy=IfNotPresent"];

/// The paths of a release.
#[derive(Clone, Debug)]
pub struct Release {
    liqoctl: PathBuf,
    images: PathBuf,
    chart: PathBuf,
}

impl Release {
    /// Returns the release that `cargo xtask` has built.
    ///
    /// # Errors
    ///
    /// Returns an error that names the missing environment variable.
    pub fn from_environment() -> Result<Self> {
        Ok(Self {
            liqoctl: variable(LIQOCTL)?,
            images: variable(IMAGES)?,
            chart: variable(CHART)?,
        })
    }

    /// Returns the folder of the chart.
    pub fn chart(&self) -> &Path {
        &self.chart
    }

    /// Returns a `liqoctl` command for a cluster's administrator. The environment contains
    /// KUBECONFIG, but neither PATH nor HOME.
    pub fn command(&self, cluster: &Cluster) -> Command {
        let mut command = Command::new(&self.liqoctl);
        command.env_clear().env("KUBECONFIG", cluster.kubeconfig());
        command
    }

    /// Runs `liqoctl` as the administrator of a cluster, and returns its standard output.
    ///
    /// # Errors
    ///
    /// Returns an error with the output of `liqoctl` if it fails.
    pub fn liqoctl(&self, cluster: &Cluster, words: &[&str]) -> Result<String> {
        let mut command = self.command(cluster);
        command.args(words);
        let output = command.output().context("failed to start liqoctl")?;
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "`liqoctl {}` failed ({}):\n{out}{}",
            words.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );

        Ok(out)
    }

    /// Loads Liqo's images into all nodes of a cluster.
    ///
    /// # Errors
    ///
    /// Returns an error that names the image that a node refused.
    pub fn load_images(&self, cluster: &Cluster) -> Result<()> {
        let entries = fs::read_dir(&self.images)
            .with_context(|| format!("failed to read {}", self.images.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("liqo-") && name.ends_with(".tar") {
                cluster.load(&path)?;
            }
        }

        Ok(())
    }

    /// Installs Liqo, or upgrades an existing installation, with further flags.
    ///
    /// # Errors
    ///
    /// Returns an error with the output of `liqoctl` if it fails.
    pub fn install(&self, cluster: &Cluster, flags: &[&str]) -> Result<()> {
        let start = Instant::now();
        let chart = format!("--local-chart-path={}", self.chart.display());
        let id = format!("--cluster-id={}", cluster.name());
        let pods = format!("--pod-cidr={}", cluster.spec.pod_cidr);
        self.liqoctl(
            cluster,
            &[&["install", &id, &pods, &chart], &INSTALL[..], flags].concat(),
        )?;
        eprintln!(
            "{}: installed ({:.1} s)",
            cluster.name(),
            start.elapsed().as_secs_f64()
        );

        Ok(())
    }
}

fn variable(name: &str) -> Result<PathBuf> {
    env::var_os(name)
        .map(PathBuf::from)
        .with_context(|| format!("{name} is not set: run this by `cargo xtask`"))
}
