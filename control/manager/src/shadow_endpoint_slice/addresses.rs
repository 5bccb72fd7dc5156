//! Decides which addresses of a consumer's slice become endpoints, and as which addresses this cluster reaches them.

use super::direct::Direct;
use super::mapping::{Mapping, NotMapped};
use super::objects::{Health, Local};
use control_runtime::Destinations;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Why an address is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("no IPv4 address")]
    Invalid,
    #[error("loopback, link-local, multicast or reserved")]
    Unroutable,
    #[error("a metadata service")]
    Metadata,
    #[error("a node of this cluster")]
    Node,
    #[error("in the Service or internal CIDR of this cluster")]
    Internal,
    #[error(
        "neither in the CIDRs of the consumer nor in spec.endpointCIDRs of its TenantPolicy, where an administrator may \
         add it"
    )]
    Outside,
    #[error("the consumer's CIDRs are not allocated")]
    NotConfigured,
    #[error("in no pod CIDR of the cluster that has it")]
    OutsideDirect,
    #[error(
        "this cluster's network is not connected with the cluster that has it: connect the two, or remove the annotation \
         liqo.io/use-direct-connections from the Service"
    )]
    NotConnected,
    #[error("networking.denyDirectConnections of this cluster is true")]
    Denied,
}

/// An address that becomes an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) address: Ipv4Addr,
    /// Whether the network of the other provider that has it is connected; `None` if the consumer has it.
    pub(super) is_connected: Option<bool>,
}

/// The addresses that a slice may have.
pub(crate) struct Addresses<'a> {
    local: &'a Local<'a>,
    direct: &'a Direct,
    internal: Vec<Ipv4Net>,
    allowed: Vec<Ipv4Net>,
    /// Translation of the consumer's addresses; `None` without networking.
    consumer: Option<Result<Mapping, NotMapped>>,
    /// Translations of the addresses of other providers, and whether their networks are connected.
    providers: BTreeMap<&'a str, Provider>,
}

/// Translation of the addresses of another provider, and whether its network is connected.
type Provider = Result<(Mapping, bool), Refusal>;

impl<'a> Addresses<'a> {
    /// Collects the addresses that a slice of a consumer may have.
    ///
    /// # Errors
    ///
    /// Returns [`NotMapped::Pending`] while CIDRs are being allocated.
    pub(crate) fn new(
        local: &'a Local<'a>,
        (peer, health): (&str, Health),
        direct: &'a Direct,
    ) -> Result<Self, NotMapped> {
        let consumer = health.is_networked.then(|| local.peers.mapping(peer));
        if let Some(Err(NotMapped::Pending)) = consumer {
            return Err(NotMapped::Pending);
        }
        let mut providers = BTreeMap::new();
        for cluster in direct.clusters() {
            // The consumer itself is no other provider.
            if cluster != peer && !providers.contains_key(cluster) {
                providers.insert(cluster, provider(local, cluster)?);
            }
        }

        Ok(Self {
            internal: local.internal(),
            allowed: local.allowed(peer),
            local,
            direct,
            consumer,
            providers,
        })
    }

    /// Returns whether the consumer's CIDRs are missing although networking is enabled.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.consumer, Some(Err(_)))
    }

    /// Returns the address by which this cluster reaches an address.
    ///
    /// # Errors
    ///
    /// Returns [`Refusal`] if the address is not allowed.
    pub(super) fn resolve(&self, text: &str) -> Result<Resolved, Refusal> {
        let address: Ipv4Addr = text.parse().map_err(|_| Refusal::Invalid)?;
        check(address)?;
        let provider = self.direct.cluster(address);
        let resolved = match provider.and_then(|it| self.providers.get(it)) {
            Some(Err(refusal)) => return Err(*refusal),
            Some(Ok((mapping, is_connected))) => Resolved {
                address: mapping.map_pod(address).ok_or(Refusal::OutsideDirect)?,
                is_connected: Some(*is_connected),
            },
            None => Resolved {
                address: self.of_consumer(address)?,
                is_connected: None,
            },
        };
        let address = resolved.address;
        check(address)?;
        if self.local.is_node(address) {
            return Err(Refusal::Node);
        }
        if self.internal.iter().any(|cidr| cidr.contains(&address)) {
            return Err(Refusal::Internal);
        }

        Ok(resolved)
    }

    fn of_consumer(&self, address: Ipv4Addr) -> Result<Ipv4Addr, Refusal> {
        let mapping = self.consumer.as_ref();
        let mapped = mapping.and_then(|mapping| mapping.as_ref().ok()?.map(address));
        let is_allowed = || self.allowed.iter().any(|cidr| cidr.contains(&address));

        match mapped {
            Some(mapped) => Ok(mapped),
            None if is_allowed() => Ok(address),
            None if self.is_waiting() => Err(Refusal::NotConfigured),
            None => Err(Refusal::Outside),
        }
    }
}

/// Returns the translation of another provider's addresses.
///
/// # Errors
///
/// Returns [`NotMapped::Pending`] while CIDRs are being allocated.
fn provider(local: &Local<'_>, cluster: &str) -> Result<Provider, NotMapped> {
    if local.settings.deny_direct_connections {
        return Ok(Err(Refusal::Denied));
    }
    let health = local.health(cluster).filter(|health| health.is_networked);
    let Some(health) = health else {
        return Ok(Err(Refusal::NotConnected));
    };

    match local.peers.mapping(cluster) {
        Ok(mapping) => Ok(Ok((mapping, health.is_connected))),
        Err(NotMapped::Missing) => Ok(Err(Refusal::NotConnected)),
        Err(NotMapped::Pending) => Err(NotMapped::Pending),
    }
}

/// Checks that packets to an address leave this host, and do not reach the credentials of its cloud.
fn check(address: Ipv4Addr) -> Result<(), Refusal> {
    if !control_fabric::is_routable(address) {
        Err(Refusal::Unroutable)
    } else if !Destinations::Remote.permits(address.into()) {
        Err(Refusal::Metadata)
    } else {
        Ok(())
    }
}
