//! `liqoctl uninstall`: checks that no peering is left, removes the release and, with `--purge`, the
//! objects that Helm keeps. It sends no request to remote clusters.

mod leftovers;
mod purge;

use crate::cluster::Cluster;
use crate::global::Global;
use crate::helm::{Helm, RELEASE, Release};
use crate::namespaces::is_of_kubernetes;
use crate::progress::{self, begin};
use crate::prompt;
use crate::wait::Deadline;
use anyhow::{Result, bail};
use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, ResourceExt as _};
use std::time::Duration;

/// Default limit of the command, which is more than the sum of the limits of its steps.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Time that helm waits for the deletion of the release's objects.
const HELM_TIMEOUT: Duration = Duration::from_secs(20);

/// Annotation with which helm names the release of an object.
const RELEASE_NAME: &str = "meta.helm.sh/release-name";

/// Flags of `liqoctl uninstall`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Also remove the CRDs, the tenant namespaces and Liqo's namespace.
    #[arg(long)]
    purge: bool,

    /// Uninstall even if there are peers. Their connections are lost.
    #[arg(long)]
    force: bool,
}

impl Options {
    /// Returns whether the command deletes Liqo's namespace, and with it the programs in it. One of Kubernetes is kept.
    fn deletes(&self, namespace: &str) -> bool {
        self.purge && !is_of_kubernetes(namespace)
    }
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error that names the remaining objects, and the command that removes them.
pub(crate) async fn run(global: &Global, options: Options) -> Result<()> {
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let cluster = Cluster::with_liqo(global).await?;
    let installation = cluster.find_installation().await?;
    let is_found = installation.is_some();
    let namespace = installation.map_or_else(
        || cluster.expected_namespace().to_owned(),
        |installation| installation.namespace,
    );
    if !global.skip_confirm {
        let removed = if options.purge {
            "Liqo, its CRDs and its namespaces"
        } else {
            "Liqo"
        };
        let place = cluster.place();
        prompt::confirm(&format!("This removes {removed} from {place}. Continue?")).await?;
    }

    let checking = begin("", "Running pre-uninstall checks");
    let found = leftovers::find(&cluster, &namespace).await?;
    if found.is_empty() {
        checking.done("Pre-uninstall checks passed");
    } else if options.force {
        drop(checking);
        progress::warn(format_args!(
            "these checks failed and are ignored (--force):{found}"
        ));
    } else {
        bail!("Pre-uninstall checks failed: you should:{found}\n(--force ignores these checks)");
    }

    // A failure must be the first of all changes: without its policies, Liqo must not run on.
    let helm = find_helm(global, &options, &cluster, &namespace).await?;
    if options.purge {
        purge::mark(&cluster, &namespace, is_found || helm.is_some()).await?;
    }
    let uninstalling = begin("", "Uninstalling Liqo");
    // The policies must not refuse requests on behalf of programs that are removed.
    purge::remove_policies(&cluster).await?;
    if let Some(helm) = helm {
        let timeout = crate::parse::show_duration(deadline.within(HELM_TIMEOUT).left());
        let arguments = ["uninstall", RELEASE, "--wait", "--timeout", &timeout];
        let result = helm.run(&arguments.map(Into::into)).await;
        if let Err(error) = result {
            // The purge deletes the rest together with the namespace.
            if !options.deletes(&namespace) {
                return Err(error);
            }
            progress::warn(format_args!("{error:#}; the purge continues"));
        }
        uninstalling.done("Liqo uninstalled");
    } else {
        uninstalling.done("Liqo already uninstalled");
    }
    purge::remove_tenant_bindings(&cluster).await?;
    if options.purge {
        purge::run(&cluster, &namespace, deadline).await?;
    }
    Ok(())
}

/// Returns the program that removes the release, or none if there is no release.
///
/// # Errors
///
/// Returns an error if there is no helm, or if the command would leave programs of Liqo running.
async fn find_helm(
    global: &Global,
    options: &Options,
    cluster: &Cluster,
    namespace: &str,
) -> Result<Option<Helm>> {
    match Release::find(cluster, namespace).await? {
        Some(_) => Helm::find(global, namespace).map(Some),
        None if options.deletes(namespace) => Ok(None),
        None => {
            refuse_other_tools(cluster, namespace).await?;
            Ok(None)
        }
    }
}

/// Checks that nothing of Liqo runs that another tool than this one has installed.
///
/// # Errors
///
/// Returns an error that names the tool that removes it.
async fn refuse_other_tools(cluster: &Cluster, namespace: &str) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(cluster.client.clone(), namespace);
    let running = cluster
        .list(&deployments, "Deployments", purge::SELECTOR)
        .await?;
    let Some(first) = running.first() else {
        return Ok(());
    };
    let release = first.annotations().get(RELEASE_NAME);
    let tool = release.map_or_else(
        || "the tool that applied its manifests, such as Argo CD, Flux or kubectl".to_owned(),
        |name| format!("`helm uninstall {name} --namespace {namespace}`"),
    );
    let purge = if is_of_kubernetes(namespace) {
        ""
    } else {
        ", or with `liqoctl uninstall --purge`, which deletes the namespace"
    };
    bail!(
        "Liqo runs in namespace {namespace}, but is no release `{RELEASE}` of helm: remove it with {tool}{purge}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_apiserver::{ApiServer, Front, Reply};
    use serde_json::json;

    #[tokio::test]
    async fn an_installation_of_another_release_is_refused_with_its_name() {
        let server = ApiServer::start();
        let front = Front::start(&server, |_| Reply::Forward);
        let cluster = Cluster::behind(&front, "local");
        refuse_other_tools(&cluster, "liqo").await.unwrap();

        let path = "/apis/apps/v1/namespaces/liqo/deployments/liqo-controller-manager";
        for (annotations, remedy) in [
            (
                json!({RELEASE_NAME: "my-liqo"}),
                "`helm uninstall my-liqo --namespace liqo`",
            ),
            (json!({}), "Argo CD"),
        ] {
            let labels = json!({"app.kubernetes.io/part-of": "liqo"});
            let metadata = json!({"name": "liqo-controller-manager", "namespace": "liqo", "labels": labels, "annotations": annotations});
            server.put(path, json!({"metadata": metadata}));
            let error = refuse_other_tools(&cluster, "liqo").await.unwrap_err();
            assert!(error.to_string().contains(remedy), "{error}");
            assert!(error.to_string().contains("--purge"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_purge_leaves_no_liqo_running_in_a_namespace_of_kubernetes() {
        let global = Global::default();
        let purge = Options {
            purge: true,
            force: false,
        };
        let server = ApiServer::start();
        let front = Front::start(&server, |_| Reply::Forward);
        let cluster = Cluster::behind(&front, "local");
        for (namespace, is_kept) in [("default", true), ("kube-system", true), ("liqo", false)] {
            // A failure of helm ends the command in the namespaces that are kept.
            assert_eq!(purge.deletes(namespace), !is_kept, "{namespace}");
            let found = find_helm(&global, &purge, &cluster, namespace).await;
            assert!(found.unwrap().is_none(), "{namespace}");

            let labels = json!({"app.kubernetes.io/part-of": "liqo"});
            server.put(
                &format!("/apis/apps/v1/namespaces/{namespace}/deployments/liqo-controller-manager"),
                json!({"metadata": {"name": "liqo-controller-manager", "namespace": namespace, "labels": labels}}),
            );
            let found = find_helm(&global, &purge, &cluster, namespace).await;
            let error = found.err().map(|error| error.to_string());

            assert_eq!(error.is_some(), is_kept, "{namespace}: {error:?}");
            if let Some(error) = error {
                assert!(error.contains("remove it with the tool"), "{error}");
                assert!(!error.contains("--purge"), "{error}");
            }
        }
    }
}
