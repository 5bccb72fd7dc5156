//! `liqoctl install`: checks the cluster, computes the values of the chart and runs Helm.

mod args;
mod checks;
mod cloud;
mod cni;
mod crds;
mod detect;
mod handover;
mod observe;
mod parameters;
mod patches;
mod rollout;
mod values;

pub(crate) use args::Options;
pub(crate) use observe::facts;

use crate::cluster::{Cluster, Installation};
use crate::global::Global;
use crate::helm::{Chart, Helm};
use crate::namespaces::is_of_kubernetes;
use crate::progress::{self, begin};
use crate::wait::Deadline;
use anyhow::{Result, bail};
use parameters::Parameters;
use std::time::Duration;

/// Default limit of an installation.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Runs the command.
///
/// # Errors
///
/// Returns an error that names the failed step, the cause and the remedy.
pub(crate) async fn run(global: &Global, options: Options) -> Result<()> {
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    cloud::refuse_credentials(options.provider.as_ref())?;
    let initializing = begin("", "Initializing installer");
    let cluster = Cluster::with_liqo(global).await?;
    let version = cluster
        .client
        .apiserver_version()
        .await
        .map_err(cluster.failed("reach the API server"))?;
    let installed = cluster.find_installation().await?;
    let namespace = namespace(&cluster, installed.as_ref())?;
    let (helm, chart) = match options.only_output_values {
        true => (None, None),
        false => (
            Some(Helm::find(global, &namespace)?),
            Some(Chart::open(options.local_chart_path.as_deref())?),
        ),
    };
    initializing.done("Installer initialized");

    let retrieving = begin("", "Retrieving cluster configuration");
    let observed = observe::observe(&cluster, &options).await?;
    let parameters = Parameters::decide(&options, &observed, &cluster.url, installed.as_ref())?;
    retrieving.done("Cluster configuration correctly retrieved");
    for note in &parameters.notes {
        progress::info(note);
    }

    if !options.skip_validation {
        let checking = begin("", "Checking the cluster");
        let rights = match &helm {
            Some(_) => checks::missing_rights(&cluster, &namespace).await?,
            None => Vec::new(),
        };
        let installed_version = installed_version(&cluster, installed.as_ref()).await?;
        let facts = checks::Facts {
            kubernetes: &version.git_version,
            missing_rights: &rights,
            observed: &observed,
            parameters: &parameters,
            kernel_is_checked: !options.disable_kernel_version_check,
            installed_version: installed_version.as_deref(),
            version: options.version.as_deref(),
        };
        checks::report(&checks::run(&facts), global.verbose)?;
        checking.done("The cluster meets the requirements");
    }

    let generating = begin("", "Generating installation parameters");
    let values = values::build(global, &options, &parameters);
    generating.done("Installation parameters correctly generated");
    let (Some(helm), Some(chart)) = (helm, chart) else {
        return write_values(&options, &values);
    };
    // Before the first change, so that the answer no leaves everything as it is.
    let confirmed = patches::confirm(global, &options, &cluster).await?;
    handover::install(
        &cluster, &helm, &chart, &options, &namespace, &values, deadline,
    )
    .await?;
    patches::apply(&cluster, &confirmed).await
}

/// Returns the namespace of the installation, or that of a new one.
///
/// # Errors
///
/// Returns an error if a new installation would be in a namespace of Kubernetes: the controller manager has rights to all
/// Secrets, Deployments and ServiceAccounts of its namespace.
fn namespace(cluster: &Cluster, installed: Option<&Installation>) -> Result<String> {
    if let Some(installed) = installed {
        return Ok(installed.namespace.clone());
    }
    let namespace = cluster.expected_namespace();
    if is_of_kubernetes(namespace) {
        bail!(
            "namespace {namespace} belongs to Kubernetes, and Liqo's controllers would have rights to the objects of others in it: \
             choose another one with --namespace (default: liqo)"
        );
    }
    Ok(namespace.to_owned())
}

fn write_values(options: &Options, values: &serde_json::Value) -> Result<()> {
    let writing = begin(
        "",
        "Generating values.yaml file with the Liqo chart parameters for your cluster",
    );
    let path = &options.dump_values_path;
    handover::write_values(path, values)?;
    writing.done(format_args!(
        "All Set! Chart values written to \"{}\"",
        path.display()
    ));
    Ok(())
}

async fn installed_version(
    cluster: &Cluster,
    installed: Option<&Installation>,
) -> Result<Option<String>> {
    match installed {
        Some(installed) => crate::manager::version(cluster, &installed.namespace).await,
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_apiserver::{ApiServer, Front, Reply};

    #[tokio::test]
    async fn a_new_installation_in_a_namespace_of_kubernetes_is_refused() {
        let server = ApiServer::start();
        let front = Front::start(&server, |_| Reply::Forward);
        let mut cluster = Cluster::behind(&front, "local");
        assert_eq!(namespace(&cluster, None).unwrap(), "liqo");

        for name in ["default", "kube-system"] {
            cluster = cluster.with_liqo_namespace(name);
            let error = namespace(&cluster, None).unwrap_err().to_string();
            assert!(
                error.contains(name) && error.contains("--namespace"),
                "{error}"
            );

            // An installation from before can be upgraded.
            let installed = Installation {
                cluster_id: "rome".to_owned(),
                namespace: name.to_owned(),
            };
            assert_eq!(namespace(&cluster, Some(&installed)).unwrap(), name);
        }
    }
}
