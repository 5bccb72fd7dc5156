//! Tests that the chart suits GitOps tools, which render and apply it repeatedly. A second
//! rendering and a second `kubectl apply` must change nothing. An upgrade and a roll-back must keep
//! the peering.

use crate::fixture::{
    INSTALL, LIQO, Peering, Suite, chart, liqoctl_command, serial, until_connections_are,
};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::Cluster;
use std::path::PathBuf;
use std::process::Command;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        liqoctl_without_path_makes_a_release_that_helm_upgrades,
        an_upgrade_takes_effect_and_a_roll_back_undoes_it,
        rendered_manifests_can_be_applied_repeatedly,
    );
}

/// The flag that limits the time for which Helm waits for ready pods.
const TIMEOUT: &str = "--timeout=2m";

/// Without a path, `liqoctl install` uses the embedded chart and the bundled helm. The command runs
/// without PATH and HOME.
async fn liqoctl_without_path_makes_a_release_that_helm_upgrades(
    peering: &'static Peering,
) -> Result<()> {
    let release = Release::of(&peering.rome)?;
    let number = |revision: String| revision.parse::<u32>().context("a revision");
    let before = number(release.revision()?)?;

    let folder = release.file("empty");
    std::fs::create_dir(&folder)?;
    let mut install = liqoctl_command(&peering.rome)?;
    let pods = format!("--pod-cidr={}", peering.rome.spec.pod_cidr);
    install.args(["install", &pods]).args(INSTALL);
    install.current_dir(&folder);
    run(install, "liqoctl install")?;

    let left = std::fs::read_dir(&folder)?.count();
    ensure!(left == 0, "the installation left {left} files");
    let listed = release.helm(&["list", "--output", "json"])?;
    let listed: serde_json::Value = serde_json::from_str(&listed)?;
    ensure!(listed[0]["name"] == LIQO, "{listed:#}");
    ensure!(listed[0]["status"] == "deployed", "{listed:#}");
    ensure!(number(release.revision()?)? == before + 1, "{listed:#}");
    let upgrade = ["upgrade", LIQO, &chart()?, "--reuse-values", "--wait"];
    release.helm(&[upgrade.as_slice(), &[TIMEOUT]].concat())?;
    ensure!(number(release.revision()?)? == before + 2, "not upgraded");
    until_connections_are(peering, "Connected").await
}

async fn an_upgrade_takes_effect_and_a_roll_back_undoes_it(
    peering: &'static Peering,
) -> Result<()> {
    let release = Release::of(&peering.rome)?;
    let before = Identity::of(&peering.rome)?;
    let revision = release.revision()?;

    let set = "networking.gatewayTemplates.pod.labels.chart-test=upgraded";
    release.upgrade(&["--set", set])?;
    let upgraded = release.gateways_labelled()?;
    let during = Identity::of(&peering.rome)?;
    release.helm(&["rollback", LIQO, &revision, "--wait", TIMEOUT])?;

    ensure!(upgraded == "upgraded", "{upgraded}");
    ensure!(during == before, "{during:#?} instead of {before:#?}");
    ensure!(release.gateways_labelled()?.is_empty(), "rolled back");
    let after = Identity::of(&peering.rome)?;
    ensure!(after == before, "{after:#?} instead of {before:#?}");
    until_connections_are(peering, "Connected").await
}

async fn rendered_manifests_can_be_applied_repeatedly(peering: &'static Peering) -> Result<()> {
    let release = Release::of(&peering.rome)?;
    let before = Identity::of(&peering.rome)?;
    let objects = release.file("objects.yaml");
    let rendered = release.render()?;
    ensure!(
        rendered == release.render()?,
        "the second rendering differs"
    );
    std::fs::write(&objects, rendered)?;
    let apply = ["apply", "-n", LIQO, "-f", &objects.to_string_lossy()];

    kubectl(&peering.rome, &apply)?;
    let generations = release.generations()?;
    let again = kubectl(&peering.rome, &apply)?;

    // `kubectl` reports a PodDisruptionBudget as changed, because `kubectl` always replaces the
    // selector as a whole.
    let changed = again.lines().filter(|it| !it.ends_with("unchanged"));
    let changed: Vec<_> = changed
        .filter(|it| !it.starts_with("poddisruptionbudget"))
        .collect();
    ensure!(
        again.lines().count() > 10 && changed.is_empty(),
        "{changed:#?}"
    );
    ensure!(release.generations()? == generations, "workloads changed");
    ensure!(
        Identity::of(&peering.rome)? == before,
        "the identity changed"
    );
    until_connections_are(peering, "Connected").await
}

/// A cluster's Helm release, and a folder with the values of its installation.
struct Release<'a> {
    cluster: &'a Cluster,
    folder: PathBuf,
}

impl<'a> Release<'a> {
    fn of(cluster: &'a Cluster) -> Result<Self> {
        let name = format!("liqo-chart-{}-{}", cluster.name(), std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder)?;
        let release = Self { cluster, folder };
        let values = release.helm(&["get", "values", LIQO, "-o", "yaml"])?;
        std::fs::write(release.file("values.yaml"), values)?;

        Ok(release)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn values(&self) -> String {
        format!("--values={}", self.file("values.yaml").display())
    }

    fn upgrade(&self, flags: &[&str]) -> Result<String> {
        let (chart, values) = (chart()?, self.values());
        let words = ["upgrade", LIQO, &chart, &values, "--wait", TIMEOUT];
        self.helm(&[words.as_slice(), flags].concat())
    }

    fn render(&self) -> Result<String> {
        let (chart, values) = (chart()?, self.values());
        self.helm(&["template", LIQO, &chart, &values, "--dry-run=server"])
    }

    fn revision(&self) -> Result<String> {
        let status = self.helm(&["status", LIQO])?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("REVISION: "));
        line.map(str::to_owned).context("no revision")
    }

    /// Returns the value of the label that the upgrade adds to gateway pods.
    fn gateways_labelled(&self) -> Result<String> {
        let path = "jsonpath={.spec.template.metadata.labels.chart-test}";
        let words = ["get", "deployment/liqo-gateway", "-n", LIQO, "-o", path];
        kubectl(self.cluster, &words)
    }

    /// Returns the generation of each Deployment and DaemonSet. A changed spec increments the
    /// generation.
    fn generations(&self) -> Result<String> {
        let path =
            "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation}\n{end}";
        let words = ["get", "deployments,daemonsets", "-n", LIQO, "-o", path];
        kubectl(self.cluster, &words)
    }

    fn helm(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(self.cluster.artifacts().program("helm"));
        command
            .args(words)
            .args(["--namespace", LIQO])
            .env("KUBECONFIG", self.cluster.kubeconfig());
        run(command, &format!("helm {}", words.join(" ")))
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("failed to remove {}: {error}", self.folder.display());
        }
    }
}

/// The data of a cluster that an upgrade must keep: cluster id, public keys and remapped CIDRs.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    id: String,
    keys: String,
    remapped: String,
}

impl Identity {
    fn of(cluster: &Cluster) -> Result<Self> {
        let there = if cluster.name() == ROME { MILAN } else { ROME };
        let tenant = format!("liqo-tenant-{there}");
        let id = "jsonpath={.data.CLUSTER_ID}";
        let key = "jsonpath={.items[*].data.publicKey}";
        let remapped = "jsonpath={.items[*].status.remote.cidr}";

        Ok(Self {
            id: kubectl(
                cluster,
                &[
                    "get",
                    "configmap/liqo-clusterid-configmap",
                    "-n",
                    LIQO,
                    "-o",
                    id,
                ],
            )?,
            keys: kubectl(cluster, &["get", "secrets", "-n", &tenant, "-o", key])?,
            remapped: kubectl(
                cluster,
                &["get", "configurations", "-n", &tenant, "-o", remapped],
            )?,
        })
    }
}

fn kubectl(cluster: &Cluster, words: &[&str]) -> Result<String> {
    let mut command = cluster.kubectl();
    command.args(words);
    run(command, &format!("kubectl {}", words.join(" ")))
}

fn run(mut command: Command, what: &str) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("failed to start {what}"))?;
    ensure!(
        output.status.success(),
        "{what}: {}",
        String::from_utf8_lossy(&output.stderr)
    );

    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
