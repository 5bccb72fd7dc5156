//! Nodes and gateway replicas.

use super::{NetworkSpec, NetworkType, REPLICAS_MAX, Reader};
use crate::error::Problem;
use crate::objects::Object;
use crate::overlap::Claimed;
use crate::view::Replica;
use control_api::labels;
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The validated spec of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeSpec {
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) internal_ip: Ipv4Addr,
    pub(crate) pod_cidrs: Vec<Ipv4Net>,
    pub(crate) ready: bool,
}

impl NodeSpec {
    /// Returns the node of that name; `nodes` are sorted by name.
    pub(crate) fn named<'a>(nodes: &'a [Self], name: &str) -> Option<&'a Self> {
        let found = nodes.binary_search_by(|node| node.name.as_str().cmp(name));

        Some(&nodes[found.ok()?])
    }
}

impl Reader<'_> {
    /// Reads the nodes, by name.
    pub(super) fn nodes(&mut self, networks: &[NetworkSpec]) -> Vec<NodeSpec> {
        let mut nodes: Vec<_> = self
            .indexed_of()
            // A virtual node represents a peer, and runs no route agent.
            .filter(|(_, object, _)| {
                object.label_value(labels::NODE_TYPE) != Some(labels::NODE_TYPE_VIRTUAL)
            })
            .filter_map(|(index, _, node)| self.node(index, node))
            .collect();

        let claims: Vec<_> = nodes
            .iter()
            .flat_map(|node| {
                node.pod_cidrs.iter().map(|cidr| Claimed {
                    cidr: *cidr,
                    shared: false,
                    owner: (node.index, "spec.podCIDRs".to_owned()),
                })
            })
            .collect();
        self.refuse_overlaps(&claims);
        self.check_inside(networks, claims);

        let mut seen = BTreeMap::new();
        for node in &nodes {
            self.check_unique(&mut seen, node.internal_ip, node.index, "status.addresses");
        }
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes
    }

    /// Adds an error for each CIDR of a node outside the cluster's pod CIDRs.
    fn check_inside(&mut self, networks: &[NetworkSpec], claims: Vec<Claimed<(usize, String)>>) {
        let pod_cidrs: Vec<_> = networks
            .iter()
            .filter(|network| network.network_type == NetworkType::Pod)
            .map(|network| network.cidr)
            .collect();
        let is_pod_network = |object: &Object| {
            matches!(object, Object::Network(_))
                && object.label_value(labels::NETWORK_TYPE) == Some(labels::NETWORK_TYPE_POD)
        };
        let listed = self.objects.iter().filter(|object| is_pod_network(object));
        if pod_cidrs.is_empty() || pod_cidrs.len() != listed.count() {
            // `networks` reports the missing or invalid pod CIDR.
            return;
        }

        for claim in claims {
            if !pod_cidrs.iter().any(|cidr| cidr.contains(&claim.cidr)) {
                let problem = Problem::NodePodCidrOutside { cidr: claim.cidr };
                self.refuse(claim.owner.0, claim.owner.1, problem);
            }
        }
    }

    fn node(&mut self, index: usize, node: &v1::Node) -> Option<NodeSpec> {
        let internal_ip = self.internal_ip(index, node);
        let pod_cidrs = self.node_pod_cidrs(index, node);
        let conditions = node.status.iter().flat_map(|status| &status.conditions);
        let ready = conditions
            .flatten()
            .filter(|condition| condition.type_ == "Ready")
            .all(|condition| condition.status == "True");

        Some(NodeSpec {
            index,
            name: node.metadata.name.clone()?,
            internal_ip: internal_ip?,
            pod_cidrs: pod_cidrs?,
            ready,
        })
    }

    /// Reads the InternalIP of the node; of a dual-stack node, the IPv4 address.
    fn internal_ip(&mut self, index: usize, node: &v1::Node) -> Option<Ipv4Addr> {
        let addresses = node.status.iter().flat_map(|status| &status.addresses);
        let addresses = addresses
            .flatten()
            .filter(|address| address.type_ == "InternalIP")
            .map(|address| address.address.as_str());
        let texts = ipv4_first(addresses);
        let Some(text) = texts.first() else {
            self.refuse(index, "status.addresses", Problem::NoInternalIp);
            return None;
        };

        self.address(index, "status.addresses", text)
    }

    /// Reads the pod CIDRs of the node; of a dual-stack node, the IPv4 CIDRs.
    ///
    /// A CNI with its own IPAM sets no pod CIDRs; then any node can forward to the pods.
    fn node_pod_cidrs(&mut self, index: usize, node: &v1::Node) -> Option<Vec<Ipv4Net>> {
        let spec = node.spec.as_ref();
        let list = spec.and_then(|spec| spec.pod_cidrs.as_ref());
        let single = spec.and_then(|spec| spec.pod_cidr.as_ref());
        let texts = ipv4_first(
            list.filter(|list| !list.is_empty())
                .map_or_else(|| Vec::from_iter(single), Vec::from_iter)
                .into_iter()
                .map(String::as_str),
        );
        // Read all CIDRs before returning, so that each invalid one is reported.
        let cidrs: Vec<_> = texts
            .iter()
            .map(|text| self.cidr(index, "spec.podCIDRs", text))
            .collect();
        cidrs.into_iter().collect()
    }

    /// Reads the gateway replicas, by name.
    pub(super) fn replicas(&mut self, nodes: &[NodeSpec]) -> Vec<(usize, Replica)> {
        let mut replicas = Vec::new();
        let mut addresses = BTreeMap::new();
        let mut names: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for (index, object, slice) in self.indexed_of::<EndpointSlice>() {
            if object.label_value(labels::COMPONENT) != Some(labels::COMPONENT_GATEWAY) {
                continue;
            }
            for (number, endpoint) in slice.endpoints.iter().flatten().enumerate() {
                let field = format!("endpoints[{number}]");
                let Some(replica) = self.replica(index, &field, endpoint, nodes) else {
                    continue;
                };
                self.check_unique(&mut addresses, replica.address, index, &field);
                let place = (index, field.clone());
                if let Some((first, first_field)) = names.insert(replica.name.clone(), place) {
                    let problem = Problem::DuplicateReplica {
                        name: replica.name.clone(),
                        other: Box::new(self.objects.place(first, first_field)),
                    };
                    self.refuse(index, field, problem);
                }
                replicas.push((index, replica));
            }
        }

        if let Some((index, _)) = replicas.get(REPLICAS_MAX) {
            let problem = Problem::TooMany {
                what: "gateway replicas",
                limit: REPLICAS_MAX,
            };
            self.refuse(*index, "endpoints", problem);
        }
        replicas.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        replicas
    }

    fn replica(
        &mut self,
        index: usize,
        field: &str,
        endpoint: &Endpoint,
        nodes: &[NodeSpec],
    ) -> Option<Replica> {
        let target = endpoint.target_ref.as_ref();
        let name = target.and_then(|target| target.name.clone());
        let first = endpoint.addresses.first();
        let missing = [
            ("addresses", first.is_none()),
            ("nodeName", endpoint.node_name.is_none()),
            ("targetRef.name", name.is_none()),
        ];
        for (part, _) in missing.into_iter().filter(|(_, is_missing)| *is_missing) {
            self.refuse(index, format!("{field}.{part}"), Problem::MissingField);
        }
        let address = self.address(index, &format!("{field}.addresses[0]"), first?);
        let node = endpoint.node_name.clone()?;
        // An invalid Node is not unknown: `node` reports its error.
        let is_known = NodeSpec::named(nodes, &node).is_some()
            || self.indexed().any(|(_, object)| {
                matches!(object, Object::Node(known) if known.metadata.name.as_ref() == Some(&node))
            });
        if !is_known {
            let problem = Problem::UnknownNode { node: node.clone() };
            self.refuse(index, format!("{field}.nodeName"), problem);
        }
        let conditions = endpoint.conditions.as_ref();

        Some(Replica {
            name: name?,
            address: address?,
            node,
            ready: conditions
                .and_then(|conditions| conditions.ready)
                .unwrap_or(true),
        })
    }

    fn check_unique(
        &mut self,
        seen: &mut BTreeMap<Ipv4Addr, (usize, String)>,
        address: Ipv4Addr,
        index: usize,
        field: &str,
    ) {
        if let Some((first, first_field)) = seen.get(&address) {
            let other = Box::new(self.objects.place(*first, first_field.clone()));
            self.refuse(index, field, Problem::DuplicateAddress { address, other });
        } else {
            seen.insert(address, (index, field.to_owned()));
        }
    }
}

/// Returns the IPv4 texts. Without any it returns all, so that the caller reports each as unsupported.
fn ipv4_first<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let all = Vec::from_iter(texts);
    let ipv4 = Vec::from_iter(all.iter().copied().filter(|text| !text.contains(':')));

    if ipv4.is_empty() { all } else { ipv4 }
}
