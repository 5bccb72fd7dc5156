//! Creates Services of a peer's pods, and IP objects for pods.

use super::objects::{self, NAMESPACE};
use crate::pair::Side;
use crate::wait::{Deadline, Found};
use anyhow::Result;
use control_api::IP;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use std::net::Ipv4Addr;

/// Creates a Service of the peer's pods. Returns its address or, for a NodePort, its port.
///
/// # Errors
///
/// Returns an error if the Service has no address at the deadline.
pub(crate) async fn service(
    from: &Side,
    type_: &str,
    addresses: &[String],
    deadline: Deadline,
) -> Result<String> {
    let cluster = &from.cluster;
    let services = Api::<Service>::namespaced(cluster.client.clone(), NAMESPACE);
    let slices = Api::<EndpointSlice>::namespaced(cluster.client.clone(), NAMESPACE);
    let (service, slice) = objects::service(&from.peer, type_, addresses);
    cluster.apply(&services, service).await?;
    cluster.apply(&slices, slice).await?;
    let name = objects::service_name(&from.peer, type_);
    deadline
        .until(
            &format!("making a Service of type {type_} reachable"),
            async || {
                let read = cluster.get(&services, "Service", &name).await?;
                Ok(match read.and_then(|service| reached(&service, type_)) {
                    Some(reached) => Found::Ready(reached),
                    None => Found::Missing(format!("it has no address in {}", cluster.place())),
                })
            },
        )
        .await
}

/// Returns the address of a Service or, for a NodePort, its port.
pub(super) fn reached(service: &Service, type_: &str) -> Option<String> {
    let spec = service.spec.as_ref()?;
    match type_ {
        "LoadBalancer" => {
            let status = service.status.as_ref()?.load_balancer.as_ref()?;
            let ingress = status.ingress.as_ref()?.first()?;
            ingress.ip.clone().or_else(|| ingress.hostname.clone())
        }
        "NodePort" => Some(spec.ports.as_ref()?.first()?.node_port?.to_string()),
        _ => spec.cluster_ip.clone(),
    }
}

/// Creates an IP object for an address, and returns the address in its status.
///
/// # Errors
///
/// Returns an error if the IP object has no status at the deadline.
pub(crate) async fn external_ip(
    to: &Side,
    name: &str,
    address: Ipv4Addr,
    deadline: Deadline,
) -> Result<Ipv4Addr> {
    let cluster = &to.cluster;
    let api = Api::<IP>::namespaced(cluster.client.clone(), NAMESPACE);
    let former = cluster.get(&api, "IP", name).await?;
    if former.is_some_and(|ip| ip.spec.ip != address.to_string()) {
        // `spec.ip` is immutable.
        cluster.delete(&api, "IP", name).await?;
    }
    let mut ip: IP = cluster
        .apply(&api, objects::ip(name, &address.to_string()))
        .await?;
    deadline
        .until("remapping an external IP", async || {
            let status = ip
                .status
                .as_ref()
                .and_then(|status| status.ip.as_ref()?.parse().ok());
            if let Some(mapped) = status {
                return Ok(Found::Ready(mapped));
            }
            if let Some(read) = cluster.get(&api, "IP", name).await? {
                ip = read;
            }
            Ok(Found::Missing(format!(
                "IP {name} has no status in {}",
                cluster.place()
            )))
        })
        .await
}
