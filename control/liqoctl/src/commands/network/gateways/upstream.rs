//! What differs where upstream's controllers make the gateways: templates and Deployments.

use super::Gateway;
use crate::cluster::Cluster;
use crate::failure;
use crate::kinds::gateway::{SERVER_TEMPLATES, Template};
use crate::kinds::gateway_server::ServiceEndpoint;
use crate::progress::begin;
use crate::wait::{Deadline, Found};
use anyhow::{Result, bail};
use control_api::GatewayServer;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};

/// Returns whether a cluster has upstream's templates. Ours has none unless it was asked for
/// them: its gateway serves all peers, so that there is no pod per peer to wait for.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn has_templates(cluster: &Cluster) -> Result<bool> {
    let api = Api::<DynamicObject>::all_with(cluster.client.clone(), &resource(SERVER_TEMPLATES));
    match api.list(&ListParams::default().limit(1)).await {
        // The kind alone is also ours.
        Ok(found) => Ok(!found.items.is_empty()),
        Err(error) if failure::is_not_found(&error) => Ok(false),
        // Somebody without that right is none whom we know more about.
        Err(error) if failure::is_forbidden(&error) => Ok(false),
        Err(error) => Err(cluster.failed("look for gateway templates")(error)),
    }
}

/// Checks that a template is there.
///
/// # Errors
///
/// Returns an error with its cure if it is not.
pub(crate) async fn check_template(
    cluster: &Cluster,
    word: &str,
    template: &Template,
) -> Result<()> {
    let full = format!("\"{}/{}\"", template.name, template.namespace);
    let checking = begin(
        cluster.side,
        format_args!("Checking gateway {word} template {full}"),
    );
    let resource = resource(&template.resource);
    let api = Api::<DynamicObject>::namespaced_with(
        cluster.client.clone(),
        &template.namespace,
        &resource,
    );
    if cluster
        .get(&api, "template", &template.name)
        .await?
        .is_none()
    {
        bail!(
            "there is no gateway {word} template {full} in {}: name one by --gw-{word}-template-name and --gw-{word}-template-namespace",
            cluster.place()
        );
    }
    checking.done(format_args!(
        "Gateway {word} template {full} correctly checked"
    ));
    Ok(())
}

/// Deletes a GatewayServer whose Service differs from what is wanted: upstream's does not
/// change it.
///
/// # Errors
///
/// Returns an error if it does not go.
pub(crate) async fn delete_if_changed(
    gateway: &Gateway<'_>,
    name: &str,
    wanted: &ServiceEndpoint,
    deadline: Deadline,
) -> Result<()> {
    let cluster = &gateway.side.cluster;
    let services = Api::<Service>::namespaced(cluster.client.clone(), gateway.namespace);
    let service = cluster
        .get(&services, "Service", &format!("gw-{name}"))
        .await?;
    if !service.is_some_and(|service| differs(&service, wanted)) {
        return Ok(());
    }
    let api = gateway.api::<GatewayServer>();
    cluster.delete(&api, "GatewayServer", name).await?;
    deadline
        .until("deleting the former gateway server", async || {
            Ok(match api.get_metadata_opt(name).await {
                Ok(None) => Found::Ready(()),
                Ok(Some(_)) => Found::Missing(format!("GatewayServer {name} is still there")),
                Err(error) => return Err(cluster.failed("read GatewayServer")(error)),
            })
        })
        .await
}

/// Waits until upstream's pod of a gateway is ready.
///
/// # Errors
///
/// Returns an error if it is not in time.
pub(crate) async fn pod_ready(gateway: &Gateway<'_>, name: &str, deadline: Deadline) -> Result<()> {
    let cluster = &gateway.side.cluster;
    let deployment = format!("gw-{name}");
    let waiting = begin(
        cluster.side,
        format_args!("Waiting for gateway pod {deployment} to be ready"),
    );
    let api = Api::<Deployment>::namespaced(cluster.client.clone(), gateway.namespace);
    deadline
        .until("starting the gateway", async || {
            let read = cluster.get(&api, "Deployment", &deployment).await?;
            let ready = read
                .and_then(|deployment| deployment.status?.ready_replicas)
                .unwrap_or_default();
            Ok(if ready > 0 {
                Found::Ready(())
            } else {
                Found::Missing(format!(
                    "Deployment {deployment} in {} has no ready replica",
                    cluster.place()
                ))
            })
        })
        .await?;
    waiting.done(format_args!("Gateway pod {deployment} is ready"));
    Ok(())
}

/// Returns whether a Service is of another type, port or address than wanted.
pub(crate) fn differs(service: &Service, wanted: &ServiceEndpoint) -> bool {
    let Some(spec) = &service.spec else {
        return false;
    };
    let port = spec.ports.as_ref().and_then(|ports| ports.first());
    spec.type_.as_deref() != Some(wanted.service_type.name())
        || port.is_some_and(|port| port.port != wanted.port)
        || (wanted.node_port.is_some() && port.and_then(|port| port.node_port) != wanted.node_port)
        || (wanted.load_balancer_ip.is_some() && spec.load_balancer_ip != wanted.load_balancer_ip)
}

/// Returns how the API serves `group/version/plural`.
fn resource(text: &str) -> ApiResource {
    let mut parts = text.split('/');
    let mut next = || parts.next().unwrap_or_default();
    let (group, version, plural) = (next(), next(), next());
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, ""), plural)
}
