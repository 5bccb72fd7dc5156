//! Passes chart and values to helm, and waits until all pods run.

use super::args::Options;
use super::{crds, rollout};
use crate::cluster::Cluster;
use crate::helm::{Chart, Helm, Pending, RELEASE, Release};
use crate::output::{self, Format};
use crate::progress::{self, begin};
use crate::wait::Deadline;
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Time for which a pending release may belong to a running helm. A release that is pending for
/// longer is recovered.
const OTHER_HELM: Duration = Duration::from_secs(10);

/// Installs or upgrades the release.
///
/// # Errors
///
/// Returns an error that names the step that failed and the cause.
pub(crate) async fn install(
    cluster: &Cluster,
    helm: &Helm,
    chart: &Chart,
    options: &Options,
    namespace: &str,
    chart_values: &Value,
    deadline: Deadline,
) -> Result<()> {
    let values = output::text(Format::Yaml, chart_values)?;
    if options.dry_run {
        let rendering = begin("", "Rendering the chart");
        let arguments = helm_arguments("template", chart, options, deadline);
        let manifest = helm.run_with_input(&arguments, &values).await?;
        rendering.done(format_args!(
            "Nothing was written (--dry-run): {} objects would be applied in namespace {namespace}",
            manifest
                .lines()
                .filter(|line| line.starts_with("kind: "))
                .count()
        ));
        return Ok(());
    }
    let installing = begin(
        "",
        "Installing or upgrading Liqo... (this may take a few minutes)",
    );
    recover(cluster, helm, namespace).await?;
    let has_crds = crds::apply(cluster, &chart.crds()?, deadline).await?;
    let mut arguments = helm_arguments("upgrade", chart, options, deadline);
    if has_crds {
        arguments.push("--skip-crds".into());
    }
    helm.run_with_input(&arguments, &values).await?;
    rollout::wait(cluster, namespace, deadline).await?;
    installing.done(
        "All Set! You can now proceed establishing a peering (liqoctl network connect --help for more information)",
    );
    progress::info("Make sure to use the same version of Liqo on all remote clusters");
    Ok(())
}

/// Recovers a release that an interrupted helm left pending, which helm refuses to change.
async fn recover(cluster: &Cluster, helm: &Helm, namespace: &str) -> Result<()> {
    let other_helm = Deadline::after(OTHER_HELM);
    loop {
        let Some(release) = Release::find(cluster, namespace).await? else {
            return Ok(());
        };
        let pending = release.pending();
        if pending == Pending::No {
            return Ok(());
        }
        if !other_helm.left().is_zero() {
            tokio::time::sleep(Duration::from_millis(500)).await;
            continue;
        }
        progress::warn(format_args!(
            "an interrupted helm left the release {RELEASE} in state {}: recovering it",
            release.status
        ));
        match pending {
            Pending::DeleteRevision => {
                let api = Api::<Secret>::namespaced(cluster.client.clone(), namespace);
                cluster
                    .delete(&api, "Helm's release", &release.secret)
                    .await?;
            }
            Pending::Uninstall => {
                helm.run(&["uninstall".into(), RELEASE.into(), "--no-hooks".into()])
                    .await?;
            }
            Pending::No => {}
        }
        return Ok(());
    }
}

/// Returns the arguments of helm. Helm reads the values from standard input, so that no temporary
/// file remains.
fn helm_arguments(
    command: &str,
    chart: &Chart,
    options: &Options,
    deadline: Deadline,
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec![command.into(), RELEASE.into(), chart.path().into()];
    if command == "upgrade" {
        let timeout = crate::parse::show_duration(deadline.left());
        arguments.extend(["--install", "--create-namespace", "--timeout"].map(Into::into));
        arguments.push(timeout.into());
    }
    arguments.extend(["--values".into(), "-".into()]);
    // Helm gives precedence to later values: those of the user.
    for file in &options.values {
        arguments.extend(["--values".into(), file.into()]);
    }
    for (flag, values) in [
        ("--set", &options.set),
        ("--set-string", &options.set_string),
    ] {
        for value in values {
            arguments.extend([flag.into(), value.into()]);
        }
    }
    arguments
}

/// Writes values as YAML.
///
/// # Errors
///
/// Returns an error if the file cannot be written.
pub(crate) fn write_values(path: &Path, values: &Value) -> Result<()> {
    let text = output::text(Format::Yaml, values)?;
    std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}
