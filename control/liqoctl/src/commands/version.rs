//! `liqoctl version`.

use crate::cluster::{Cluster, list_all};
use crate::failure;
use crate::global::Global;
use crate::progress;
use anyhow::Result;
use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;

/// The version of this program.
pub(crate) const CLIENT: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Label selector of the controller-manager.
const MANAGER: &str =
    "app.kubernetes.io/name=controller-manager,app.kubernetes.io/component=controller-manager";
/// Name of its container.
const CONTAINER: &str = "controller-manager";

/// Flags of `liqoctl version`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Print the version of this program only.
    #[arg(long)]
    client: bool,
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn run(global: &Global, options: &Options) -> Result<()> {
    println!("Client version: {CLIENT}");
    if options.client {
        return Ok(());
    }
    let cluster = Cluster::local(global).await?;
    let installation = cluster.installation().await?;
    let version = server(&cluster, &installation.namespace).await?;
    let version = version.unwrap_or_else(|| "unknown".to_owned());
    println!("Server version: {version}");
    if version != CLIENT {
        progress::warn("this liqoctl and the installation have different versions");
    }
    Ok(())
}

/// Returns the installation's version: the tag of the controller-manager's image.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn server(cluster: &Cluster, namespace: &str) -> Result<Option<String>> {
    Ok(manager(cluster, namespace).await?.as_ref().and_then(tag))
}

/// Returns the controller-manager's Deployment, if there is exactly one and the user may read it.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn manager(cluster: &Cluster, namespace: &str) -> Result<Option<Deployment>> {
    let api = Api::<Deployment>::namespaced(cluster.client.clone(), namespace);
    let mut found = match list_all(&api, MANAGER).await {
        // Peering users may not read it.
        Err(error) if failure::is_forbidden(&error) => Vec::new(),
        other => other.map_err(cluster.failed("list Deployments"))?,
    };
    Ok((found.len() == 1).then(|| found.remove(0)))
}

/// Returns the value of a flag of the controller-manager, written `--flag=value`.
pub(crate) fn argument(manager: &Deployment, flag: &str) -> Option<String> {
    let args = container(manager)?.args.as_ref()?;
    args.iter().find_map(|arg| {
        let value = arg.strip_prefix(flag)?.strip_prefix('=')?;
        (!value.is_empty()).then(|| value.to_owned())
    })
}

/// Returns the tag of the controller-manager's image.
pub(crate) fn tag(manager: &Deployment) -> Option<String> {
    let image = container(manager)?.image.as_ref()?;
    let (_, tag) = image.rsplit_once(':')?;
    // The registry's port is no tag.
    (!tag.contains('/')).then(|| tag.to_owned())
}

fn container(manager: &Deployment) -> Option<&k8s_openapi::api::core::v1::Container> {
    let containers = &manager.spec.template.spec.as_ref()?.containers;
    containers
        .iter()
        .find(|container| container.name == CONTAINER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager_of(image: &str) -> Deployment {
        serde_json::from_value(serde_json::json!({
            "spec": {"selector": {}, "template": {"spec": {"containers": [
                {"name": "controller-manager", "image": image, "args": [
                    "--cluster-labels=provider=Azure,region=A", "--api-server-address-override=",
                ]},
            ]}}},
        }))
        .unwrap()
    }

    #[test]
    fn the_version_is_the_tag() {
        assert_eq!(
            tag(&manager_of("ghcr.io/liqo/manager:v1.2.0")).as_deref(),
            Some("v1.2.0")
        );
        assert_eq!(tag(&manager_of("localhost:5000/manager")), None);
    }

    #[test]
    fn flags_are_read_by_name() {
        let manager = manager_of("a:b");

        assert_eq!(
            argument(&manager, "--cluster-labels").as_deref(),
            Some("provider=Azure,region=A")
        );
        assert_eq!(argument(&manager, "--api-server-address-override"), None);
        assert_eq!(argument(&manager, "--cluster"), None);
    }
}
