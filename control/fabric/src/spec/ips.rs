//! Single addresses that peers reach.

use super::{NetworkSpec, NetworkType, NodeSpec, Reader};
use crate::error::Problem;
use crate::objects::Object;
use crate::view::Replica;
use control_api::IP;
use control_api::labels;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// An IP object as asked for.
#[derive(Clone, Debug)]
pub(crate) struct IpSpec {
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) address: Ipv4Addr,
    pub(crate) masquerade: bool,
    /// Index of the Network object that gives the address.
    pub(crate) network: usize,
    /// The node whose address it is, because it has its name.
    pub(crate) node: Option<String>,
    /// Whether it was made for a node that is not there any more.
    pub(crate) orphan: bool,
    /// Whether it is to be left untranslated.
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

        // Of several objects of a node's name, in several namespaces, one is the node's.
        for index in 1..ips.len() {
            if ips[index].node.is_some() && ips[index].name == ips[index - 1].name {
                ips[index].node = None;
            }
        }

        ips
    }

    /// Who could reach a gateway through the tunnel that it ends could feed the tunnel with
    /// itself, and write overlay frames in a node's name.
    pub(super) fn refuse_gateways(&mut self, ips: &[IpSpec], replicas: &[(usize, Replica)]) {
        let of_replicas: BTreeMap<_, _> = replicas
            .iter()
            .map(|(index, replica)| (replica.address, *index))
            .collect();
        // A gateway may share its node's address; that of a node is given anyway.
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
            // A missing external CIDR is told elsewhere.
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
