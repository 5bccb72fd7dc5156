//! Clusters whose gateways upstream's controllers create: templates, Services and pods.

use super::gateway::Gateway;
use crate::cluster::Cluster;
use crate::failure;
use crate::kinds::gateway::{SERVER_TEMPLATES, Template};
use crate::kinds::gateway_server::ServiceEndpoint;
use crate::progress::begin;
use crate::state::State;
use crate::steps::{Lines, Step, lines};
use anyhow::{Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};

/// Returns whether a cluster has upstream's templates. An installation of this project has none: one
/// gateway serves all peers, so there is no pod per peer to wait for.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn has_templates(cluster: &Cluster) -> Result<bool> {
    let api = Api::<DynamicObject>::all_with(cluster.client.clone(), &resource(SERVER_TEMPLATES));
    match api.list(&ListParams::default().limit(1)).await {
        // This project's chart also has the kind, but no object.
        Ok(found) => Ok(!found.items.is_empty()),
        Err(error) if failure::is_not_found(&error) => Ok(false),
        // Forbidden: assume that there are no templates.
        Err(error) if failure::is_forbidden(&error) => Ok(false),
        Err(error) => Err(cluster.failed("list gateway templates")(error)),
    }
}

/// Checks that a template exists.
///
/// # Errors
///
/// Returns an error with the remedy if it does not exist.
pub(crate) async fn check_template(
    cluster: &Cluster,
    role: &str,
    template: &Template,
) -> Result<()> {
    let full = format!("\"{}/{}\"", template.name, template.namespace);
    let checking = begin(
        cluster.side,
        format_args!("Checking gateway {role} template {full}"),
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
            "there is no gateway {role} template {full} in {}: name one with --gw-{role}-template-name and --gw-{role}-template-namespace",
            cluster.place()
        );
    }
    checking.done(format_args!(
        "Gateway {role} template {full} correctly checked"
    ));
    Ok(())
}

/// Returns whether upstream's Service of a server differs from the desired one.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn service_differs(
    gateway: &Gateway<'_>,
    server: &str,
    desired: &ServiceEndpoint,
) -> Result<bool> {
    let cluster = &gateway.side.cluster;
    let api = Api::<Service>::namespaced(cluster.client.clone(), gateway.namespace);
    let name = format!("gw-{server}");
    let service = cluster.get(&api, "Service", &name).await?;
    Ok(service.is_some_and(|service| differs(&service, desired)))
}

/// Waits until upstream's pod of a gateway is ready.
pub(crate) struct GatewayPod<'a> {
    /// The gateway.
    pub(crate) gateway: Gateway<'a>,
    /// Name of the GatewayServer or GatewayClient.
    pub(crate) name: &'a str,
}

impl Step for GatewayPod<'_> {
    type Desired = ();
    type Output = ();

    fn lines(&self) -> Lines {
        let name = self.name;
        Lines {
            scope: self.gateway.side.cluster.side,
            apply: None,
            wait: lines(
                &format!("Waiting for gateway pod gw-{name} to be ready"),
                &format!("Gateway pod gw-{name} is ready"),
            ),
            goal: "starting the gateway",
        }
    }

    async fn observe(&self, (): &()) -> Result<State<()>> {
        let cluster = &self.gateway.side.cluster;
        let name = format!("gw-{}", self.name);
        let api = Api::<Deployment>::namespaced(cluster.client.clone(), self.gateway.namespace);
        let read = cluster.get(&api, "Deployment", &name).await?;
        let ready = read.and_then(|deployment| deployment.status?.ready_replicas);
        Ok(match ready.unwrap_or_default() {
            0 => State::Waiting(format!(
                "Deployment {name} in {} has no ready replica",
                cluster.place()
            )),
            _ => State::Ready(()),
        })
    }
}

/// Returns whether a Service has another type, port or address than desired.
fn differs(service: &Service, desired: &ServiceEndpoint) -> bool {
    let Some(spec) = &service.spec else {
        return false;
    };
    let port = spec.ports.as_ref().and_then(|ports| ports.first());
    spec.type_.as_deref() != Some(desired.service_type.name())
        || port.is_some_and(|port| port.port != desired.port)
        || (desired.node_port.is_some()
            && port.and_then(|port| port.node_port) != desired.node_port)
        || (desired.load_balancer_ip.is_some() && spec.load_balancer_ip != desired.load_balancer_ip)
}

/// Returns the resource of `group/version/plural`.
fn resource(text: &str) -> ApiResource {
    let mut parts = text.split('/');
    let mut next = || parts.next().unwrap_or_default();
    let (group, version, plural) = (next(), next(), next());
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, ""), plural)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::gateway::ServiceType;
    use serde_json::{from_value, json};

    #[test]
    fn a_service_differs_only_in_desired_fields() {
        let service: Service = from_value(json!({"spec": {
            "type": "NodePort",
            "ports": [{"port": 51840, "nodePort": 31110, "protocol": "UDP"}],
        }}))
        .unwrap();
        let desired = |node_port| ServiceEndpoint {
            service_type: ServiceType::NodePort,
            port: 51840,
            node_port,
            load_balancer_ip: None,
        };

        assert!(!differs(&service, &desired(None)));
        assert!(!differs(&service, &desired(Some(31110))));
        assert!(differs(&service, &desired(Some(31111))));
    }
}
