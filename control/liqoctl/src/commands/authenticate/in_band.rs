//! In-band authentication: the provider's API server is reached through the tunnel, by a proxy whose address the
//! consumer's Configuration may remap.

use crate::objects;
use crate::pair::{Pair, Side};
use anyhow::{Context as _, Result, anyhow, bail};
use control_api::IP;
use control_api::networking::configuration::{ClusterCidrs, Configuration};
use ipnet::Ipv4Net;
use kube::{Api, ResourceExt as _};
use std::net::Ipv4Addr;

/// Name of the IP with the address of the proxy, in the namespace of Liqo.
const PROXY: &str = "api-server-proxy";

/// Port of the proxy.
const PORT: u16 = 8118;

/// Returns the URL of the provider's proxy for the consumer.
///
/// # Errors
///
/// Returns an error with the remedy if the clusters are not connected, or if the provider has no proxy.
pub(super) async fn proxy_url(pair: &Pair, namespace: &str) -> Result<String> {
    let (address, configuration) = tokio::try_join!(address(pair), configuration(pair, namespace))?;
    let mapped = map(&configuration, address).map_err(|reason| {
        anyhow!(
            "{reason} (Configuration {} in {})",
            configuration.name_any(),
            pair.local.cluster.place()
        )
    })?;
    Ok(format!("http://{mapped}:{PORT}"))
}

/// Returns whether the consumer reaches a proxy through the tunnel: at a remapped address of the provider.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn is_through_tunnel(
    consumer: &Side,
    namespace: &str,
    proxy_url: &str,
) -> Result<bool> {
    let (cluster, peer) = (&consumer.cluster, &consumer.peer);
    let found: Option<Configuration> = objects::find(cluster, namespace, peer).await?;

    Ok(found.is_some_and(|configuration| is_remapped(&configuration, proxy_url)))
}

fn is_remapped(configuration: &Configuration, proxy_url: &str) -> bool {
    let host = proxy_url.strip_prefix("http://").unwrap_or(proxy_url);
    let host = host.split([':', '/']).next().unwrap_or_default();
    let Ok(address) = host.parse::<Ipv4Addr>() else {
        return false;
    };
    let status = configuration.status.as_ref();
    let remote = status.and_then(|status| status.remote.as_ref());
    let cidrs = remote.into_iter().flat_map(|remote| &remote.cidr.external);

    cidrs
        .filter_map(|cidr| cidr.parse::<Ipv4Net>().ok())
        .any(|cidr| cidr.contains(&address))
}

/// Returns the address of the proxy in the provider's external CIDR.
async fn address(pair: &Pair) -> Result<Ipv4Addr> {
    let (cluster, liqo) = (&pair.remote.cluster, &pair.remote.liqo.namespace);
    let api = Api::<IP>::namespaced(cluster.client.clone(), liqo);
    // Upstream's peering users may get an IP, and not list them.
    let ip = cluster.get(&api, "IP", PROXY).await?;
    let place = cluster.place();
    let Some(ip) = ip else {
        bail!(
            "there is no IP {PROXY} in namespace {liqo} of {place}: in-band peering needs the chart's value proxy.enabled at the provider"
        );
    };
    let address = ip.status.and_then(|status| status.ip);
    let address = address.with_context(|| {
        format!("IP {PROXY} in {place} has no address yet: is networking enabled there?")
    })?;
    let parsed = address.parse();
    parsed.with_context(|| format!("IP {PROXY} in {place} has no IPv4 address: {address}"))
}

async fn configuration(pair: &Pair, namespace: &str) -> Result<Configuration> {
    let (cluster, peer) = (&pair.local.cluster, &pair.local.peer);
    let found: Option<Configuration> = objects::find(cluster, namespace, peer).await?;
    found.with_context(|| {
        format!(
            "the networks of the clusters are not connected: run `liqoctl network connect` first (there is no Configuration of {peer} in {})",
            cluster.place()
        )
    })
}

/// Returns the address as the consumer reaches it: remapped as its CIDR, if a CIDR contains it.
fn map(configuration: &Configuration, address: Ipv4Addr) -> Result<Ipv4Addr, String> {
    let spec = configuration.spec.remote.as_ref();
    let status = configuration
        .status
        .as_ref()
        .and_then(|status| status.remote.as_ref());
    let (Some(spec), Some(status)) = (spec, status) else {
        return Err("the CIDRs of the provider are not mapped yet".to_owned());
    };
    let lists = |cidrs: &ClusterCidrs| [cidrs.pod.clone(), cidrs.external.clone()];
    for (original, mapped) in lists(&spec.cidr).into_iter().zip(lists(&status.cidr)) {
        for (index, from) in original.iter().enumerate() {
            let Ok(from) = from.parse::<Ipv4Net>() else {
                continue;
            };
            if from.contains(&address) {
                let to = mapped.get(index).and_then(|to| to.parse::<Ipv4Net>().ok());
                let to = to.ok_or_else(|| format!("the CIDR {from} is not mapped yet"))?;
                return Ok(remap(from, to, address));
            }
        }
    }
    Ok(address)
}

/// Replaces the network part of an address.
fn remap(from: Ipv4Net, to: Ipv4Net, address: Ipv4Addr) -> Ipv4Addr {
    let host = u32::from(address) & u32::from(from.hostmask());
    Ipv4Addr::from(u32::from(to.network()) | host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn configuration(status: &Value) -> Configuration {
        from_value(json!({
            "apiVersion": "networking.liqo.io/v1beta1", "kind": "Configuration",
            "metadata": {"name": "milan"},
            "spec": {"remote": {"cidr": {"pod": ["10.244.0.0/16"], "external": ["10.70.0.0/16"]}}},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn the_address_is_remapped_with_its_cidr() {
        let mapped = |external: &str| {
            configuration(&json!({"remote": {"cidr": {
                "pod": ["10.244.0.0/16"], "external": [external],
            }}}))
        };
        let address = Ipv4Addr::new(10, 70, 0, 2);

        assert_eq!(
            map(&mapped("10.71.0.0/16"), address),
            Ok(Ipv4Addr::new(10, 71, 0, 2))
        );
        assert_eq!(map(&mapped("10.70.0.0/16"), address), Ok(address));
        let other = Ipv4Addr::new(192, 0, 2, 1);
        assert_eq!(map(&mapped("10.71.0.0/16"), other), Ok(other));
    }

    #[test]
    fn a_proxy_in_the_remapped_external_cidr_is_behind_the_tunnel() {
        let configuration = configuration(&json!({"remote": {"cidr": {
            "pod": ["10.0.0.0/16"], "external": ["10.71.0.0/16"],
        }}}));

        assert!(is_remapped(&configuration, "http://10.71.0.2:8118"));
        for other in ["http://10.70.0.2:8118", "https://proxy.example.com", ""] {
            assert!(!is_remapped(&configuration, other), "{other}");
        }
    }

    #[test]
    fn an_address_is_not_used_before_it_is_mapped() {
        let address = Ipv4Addr::new(10, 70, 0, 2);
        let pending = json!({"remote": {"cidr": {"pod": ["10.244.0.0/16"], "external": [""]}}});

        assert!(map(&configuration(&json!({})), address).is_err());
        assert!(map(&configuration(&pending), address).is_err());
    }
}
