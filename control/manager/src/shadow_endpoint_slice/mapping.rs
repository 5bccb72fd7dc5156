//! Addresses of a peer, as this cluster reaches them.

use control_api::Configuration;
use control_api::networking::configuration::{ClusterConfig, NETWORK_CIDRS_CONFIGURED};
use ipam::Remap;
use k8s_openapi::api::core::v1::HostAlias;
use std::net::Ipv4Addr;

/// A name of the API server of the consumer, in the pods that it offloads.
const API_SERVER: &str = "kubernetes.default";

/// Translates the addresses of a peer from its own CIDRs to those to which this cluster remaps them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pods: Vec<Remap>,
    externals: Vec<Remap>,
}

/// Why the addresses of a peer have no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotMapped {
    /// No Configuration has the CIDRs of the peer, or they are not allocated.
    #[error("no Configuration of the peer has the condition NetworkCIDRsConfigured")]
    Missing,
    /// The Configuration has changed, and its condition is not updated yet.
    #[error("the Configuration of the peer has changed, and its CIDRs are being allocated")]
    Pending,
}

impl Mapping {
    /// Reads the CIDRs of a Configuration.
    ///
    /// # Errors
    ///
    /// Returns [`NotMapped`] unless the status has the CIDRs of the current generation.
    pub(crate) fn of(configuration: &Configuration) -> Result<Self, NotMapped> {
        let status = configuration.status.as_ref().ok_or(NotMapped::Missing)?;
        let mut conditions = status.conditions.iter();
        let condition = conditions.find(|it| it.type_ == NETWORK_CIDRS_CONFIGURED);
        let condition = condition.filter(|it| it.status == "True");
        let condition = condition.ok_or(NotMapped::Missing)?;
        if condition.observed_generation != configuration.metadata.generation {
            return Err(NotMapped::Pending);
        }
        let cidrs = |config: Option<&ClusterConfig>| config.cloned().unwrap_or_default().cidr;
        let from = cidrs(configuration.spec.remote.as_ref());
        let to = cidrs(status.remote.as_ref());

        Ok(Self {
            pods: remaps(&from.pod, &to.pod)?,
            externals: remaps(&from.external, &to.external)?,
        })
    }

    /// Translates the address of a pod, or an address that an IP object of the peer has; `None` for others.
    pub(crate) fn map(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        let mut remaps = self.pods.iter().chain(&self.externals);
        remaps.find_map(|remap| remap.apply(address))
    }

    /// Translates the address of a pod; `None` for others.
    pub(crate) fn map_pod(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        self.pods.iter().find_map(|remap| remap.apply(address))
    }

    /// Returns whether the `hostAliases` of a pod contain an address of the consumer's API server.
    pub(crate) fn concerns(aliases: &[HostAlias]) -> bool {
        aliases.iter().any(|alias| of_api_server(alias).is_some())
    }

    /// Translates the address of the consumer's API server in the `hostAliases` of a pod. Other aliases are unchanged.
    pub(crate) fn host_aliases(&self, aliases: &[HostAlias]) -> Vec<HostAlias> {
        let mapped = |alias: &HostAlias| {
            let ip = of_api_server(alias).and_then(|address| self.map(address));
            HostAlias {
                ip: ip.map_or_else(|| alias.ip.clone(), |ip| ip.to_string()),
                hostnames: alias.hostnames.clone(),
            }
        };

        aliases.iter().map(mapped).collect()
    }
}

/// Returns the address of an alias of the consumer's API server; `None` for other aliases.
fn of_api_server(alias: &HostAlias) -> Option<Ipv4Addr> {
    let mut names = alias.hostnames.iter().flatten();
    let is_api_server = names.any(|name| name == API_SERVER);

    alias.ip.parse().ok().filter(|_| is_api_server)
}

/// Pairs the CIDRs of a peer with those to which they are remapped, which have the same index.
fn remaps(from: &[String], to: &[String]) -> Result<Vec<Remap>, NotMapped> {
    if from.len() != to.len() {
        return Err(NotMapped::Missing);
    }
    let remap = |(from, to): (&String, &String)| {
        let from = control_fabric::cidr(from).ok()?;
        let to = control_fabric::cidr(to).ok()?;
        Remap::new(from, to).ok()
    };
    let remaps: Option<_> = from.iter().zip(to).map(remap).collect();

    remaps.ok_or(NotMapped::Missing)
}
