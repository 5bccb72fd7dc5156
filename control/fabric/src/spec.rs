//! The validated specs of all objects, without the statuses that `plan` allocates.

use super::cidr;
use super::error::{Error, Errors, Problem, ordered};
use super::objects::{Object, Objects};
use super::overlap::{Claimed, overlaps};
use super::view;
use super::{PEERS_MAX, REPLICAS_MAX};
use control_api::labels;
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::net::Ipv4Addr;

pub use peers::MTU_RANGE;

pub(super) use super::network::NetworkType;
pub(super) use ips::{IpSpec, NODE_PREFIX, node_ip_name};
pub(super) use networks::NetworkSpec;
pub(super) use nodes::NodeSpec;
pub(super) use peers::PeerSpec;

mod ips;
mod networks;
mod nodes;
mod peers;

/// The validated specs of a fabric's objects. It refers to objects by index, and so borrows none.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) cluster_id: String,
    /// In the order of the objects.
    pub(super) networks: Vec<NetworkSpec>,
    /// By name.
    pub(super) nodes: Vec<NodeSpec>,
    /// By name, each with the index of its EndpointSlice.
    pub(super) replicas: Vec<(usize, view::Replica)>,
    /// By cluster id.
    pub(super) peers: Vec<PeerSpec>,
    /// By name and namespace.
    pub(super) ips: Vec<IpSpec>,
}

impl Spec {
    /// Reads and validates the specs of the objects.
    ///
    /// # Errors
    ///
    /// Returns all errors of the specs.
    pub(super) fn read(objects: &Objects) -> Result<Self, Errors> {
        let mut reader = Reader {
            objects,
            errors: Vec::new(),
        };
        let cluster_id = reader.cluster_id();
        let networks = reader.networks();
        let nodes = reader.nodes(&networks);
        let replicas = reader.replicas(&nodes);
        let peers = reader.peers(&cluster_id);
        let ips = reader.ips(&networks, &nodes);
        reader.refuse_gateways(&ips, &replicas);

        reader.finish(Self {
            cluster_id,
            networks,
            nodes,
            replicas,
            peers,
            ips,
        })
    }

    /// Returns the underlay addresses of nodes, gateway replicas and peers' endpoints, each with the index of its
    /// object and its field. If a CIDR of a peer contained one of them, the gateway would route packets of a tunnel into
    /// a tunnel.
    pub(super) fn underlay(&self) -> impl Iterator<Item = (Ipv4Addr, usize, String)> {
        let nodes = self.nodes.iter().map(|node| {
            let field = "status.addresses".to_owned();
            (node.internal_ip, node.index, field)
        });
        let replicas = self.replicas.iter().map(|(index, replica)| {
            let field = "endpoints".to_owned();
            (replica.address, *index, field)
        });
        let ends = self.peers.iter().flat_map(|peer| {
            let addresses = match &peer.role {
                view::Role::Server { .. } => &[],
                view::Role::Client { addresses, .. } => addresses.as_slice(),
            };
            addresses.iter().filter_map(|address| {
                let field = "spec.endpoint.addresses".to_owned();
                Some((address.parse().ok()?, peer.gateway, field))
            })
        });

        nodes.chain(replicas).chain(ends)
    }

    /// Returns the external network.
    pub(super) fn external(&self) -> &NetworkSpec {
        self.networks
            .iter()
            .find(|network| network.network_type == NetworkType::External)
            .expect("`Spec::read` refuses objects without one")
    }
}

/// Reads objects, and collects their errors.
pub(super) struct Reader<'a> {
    pub(super) objects: &'a Objects,
    pub(super) errors: Vec<Error>,
}

impl<'a> Reader<'a> {
    /// Returns `value`, or the errors if there are any.
    pub(super) fn finish<T>(self, value: T) -> Result<T, Errors> {
        ordered(self.errors).map_or(Ok(value), Err)
    }

    /// Adds an error of a field of an object.
    pub(super) fn refuse(&mut self, index: usize, field: impl Into<String>, problem: Problem) {
        let place = self.objects.place(index, field);
        self.errors.push(Error { place, problem });
    }

    /// Adds an error that concerns all objects together.
    fn refuse_all(&mut self, problem: Problem) {
        self.errors.push(Error::of_all(problem));
    }

    /// Reads a CIDR of a field.
    pub(super) fn cidr(&mut self, index: usize, field: &str, text: &str) -> Option<Ipv4Net> {
        cidr::cidr(text)
            .map_err(|error| self.refuse(index, field, error.into()))
            .ok()
    }

    /// Reads an address of a field.
    pub(super) fn address(&mut self, index: usize, field: &str, text: &str) -> Option<Ipv4Addr> {
        cidr::address(text)
            .map_err(|error| self.refuse(index, field, error.into()))
            .ok()
    }

    /// Adds an error for each overlap. The owner of a CIDR is the index of its object and the field.
    pub(super) fn refuse_overlaps(&mut self, claims: &[Claimed<(usize, String)>]) {
        for (inner, outer) in overlaps(claims) {
            // The user can change an exclusive CIDR, whereas the cluster determines a shared one.
            let is_outer = if inner.shared == outer.shared {
                self.precedence(&inner.owner) < self.precedence(&outer.owner)
            } else {
                inner.shared
            };
            let (this, that) = if is_outer {
                (outer, inner)
            } else {
                (inner, outer)
            };
            let problem = Problem::Overlap {
                cidr: this.cidr,
                other: that.cidr,
                of: Box::new(self.objects.place(that.owner.0, that.owner.1.clone())),
            };
            self.refuse(this.owner.0, this.owner.1.clone(), problem);
        }
    }

    /// Orders owners of CIDRs: Networks of the cluster, Networks of users, peers, and peers with the last good state
    /// of their Configuration. Older objects precede newer ones of the same group. An object of a file has no age, but
    /// a position.
    fn precedence<'o>(
        &self,
        owner: &'o (usize, String),
    ) -> (u8, Option<Time>, &'o (usize, String)) {
        let object = self.objects.get(owner.0);
        let rank = object.map_or(0, |object| {
            let is_untyped = matches!(object, Object::Network(_))
                && object.label_value(labels::NETWORK_TYPE).is_none();
            if self.objects.is_last_good(owner.0) {
                3
            } else if object.peer().is_some() {
                2
            } else {
                u8::from(is_untyped)
            }
        });
        let created = object.and_then(|object| object.metadata().creation_timestamp.clone());

        (rank, created, owner)
    }

    /// Returns the objects with their indexes.
    fn indexed(&self) -> impl Iterator<Item = (usize, &'a Object)> + use<'a> {
        self.objects.iter().enumerate()
    }

    /// Returns the objects of one kind with their indexes.
    fn indexed_of<T: 'a>(&self) -> impl Iterator<Item = (usize, &'a Object, &'a T)> + use<'a, T>
    where
        &'a T: TryFrom<&'a Object>,
    {
        self.indexed()
            .filter_map(|(index, object)| Some((index, object, object.try_into().ok()?)))
    }

    fn cluster_id(&mut self) -> String {
        let mut found: Option<(usize, String)> = None;
        for (index, object, config_map) in self.indexed_of::<ConfigMap>() {
            if object.label_value(labels::APP_NAME) != Some(labels::CLUSTER_ID_CONFIG_MAP) {
                continue;
            }
            if let Some((first, _)) = &found {
                let other = Box::new(self.objects.place(*first, ""));
                self.refuse(index, "", Problem::TwoClusterIds { other });
                continue;
            }
            let data = config_map.data.as_ref();
            let id = data.and_then(|data| data.get(CLUSTER_ID)).cloned();
            let field = format!("data.{CLUSTER_ID}");
            match &id {
                None => self.refuse(index, field, Problem::MissingField),
                Some(id) => self.check_cluster_id(index, &field, id),
            }
            found = Some((index, id.unwrap_or_default()));
        }
        if found.is_none() {
            self.refuse_all(Problem::NoClusterId);
        }

        found.unwrap_or_default().1
    }

    /// Adds an error if `id` is not a DNS-1123 label.
    fn check_cluster_id(&mut self, index: usize, field: &str, id: &str) {
        if !cidr::is_cluster_id(id) {
            let value = id.to_owned();
            self.refuse(index, field, Problem::BadClusterId { value });
        }
    }
}

/// Key of the cluster id in its ConfigMap.
const CLUSTER_ID: &str = "CLUSTER_ID";

#[cfg(test)]
mod tests;
