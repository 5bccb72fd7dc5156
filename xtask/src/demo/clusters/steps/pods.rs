//! The client and server pods, and the addresses under which the other cluster reaches them.

use crate::demo::clusters::tools::Tools;
use crate::shell::Shell;
use anyhow::{Context as _, Result};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

pub(super) struct Pod {
    pub(super) name: String,
    pub(super) address: Ipv4Addr,
}

/// Returns the web server's pod with the lowest address. The lowest addresses of both clusters are
/// usually equal.
pub(super) fn pod(shell: &mut Shell, tools: &Tools, cluster: &str) -> Result<Pod> {
    let path = "jsonpath={range .items[*]}{.status.podIP} {.metadata.name}{\"\\n\"}{end}";
    let words = ["get", "pods", "-l", "app=web", "-o", path];
    let listing = tools.kubectl(shell, cluster, &words)?;
    let pods = listing.lines().filter_map(|line| line.split_once(' '));
    let pods = pods.map(|(address, name)| {
        let address = address.parse().context("a pod's address")?;
        let name = name.to_owned();
        Ok(Pod { name, address })
    });
    let pods = pods.collect::<Result<Vec<_>>>()?;

    pods.into_iter()
        .min_by_key(|pod| pod.address)
        .context("there is no pod")
}

/// Returns the remapped address under which the cluster `here` reaches a pod of the cluster
/// `there`.
pub(super) fn seen(
    shell: &mut Shell,
    tools: &Tools,
    here: &str,
    there: &str,
    address: Ipv4Addr,
) -> Result<Ipv4Addr> {
    let tenant = format!("liqo-tenant-{there}");
    let path = "jsonpath={.status.remote.cidr.pod[0]}";
    let words = ["-n", &tenant, "get", "configuration", there, "-o", path];
    let network = tools.kubectl(shell, here, &words)?;
    let network: Ipv4Net = network
        .parse()
        .context("the remapped network of the pods")?;

    Ok(remap(network, address))
}

/// Replaces the network part of an address, and keeps the host part.
fn remap(network: Ipv4Net, address: Ipv4Addr) -> Ipv4Addr {
    let host = u32::from(address) & u32::from(network.hostmask());

    Ipv4Addr::from(u32::from(network.network()) | host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remapping_keeps_the_host_part() {
        let network = "10.0.0.0/16".parse().unwrap();

        let seen = remap(network, Ipv4Addr::new(10, 244, 1, 5));

        assert_eq!(seen, Ipv4Addr::new(10, 0, 1, 5));
    }
}
