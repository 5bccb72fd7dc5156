//! Validates planned objects, and builds the fabric from them.

use super::error::{Errors, Problem};
use super::objects::{Object, Objects};
use super::overlap::Claimed;
use super::plan::remote_status;
use super::spec::{
    IpSpec, NetworkSpec, NetworkType, NodeSpec, PeerSpec, Reader, Spec, node_ip_name,
};
use super::view::{Fabric, MappedIp, Node, Peer, Target};
use ipam::Remap;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

impl TryFrom<&Objects> for Fabric {
    type Error = Errors;

    /// Validates the objects and their statuses.
    ///
    /// # Errors
    ///
    /// Returns all errors of the objects.
    fn try_from(objects: &Objects) -> Result<Self, Errors> {
        let spec = Spec::read(objects)?;
        let mut reader = Reader {
            objects,
            errors: Vec::new(),
        };

        let networks = reader.network_statuses(&spec);
        let peers: Vec<_> = spec
            .peers
            .iter()
            .filter_map(|peer| reader.peer(peer))
            .collect();
        let owners = Owners::new(&spec, &networks, &peers);
        let ips = reader.mapped_ips(&spec, &owners, &networks);
        let nodes = reader.planned_nodes(&spec, &ips);
        reader.check_overlaps(&spec, &networks, &peers);

        let of_type = |network_type| cidrs(&spec, &networks, network_type);
        let fabric = Self {
            cluster_id: spec.cluster_id.clone(),
            pod_cidrs: of_type(NetworkType::Pod),
            service_cidrs: of_type(NetworkType::Service),
            // A missing status is an error, so no fabric with the default CIDR is returned.
            external_cidr: of_type(NetworkType::External)
                .first()
                .copied()
                .unwrap_or_default(),
            nodes: nodes.into(),
            replicas: spec
                .replicas
                .iter()
                .map(|(_, replica)| replica.clone())
                .collect(),
            peers: peers.into(),
            ips: ips.into_iter().map(|(_, ip)| ip).collect(),
        };

        reader.finish(fabric)
    }
}

/// The CIDR of each Network, by index of its object.
type Statuses = BTreeMap<usize, Ipv4Net>;

/// The addresses and CIDRs of this cluster and its peers, to find the owner of an address.
struct Owners<'a> {
    nodes: BTreeMap<Ipv4Addr, &'a str>,
    pod_cidrs: Vec<Ipv4Net>,
    service_cidrs: Vec<Ipv4Net>,
    /// The pod CIDRs of nodes, by their first address; they do not overlap.
    node_pods: BTreeMap<Ipv4Addr, (Ipv4Net, &'a str)>,
    /// The remapped CIDRs of peers, by their first address; they do not overlap.
    remote: BTreeMap<Ipv4Addr, (Remap, &'a str)>,
}

impl<'a> Owners<'a> {
    fn new(spec: &'a Spec, networks: &Statuses, peers: &'a [Peer]) -> Self {
        let nodes = spec.nodes.iter();
        let remote = peers.iter().flat_map(|peer| {
            let remaps = peer.pods.iter().chain(&peer.external);
            remaps.map(|remap| (remap.to().network(), (remap.inverse(), &*peer.cluster_id)))
        });

        let node_pods = spec.nodes.iter().flat_map(|node| {
            let cidrs = node.pod_cidrs.iter();
            cidrs.map(|cidr| (cidr.network(), (*cidr, &*node.name)))
        });

        Self {
            nodes: nodes.map(|node| (node.internal_ip, &*node.name)).collect(),
            node_pods: node_pods.collect(),
            pod_cidrs: cidrs(spec, networks, NetworkType::Pod),
            service_cidrs: cidrs(spec, networks, NetworkType::Service),
            remote: remote.collect(),
        }
    }

    /// Returns the target of an IP object with this `spec.ip`.
    fn target(&self, address: Ipv4Addr) -> Target {
        if let Some(&node) = self.nodes.get(&address) {
            return Target::Node(node.to_owned());
        }
        if contains(&self.pod_cidrs, address) {
            let below = self.node_pods.range(..=address).next_back();
            let node = below.filter(|(_, (cidr, _))| cidr.contains(&address));
            return Target::Pod {
                node: node.map(|(_, (_, name))| (*name).to_owned()),
            };
        }

        if contains(&self.service_cidrs, address) {
            return Target::Service;
        }
        let below = self.remote.range(..=address).next_back();
        let remote = below.and_then(|(_, (to_original, cluster_id))| {
            Some((to_original.apply(address)?, (*cluster_id).to_owned()))
        });
        match remote {
            Some((original, cluster_id)) => Target::Remote {
                cluster_id,
                original,
            },
            None => Target::Outside,
        }
    }
}

/// Returns the CIDRs of the Networks of one type, in their order.
fn cidrs(spec: &Spec, networks: &Statuses, network_type: NetworkType) -> Vec<Ipv4Net> {
    let mut cidrs: Vec<_> = spec
        .networks
        .iter()
        .filter(|network| network.network_type == network_type)
        .filter_map(|network| networks.get(&network.index).copied())
        .collect();
    cidrs.sort();
    cidrs
}

fn contains(cidrs: &[Ipv4Net], address: Ipv4Addr) -> bool {
    cidrs.iter().any(|cidr| cidr.contains(&address))
}

impl Reader<'_> {
    fn network_statuses(&mut self, spec: &Spec) -> Statuses {
        spec.networks
            .iter()
            .filter_map(|network| Some((network.index, self.network_status(network)?)))
            .collect()
    }

    fn network_status(&mut self, network: &NetworkSpec) -> Option<Ipv4Net> {
        let Some(Object::Network(object)) = self.objects.get(network.index) else {
            return None;
        };
        let field = "status.cidr";
        let status = object.status.as_ref();
        let Some(text) = status.and_then(|status| status.cidr.as_ref()) else {
            self.refuse(network.index, field, Problem::NotPlanned);
            return None;
        };
        let cidr = self.cidr(network.index, field, text)?;
        let fits = if network.rules.is_fixed {
            cidr == network.cidr
        } else {
            cidr.prefix_len() == network.cidr.prefix_len()
        };
        if !fits {
            let value = text.clone();
            self.refuse(network.index, field, Problem::StaleStatus { value });
        }

        Some(cidr)
    }

    fn peer(&mut self, peer: &PeerSpec) -> Option<Peer> {
        let Some(Object::Configuration(object)) = self.objects.get(peer.index) else {
            return None;
        };
        let Some(remapped) = remote_status(object) else {
            self.refuse(peer.index, "status.remote", Problem::NotPlanned);
            return None;
        };
        let pods = self.remaps(peer.index, "pod", &peer.pods, &remapped.pod);
        let external = self.remaps(peer.index, "external", &peer.external, &remapped.external);

        Some(Peer {
            cluster_id: peer.cluster_id.clone(),
            pods,
            external,
            role: peer.role.clone(),
            mtu: peer.mtu,
            key_secret: peer.key_secret.clone(),
            public_key: peer.public_key,
            gateway_name: peer.gateway_name.clone(),
        })
    }

    /// Pairs CIDRs of a spec with those of the status; an empty string in the status is not allocated yet.
    fn remaps(
        &mut self,
        index: usize,
        kind: &str,
        spec: &[Ipv4Net],
        status: &[String],
    ) -> Vec<Remap> {
        let mut remaps = Vec::new();
        for (number, &from) in spec.iter().enumerate() {
            let field = format!("status.remote.cidr.{kind}[{number}]");
            let text = status.get(number).map(String::as_str).unwrap_or_default();
            if text.is_empty() {
                self.refuse(index, field, Problem::NotPlanned);
                continue;
            }
            let Some(to) = self.cidr(index, &field, text) else {
                continue;
            };
            match Remap::new(from, to) {
                Ok(remap) => remaps.push(remap),
                Err(_) => {
                    let value = text.to_owned();
                    self.refuse(index, field, Problem::StaleStatus { value });
                }
            }
        }
        if let Some(surplus) = status.get(spec.len()) {
            let field = format!("status.remote.cidr.{kind}[{}]", spec.len());
            let value = surplus.clone();
            self.refuse(index, field, Problem::StaleStatus { value });
        }

        remaps
    }

    /// Reads the IP objects that have an effect.
    fn mapped_ips<'s>(
        &mut self,
        spec: &'s Spec,
        owners: &Owners<'_>,
        networks: &Statuses,
    ) -> Vec<(&'s IpSpec, MappedIp)> {
        let mut ips = Vec::new();
        let mut status_ips = BTreeMap::new();
        let mut reversed = BTreeMap::new();
        let listed = spec.ips.iter().enumerate();
        let mut listed: Vec<_> = listed
            .filter(|(_, ip)| ip.node.is_some() || !(ip.orphan || ip.unreachable))
            .collect();
        // An address belongs to the IP object of a node, else to the oldest object, so a new object cannot take it.
        listed.sort_by_cached_key(|(position, ip)| {
            let object = self.objects.get(ip.index);
            let created = object.and_then(|object| object.metadata().creation_timestamp.clone());
            (ip.node.is_none(), created, *position)
        });
        for (position, ip) in listed {
            let errors = self.errors.len();
            let status_ip = self.address_status(spec, networks, ip);
            self.check_spec_ip(spec, networks, ip);
            let Some(status_ip) = status_ip.filter(|_| self.errors.len() == errors) else {
                continue; // An invalid object does not reserve its address.
            };
            self.refuse_second(&mut status_ips, status_ip, ip.index, "status.ip");
            let target = owners.target(ip.address);
            if matches!(target, Target::Remote { .. } | Target::Service) {
                // The gateway translates these addresses back without connection tracking, so each
                // of them has a single IP object.
                self.refuse_second(&mut reversed, ip.address, ip.index, "spec.ip");
            }
            let mapped = MappedIp {
                name: ip.name.clone(),
                namespace: ip.namespace.clone().unwrap_or_default(),
                spec_ip: ip.address,
                status_ip,
                masquerade: ip.masquerade,
                target,
            };
            ips.push((position, ip, mapped));
        }
        ips.sort_by_key(|(position, ..)| *position);

        ips.into_iter()
            .map(|(_, ip, mapped)| (ip, mapped))
            .collect()
    }

    fn address_status(
        &mut self,
        spec: &Spec,
        networks: &Statuses,
        ip: &IpSpec,
    ) -> Option<Ipv4Addr> {
        let Some(Object::IP(object)) = self.objects.get(ip.index) else {
            return None;
        };
        let field = "status.ip";
        let status = object.status.as_ref();
        let Some(text) = status.and_then(|status| status.ip.as_ref()) else {
            self.refuse(ip.index, field, Problem::NotPlanned);
            return None;
        };
        let address = self.address(ip.index, field, text)?;
        let network = networks.get(&ip.network)?;
        let pre_allocated = spec
            .networks
            .iter()
            .find(|network| network.index == ip.network)
            .map_or(0, |network| network.rules.pre_allocated);
        let host = address.to_bits().wrapping_sub(network.network().to_bits());
        if !network.contains(&address) || host < pre_allocated {
            let value = text.clone();
            self.refuse(ip.index, field, Problem::StaleStatus { value });
        }

        Some(address)
    }

    /// Reports an IP object that maps an address of the external CIDR, or an outdated address of its node.
    fn check_spec_ip(&mut self, spec: &Spec, networks: &Statuses, ip: &IpSpec) {
        let external = networks.get(&spec.external().index);
        if let Some(&external) = external.filter(|external| external.contains(&ip.address)) {
            let address = ip.address;
            let problem = Problem::MappedToItself { address, external };
            self.refuse(ip.index, "spec.ip", problem);
        }
        let node = ip.node.as_ref();
        let node = node.and_then(|name| NodeSpec::named(&spec.nodes, name));
        if node.is_some_and(|node| node.internal_ip != ip.address) {
            let value = ip.address.to_string();
            self.refuse(ip.index, "spec.ip", Problem::StaleStatus { value });
        }
    }

    fn refuse_second(
        &mut self,
        seen: &mut BTreeMap<Ipv4Addr, usize>,
        address: Ipv4Addr,
        index: usize,
        field: &str,
    ) {
        if let Some(&first) = seen.get(&address) {
            let other = Box::new(self.objects.place(first, field));
            self.refuse(index, field, Problem::DuplicateAddress { address, other });
        } else {
            seen.insert(address, index);
        }
    }

    /// Returns the nodes with their addresses of the external CIDR.
    fn planned_nodes(&mut self, spec: &Spec, ips: &[(&IpSpec, MappedIp)]) -> Vec<Node> {
        let of_node: BTreeMap<_, _> = ips
            .iter()
            .filter_map(|(spec, ip)| Some((spec.node.as_deref()?, ip.status_ip)))
            .collect();
        let mut nodes = Vec::new();
        for node in &spec.nodes {
            let Some(&external_ip) = of_node.get(node.name.as_str()) else {
                // The status of an existing IP object has its own error.
                let mut present = spec.ips.iter().filter_map(|ip| ip.node.as_ref());
                if !present.any(|name| *name == node.name) {
                    let name = node_ip_name(&node.name);
                    self.refuse(node.index, "", Problem::NoNodeIp { name });
                }
                continue;
            };
            nodes.push(Node {
                name: node.name.clone(),
                internal_ip: node.internal_ip,
                pod_cidrs: node.pod_cidrs.clone(),
                external_ip,
                ready: node.ready,
            });
        }

        nodes
    }

    /// Reports allocated CIDRs that overlap each other or an address of the underlay.
    fn check_overlaps(&mut self, spec: &Spec, networks: &Statuses, peers: &[Peer]) {
        let own = spec.networks.iter().filter_map(|network| {
            Some(Claimed {
                cidr: *networks.get(&network.index)?,
                shared: network.rules.is_shared,
                owner: (network.index, "status.cidr".to_owned()),
            })
        });
        let underlay = spec.underlay().map(|(address, index, field)| Claimed {
            cidr: Ipv4Net::from(address),
            shared: true,
            owner: (index, field),
        });
        let index_of: BTreeMap<_, _> = spec
            .peers
            .iter()
            .map(|peer| (&peer.cluster_id, peer.index))
            .collect();
        let known = peers
            .iter()
            .filter_map(|peer| Some((*index_of.get(&peer.cluster_id)?, peer)));
        let remote = known.flat_map(|(index, peer)| {
            let lists = [("pod", &peer.pods), ("external", &peer.external)];
            lists.into_iter().flat_map(move |(kind, remaps)| {
                remaps.iter().map(move |remap| Claimed {
                    cidr: remap.to(),
                    shared: false,
                    owner: (index, format!("status.remote.cidr.{kind}")),
                })
            })
        });

        let claims: Vec<_> = own.chain(underlay).chain(remote).collect();
        self.refuse_overlaps(&claims);
    }
}

#[cfg(test)]
mod tests;
