//! The CIDRs and addresses in the specs and statuses of Networks and IPs.

use super::Local;
use crate::network::kind::{Key, NODE_IP_PREFIX};
use control_api::{IP, Network, labels};
use std::net::Ipv4Addr;

impl Local<'_> {
    /// Returns whether a Network is Liqo's or a peer's. A user's Network must not take the CIDR of such a Network.
    pub(crate) fn is_trusted(&self, key: &Key, network: &Network) -> bool {
        let labels = network.metadata.labels.as_ref();
        let is_of_peer =
            labels.is_some_and(|labels| labels.contains_key(labels::CONFIGURATION_CIDR_TYPE));

        key.namespace == self.namespace || is_of_peer && self.is_tenant(&key.namespace)
    }

    /// Returns the Network from which the address of an IP is allocated.
    pub(crate) fn network_of(&self, ip: &IP) -> Option<Key> {
        let reference = ip.spec.network_ref.as_ref();
        let named = reference.and_then(|reference| {
            let name = reference.name.as_ref().filter(|name| !name.is_empty())?;
            let namespace = reference.namespace.as_ref();
            let namespace = namespace.filter(|namespace| !namespace.is_empty());
            let namespace = namespace.or(ip.metadata.namespace.as_ref())?;
            Some(Key::new(namespace.clone(), name.clone()))
        });

        named.or_else(|| self.cluster().external.clone())
    }

    /// Returns whether an IP belongs to a node, by namespace and name.
    pub(crate) fn is_of_node(&self, ip: &Key) -> bool {
        let node = ip.name.strip_prefix(NODE_IP_PREFIX).map(Key::cluster);

        ip.namespace == self.namespace && node.is_some_and(|node| self.nodes.get(&node).is_some())
    }
}

/// Returns the address in the status of an IP; `None` if it is invalid.
pub(crate) fn address(ip: &IP) -> Option<Ipv4Addr> {
    let text = ip.status.as_ref()?.ip.as_deref()?;
    control_fabric::address(text).ok()
}
