//! EndpointSlices and IP objects by which a provider reaches endpoints outside of its own cluster.

use crate::fixture::SOON;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use std::net::Ipv4Addr;

/// The label of EndpointSlices that the provider has created for the consumer.
const MANAGED_BY: &str = "liqo.io/managed-by=shadowendpointslice";

/// Returns the label selector of the reflected EndpointSlices of a Service at the provider.
pub(super) fn selector(service: &str) -> String {
    format!("kubernetes.io/service-name={service},{MANAGED_BY}")
}

/// Waits until the reflected EndpointSlices of a Service at the provider have these endpoints, and all of them are ready.
pub(super) async fn until_endpoints_are(
    remote: &Namespace,
    service: &str,
    expected: &[Ipv4Addr],
) -> Result<()> {
    let what = format!("{expected:?} as ready endpoints of {service} in {remote:?}");
    let expected = expected.iter().map(|it| format!("{it}=true "));
    let expected: String = expected.collect();
    until(Deadline::after(SOON), &what, async || {
        let path =
            "jsonpath={range .items[*].endpoints[*]}{.addresses[0]}={.conditions.ready} {end}";
        let selector = selector(service);
        let words = ["get", "endpointslices", "-l", &selector, "-o", path];
        let endpoints = remote.kubectl(&words).await?;
        ensure!(endpoints == expected, "the endpoints are {endpoints:?}");
        Ok(())
    })
    .await
}

/// Returns the name of the IP object that the manager creates for the address of an endpoint.
pub(super) fn ip_of(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("endpoint-{a}-{b}-{c}-{d}")
}

/// Waits for the IP object of an address in a namespace of the consumer. Returns the address of the external CIDR.
pub(super) async fn mapped(home: &Namespace, address: Ipv4Addr) -> Result<Ipv4Addr> {
    let name = format!("ip/{}", ip_of(address));
    let what = format!("the status of {name} in {home:?}");
    until(Deadline::after(SOON), &what, async || {
        let original = home.get(&name, "{.spec.ip}").await?;
        ensure!(original == address.to_string(), "spec.ip is {original}");
        let mapped = home.get(&name, "{.status.ip}").await?;
        mapped.parse().context("status.ip is no address")
    })
    .await
}
