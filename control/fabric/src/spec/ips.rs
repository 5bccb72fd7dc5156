//! IP objects: addresses that peers reach by an address of the external CIDR.

use super::{NetworkSpec, NetworkType, NodeSpec, Reader};
use crate::error::Problem;
use crate::objects::Object;
use crate::view::Replica;
use control_api::IP;
use control_api::labels;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The validated spec of an IP object.
#[derive(Clone, Debug)]
pub(crate) struct IpSpec {
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) address: Ipv4Addr,
    pub(crate) masquerade: bool,
    /// Index of the Network from which the address is allocated.
    pub(crate) network: usize,
    /// The node that the IP object represents, according to its name.
    pub(crate) node: Option<String>,
    /// Whether the node of the IP object no longer exists.
    pub(crate) orphan: bool,
    /// Whether the label for unreachable hosts is set; such an address is not translated.
    pub(crate) unreachable: bool,
}

/// Returns the name of the IP object of a node.
pub(crate) fn node_ip_name(node: &str) -> String {
    format!("{NODE_PREFIX}{node}")
}

/// Prefix of the names of nodes' IP objects.
pub(crate) const NODE_PREFIX: &str = "node-";

impl Reader<'_> {
    /// Reads the IP objects, by name and namespace.
    pub(super) fn ips(&mut self, networks: &[NetworkSpec], nodes: &[NodeSpec]) -> Vec<IpSpec> {
        let mut ips: Vec<_> = self
            .indexed_of::<IP>()
            .filter_map(|(index, object, ip)| self.ip(index, object, ip, networks, nodes))
            .collect();
        ips.sort_by(|a, b| (&a.name, &a.namespace).cmp(&(&b.name, &b.namespace)));

        // If several namespaces have an IP object with the name of a node, the first one represents the node.
        for index in 1..ips.len() {
            if ips[index].node.is_some() && ips[index].name == ips[index - 1].name {
                ips[index].node = None;
            }
        }

        ips
    }

    /// Adds an error for each IP object that maps the address of a gateway replica. Through such an address a peer
    /// could send tunnel packets into the tunnel, and forge overlay frames of a node.
    pub(super) fn refuse_gateways(&mut self, ips: &[IpSpec], replicas: &[(usize, Replica)]) {
        let of_replicas: BTreeMap<_, _> = replicas
            .iter()
            .map(|(index, replica)| (replica.address, *index))
            .collect();
        // A gateway replica may use the address of its node, which the node's IP object always maps.
        for ip in ips.iter().filter(|ip| ip.node.is_none()) {
            if let Some(index) = of_replicas.get(&ip.address) {
                let problem = Problem::MappedToGateway {
                    address: ip.address,
                    other: Box::new(self.objects.place(*index, "endpoints")),
                };
                self.refuse(ip.index, "spec.ip", problem);
            }
        }
    }

    fn ip(
        &mut self,
        index: usize,
        object: &Object,
        ip: &IP,
        networks: &[NetworkSpec],
        nodes: &[NodeSpec],
    ) -> Option<IpSpec> {
        let name = ip.metadata.name.clone()?;
        let node = name
            .strip_prefix(NODE_PREFIX)
            .filter(|name| NodeSpec::named(nodes, name).is_some())
            .map(str::to_owned);
        let is_of_node = object.label_value(labels::IP_TYPE) == Some(labels::IP_TYPE_NODE);
        let address = self.address(index, "spec.ip", &ip.spec.ip);
        let network = self.ip_network(index, ip, networks);

        Some(IpSpec {
            index,
            orphan: is_of_node && node.is_none(),
            name,
            namespace: ip.metadata.namespace.clone(),
            address: address?,
            masquerade: ip.spec.masquerade.unwrap_or_default(),
            network: network?,
            node,
            unreachable: object.label_value(labels::HOST_UNREACHABLE) == Some("true"),
        })
    }

    fn ip_network(&mut self, index: usize, ip: &IP, networks: &[NetworkSpec]) -> Option<usize> {
        let reference = ip.spec.network_ref.as_ref();
        let name = reference.and_then(|reference| reference.name.as_deref());
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            // `networks` reports a missing external CIDR.
            return networks
                .iter()
                .find(|network| network.network_type == NetworkType::External)
                .map(|network| network.index);
        };
        let namespace = reference.and_then(|reference| reference.namespace.as_deref());
        let network = networks.iter().find(|network| {
            network.name == name
                && namespace.is_none_or(|namespace| network.namespace.as_deref() == Some(namespace))
        });
        let problem = match network.map(|network| network.network_type) {
            Some(NetworkType::External | NetworkType::Other) => None,
            Some(
                NetworkType::Pod
                | NetworkType::Service
                | NetworkType::Internal
                | NetworkType::Reserved,
            ) => Some(Problem::UnfitNetwork {
                name: name.to_owned(),
            }),
            None => Some(Problem::UnknownNetwork {
                name: name.to_owned(),
            }),
        };
        if let Some(problem) = problem {
            self.refuse(index, "spec.networkRef.name", problem);
        }

        network.map(|network| network.index)
    }
}
