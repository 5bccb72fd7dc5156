//! The values through which the outcome of one entity depends on another entity.

use crate::objects::Object;
use crate::resolve::LastGood;
use control_api::labels;
use control_api::{Configuration, GatewayClient, IP, Network};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::net::Ipv4Addr;

/// A value that entities are compared by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    NodeName(String),
    NodeAddress(Ipv4Addr),
    IpName(String),
    /// Namespace and name.
    Network(String, String),
    /// `status.ip` of an IP.
    StatusAddress(Ipv4Addr),
    /// `spec.ip` of an IP.
    SpecAddress(Ipv4Addr),
    Wireguard(Vec<u8>),
}

/// A kind of prefixes that must not overlap, or that contain addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Remapped CIDRs of peers, CIDRs of Networks, and addresses of the underlay.
    Claimed,
    /// Pod CIDRs of nodes.
    NodePods,
}

/// Keys and prefixes that an entity provides, and those on which its own outcome depends.
///
/// An entity depends on another one if it reads a key that the other provides, or a prefix that overlaps a provided
/// prefix of the same class. Additional facts do not change the result, but increase the cost.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) provided: Values,
    pub(super) read: Values,
}

#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) keys: Vec<Key>,
    pub(super) prefixes: Vec<(Class, Ipv4Net)>,
}

impl Facts {
    /// Returns the facts of the objects of one entity.
    pub(super) fn of<'a>(objects: impl Iterator<Item = &'a Object>, last_good: &LastGood) -> Self {
        let mut facts = Self::default();
        for object in objects {
            match object {
                Object::Node(node) => facts.add_node(node),
                Object::EndpointSlice(slice) => facts.add_slice(slice),
                Object::Network(network) => facts.add_network(object, network),
                Object::IP(ip) => facts.add_ip(ip),
                Object::Configuration(configuration) => {
                    facts.add_configuration(configuration);
                    let name = crate::resolve::name(configuration);
                    if let Some(Object::Configuration(known)) = last_good.get(&name).map(|it| &**it)
                    {
                        facts.add_configuration(known);
                    }
                }
                Object::GatewayClient(client) => facts.add_client(client),
                Object::PublicKey(key) => {
                    let bytes = key.spec.public_key.iter().map(|key| key.0.clone());
                    facts.share_keys(bytes.map(Key::Wireguard));
                }
                Object::ConfigMap(_) | Object::GatewayServer(_) | Object::Connection(_) => {}
            }
        }
        for values in [&mut facts.provided, &mut facts.read] {
            values.keys.sort();
            values.keys.dedup();
            values.prefixes.sort();
            values.prefixes.dedup();
        }

        facts
    }

    fn add_node(&mut self, node: &Node) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let ip_name = crate::spec::node_ip_name(&name);
        self.read.keys.push(Key::IpName(ip_name));
        self.provided.keys.push(Key::NodeName(name));
        let addresses = node.status.iter().flat_map(|status| &status.addresses);
        let addresses = addresses.flatten();
        let addresses = addresses.filter_map(|address| address.address.parse().ok());
        let addresses: Vec<Ipv4Addr> = addresses.collect();
        self.share_keys(addresses.iter().copied().map(Key::NodeAddress));
        self.claim_addresses(addresses);
        let spec = node.spec.iter();
        let cidrs = spec.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
        self.share_prefixes(Class::NodePods, cidrs);
    }

    fn add_slice(&mut self, slice: &EndpointSlice) {
        for endpoint in slice.endpoints.iter().flatten() {
            let node = endpoint.node_name.iter().cloned();
            self.read.keys.extend(node.map(Key::NodeName));
            let addresses = endpoint.addresses.iter();
            self.claim_addresses(addresses.filter_map(|address| address.parse().ok()));
        }
    }

    fn add_network(&mut self, object: &Object, network: &Network) {
        let metadata = &network.metadata;
        self.provided.keys.push(Key::Network(
            metadata.namespace.clone().unwrap_or_default(),
            metadata.name.clone().unwrap_or_default(),
        ));
        let status = network.status.iter().filter_map(|it| it.cidr.as_ref());
        // A remapped Network claims only the CIDR of its status.
        let is_fixed = object.label_value(labels::NETWORK_NOT_REMAPPED) == Some("true");
        let spec = Some(&network.spec.cidr).filter(|_| is_fixed);
        self.share_prefixes(Class::Claimed, status.chain(spec));
    }

    fn add_ip(&mut self, ip: &IP) {
        let name = ip.metadata.name.clone().unwrap_or_default();
        if let Some(node) = name.strip_prefix(crate::spec::NODE_PREFIX) {
            self.read.keys.push(Key::NodeName(node.to_owned()));
            self.share_keys([Key::IpName(name)]);
        }
        if let Some(reference) = &ip.spec.network_ref
            && let Some(name) = &reference.name
        {
            let namespace = reference.namespace.clone().unwrap_or_default();
            let network = Key::Network(namespace, name.clone());
            self.read.keys.push(network);
        }
        let status = ip.status.iter().filter_map(|status| status.ip.as_ref());
        let status = status.filter_map(|text| text.parse().ok());
        self.share_keys(status.map(Key::StatusAddress));
        if let Ok(address) = ip.spec.ip.parse::<Ipv4Addr>() {
            self.share_keys([Key::SpecAddress(address)]);
            let prefixes = [Class::Claimed, Class::NodePods].map(|class| (class, address.into()));
            self.read.prefixes.extend(prefixes);
        }
    }

    fn add_configuration(&mut self, configuration: &Configuration) {
        let status = configuration.status.iter();
        let remote = status.filter_map(|status| status.remote.as_ref());
        let cidrs = remote.flat_map(|remote| remote.cidr.pod.iter().chain(&remote.cidr.external));
        self.share_prefixes(Class::Claimed, cidrs);
    }

    fn add_client(&mut self, client: &GatewayClient) {
        let addresses = client.spec.endpoint.iter().flat_map(|it| &it.addresses);
        self.claim_addresses(addresses.filter_map(|address| address.parse().ok()));
    }

    /// Adds keys that only one entity may have.
    fn share_keys(&mut self, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            self.provided.keys.push(key.clone());
            self.read.keys.push(key);
        }
    }

    /// Adds prefixes that must not overlap those of other entities.
    fn share_prefixes<'a>(&mut self, class: Class, texts: impl Iterator<Item = &'a String>) {
        for cidr in texts.filter_map(|text| text.parse::<Ipv4Net>().ok()) {
            self.provided.prefixes.push((class, cidr.trunc()));
            self.read.prefixes.push((class, cidr.trunc()));
        }
    }

    /// Adds addresses that the CIDR of no other entity may contain. The other entity is refused then.
    fn claim_addresses(&mut self, addresses: impl IntoIterator<Item = Ipv4Addr>) {
        let addresses = addresses.into_iter();
        let prefixes = addresses.map(|address| (Class::Claimed, address.into()));
        self.provided.prefixes.extend(prefixes);
    }
}
