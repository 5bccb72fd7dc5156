//! The peers: Configuration, gateway and key, joined by the peer's cluster id.

use super::{PEERS_MAX, Reader};
use crate::cidr::{CIDRS_MAX, RemoteCidrError, is_host, remote_cidrs};
use crate::error::Problem;
use crate::objects::Object;
use crate::view::Role;
use control_api::networking::configuration::ClusterConfig;
use control_api::networking::endpoint::{Endpoint, Protocol};
use control_api::networking::gateway_server::ServerEndpoint;
use control_api::{Configuration, GatewayClientSpec, PublicKey, labels};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::LocalObjectReference;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::RangeInclusive;

/// The validated specs of a peer's objects.
#[derive(Clone, Debug)]
pub(crate) struct PeerSpec {
    /// Index of the Configuration.
    pub(crate) index: usize,
    /// Index of the GatewayServer or GatewayClient.
    pub(crate) gateway: usize,
    pub(crate) cluster_id: String,
    pub(crate) pods: Vec<Ipv4Net>,
    pub(crate) external: Vec<Ipv4Net>,
    pub(crate) role: Role,
    pub(crate) mtu: u16,
    pub(crate) key_secret: String,
    pub(crate) public_key: [u8; 32],
    pub(crate) gateway_name: String,
}

/// The validated fields that GatewayServer and GatewayClient share.
struct Gateway {
    index: usize,
    name: String,
    role: Role,
    mtu: u16,
    key_secret: String,
}

/// Default MTU, in bytes: WireGuard over IPv6 fits into Ethernet's 1500 bytes, also inside most other tunnels.
const MTU_DEFAULT: u16 = 1340;
/// Valid MTUs of a gateway, in bytes: from the datagram size that each IPv4 host accepts (RFC 791) to jumbo frames.
pub const MTU_RANGE: RangeInclusive<i64> = 576..=9000;
/// Default UDP port of a GatewayServer, as in `liqoctl`.
const PORT_DEFAULT: u16 = 51840;

impl<'a> Reader<'a> {
    /// Reads the peers, by cluster id.
    pub(super) fn peers(&mut self, cluster_id: &str) -> Vec<PeerSpec> {
        let configurations = self.by_peer(cluster_id, |_, _, object| {
            <&Configuration>::try_from(object).ok()
        });
        let mut gateways = self.by_peer(cluster_id, Self::gateway);
        let mut keys = self.by_peer(cluster_id, |reader, index, object| {
            let key = object.try_into().ok()?;
            Some(reader.public_key(index, key))
        });

        let strays = gateways
            .iter()
            .map(|(peer, (index, _))| (*peer, *index))
            .chain(keys.iter().map(|(peer, (index, _))| (*peer, *index)));
        for (peer, index) in strays.filter(|(peer, _)| !configurations.contains_key(peer)) {
            let cluster_id = peer.to_owned();
            self.refuse(index, PEER_FIELD, Problem::UnknownPeer { cluster_id });
        }

        let is_last_good = |index: usize| self.objects.is_last_good(index);
        let (old, new): (Vec<usize>, Vec<usize>) = configurations
            .values()
            .map(|(index, _)| *index)
            .partition(|index| is_last_good(*index));
        if let Some(index) = new.iter().chain(&old).nth(PEERS_MAX) {
            let problem = Problem::TooMany {
                what: "peers",
                limit: PEERS_MAX,
            };
            self.refuse(*index, "", problem);
        }
        self.refuse_equal_keys(&keys);

        let mut peers = Vec::new();
        for (peer, (index, configuration)) in configurations {
            let gateway = gateways.remove(peer);
            let key = keys.remove(peer);
            let cluster_id = || peer.to_owned();
            if gateway.is_none() {
                let cluster_id = cluster_id();
                self.refuse(index, "", Problem::NoGateway { cluster_id });
            }
            if key.is_none() {
                let cluster_id = cluster_id();
                self.refuse(index, "", Problem::NoPublicKey { cluster_id });
            }
            let (pods, external) = self.remote_cidrs(index, configuration);
            let (Some((_, Some(gateway))), Some((_, Some(public_key)))) = (gateway, key) else {
                continue;
            };
            peers.push(PeerSpec {
                index,
                gateway: gateway.index,
                cluster_id: cluster_id(),
                pods,
                external,
                role: gateway.role,
                mtu: gateway.mtu,
                key_secret: gateway.key_secret,
                public_key,
                gateway_name: gateway.name,
            });
        }

        peers
    }

    /// Adds an error for each key that two peers publish: a peer that copies the key of another one could receive
    /// the traffic to it.
    fn refuse_equal_keys(&mut self, keys: &BTreeMap<&str, (usize, Option<[u8; 32]>)>) {
        let mut seen = BTreeMap::new();
        for (index, key) in keys.values() {
            let Some(key) = key else {
                continue;
            };
            if let Some(first) = seen.insert(key, *index) {
                let other = Box::new(self.objects.place(first, ""));
                self.refuse(*index, "spec.publicKey", Problem::DuplicateKey { other });
            }
        }
    }

    /// Returns the objects for which `read` returns a value, by peer, each with its index.
    fn by_peer<T>(
        &mut self,
        cluster_id: &str,
        read: impl Fn(&mut Self, usize, &'a Object) -> Option<T>,
    ) -> BTreeMap<&'a str, (usize, T)> {
        let mut found = BTreeMap::new();
        for (index, object) in self.indexed() {
            let Some(part) = read(self, index, object) else {
                continue;
            };
            let Some(peer) = self.peer_label(index, object, cluster_id) else {
                continue;
            };
            match found.entry(peer) {
                Entry::Vacant(entry) => {
                    entry.insert((index, part));
                }
                Entry::Occupied(entry) => {
                    let problem = Problem::DuplicatePeer {
                        cluster_id: peer.to_owned(),
                        other: Box::new(self.objects.place(entry.get().0, "")),
                    };
                    self.refuse(index, "", problem);
                }
            }
        }

        found
    }

    /// Reads the cluster ID of an object's peer from its label.
    fn peer_label<'o>(
        &mut self,
        index: usize,
        object: &'o Object,
        cluster_id: &str,
    ) -> Option<&'o str> {
        let Some(peer) = object.label_value(labels::REMOTE_CLUSTER_ID) else {
            self.refuse(index, PEER_FIELD, Problem::NoPeerLabel);
            return None;
        };
        if peer == cluster_id {
            let cluster_id = peer.to_owned();
            self.refuse(index, PEER_FIELD, Problem::OwnCluster { cluster_id });
        } else {
            self.check_cluster_id(index, PEER_FIELD, peer);
        }

        Some(peer)
    }

    fn remote_cidrs(
        &mut self,
        index: usize,
        configuration: &Configuration,
    ) -> (Vec<Ipv4Net>, Vec<Ipv4Net>) {
        let empty = ClusterConfig::default();
        let remote = &configuration.spec.remote.as_ref().unwrap_or(&empty).cidr;
        let (cidrs, errors) = remote_cidrs(remote);
        for error in errors {
            match error {
                RemoteCidrError::NoPodCidr => {
                    self.refuse(index, "spec.remote.cidr.pod", Problem::NoPeerPodCidr);
                }
                RemoteCidrError::TooMany { field } => {
                    let problem = Problem::TooMany {
                        what: "CIDRs",
                        limit: CIDRS_MAX,
                    };
                    self.refuse(index, field, problem);
                }
                RemoteCidrError::Cidr { field, error } => {
                    self.refuse(index, field, error.into());
                }
                RemoteCidrError::Overlap {
                    field,
                    cidr,
                    other_field,
                    other,
                } => {
                    let of = Box::new(self.objects.place(index, other_field));
                    self.refuse(index, field, Problem::Overlap { cidr, other, of });
                }
            }
        }

        (cidrs.pod, cidrs.external)
    }

    fn public_key(&mut self, index: usize, key: &PublicKey) -> Option<[u8; 32]> {
        let bytes = key.spec.public_key.as_ref().map(|key| key.0.as_slice());
        let bytes = bytes.unwrap_or_default();
        bytes
            .try_into()
            .map_err(|_| {
                let found = bytes.len();
                self.refuse(index, "spec.publicKey", Problem::KeyLength { found });
            })
            .ok()
    }

    /// Reads a GatewayServer or GatewayClient; the inner option is `None` if it is invalid.
    fn gateway(&mut self, index: usize, object: &Object) -> Option<Option<Gateway>> {
        let (role, mtu, secret) = if let Object::GatewayServer(server) = object {
            let role = self.server(index, server.spec.endpoint.as_ref());
            (role, server.spec.mtu, &server.spec.secret_ref)
        } else if let Object::GatewayClient(client) = object {
            let role = self.client(index, &client.spec);
            (role, client.spec.mtu, &client.spec.secret_ref)
        } else {
            return None;
        };
        let mtu = self.mtu(index, mtu);
        let name = object.metadata().name.clone().unwrap_or_default();
        let gateway = role.zip(mtu).map(|(role, mtu)| Gateway {
            index,
            role,
            mtu,
            key_secret: key_secret(&name, secret.as_ref()),
            name,
        });

        Some(gateway)
    }

    fn server(&mut self, index: usize, endpoint: Option<&ServerEndpoint>) -> Option<Role> {
        let port = endpoint.and_then(|endpoint| endpoint.port.or(endpoint.ports.first().copied()));
        let port = match port {
            Some(port) => self.port(index, port)?,
            None => PORT_DEFAULT,
        };

        Some(Role::Server { port })
    }

    fn client(&mut self, index: usize, spec: &GatewayClientSpec) -> Option<Role> {
        let empty = Endpoint::default();
        let endpoint = spec.endpoint.as_ref().unwrap_or(&empty);
        if endpoint.protocol == Some(Protocol::Tcp) {
            self.refuse(index, "spec.endpoint.protocol", Problem::NotUdp);
        }
        if endpoint.addresses.is_empty() {
            self.refuse(index, "spec.endpoint.addresses", Problem::MissingField);
        }
        for (number, address) in endpoint.addresses.iter().enumerate() {
            if !is_host(address) {
                let value = address.clone();
                let field = format!("spec.endpoint.addresses[{number}]");
                self.refuse(index, field, Problem::BadHost { value });
            }
        }
        let port = endpoint.port.or(endpoint.ports.first().copied());
        if port.is_none() {
            self.refuse(index, "spec.endpoint.port", Problem::MissingField);
        }

        Some(Role::Client {
            port: self.port(index, port?)?,
            addresses: endpoint.addresses.clone(),
        })
    }

    fn port(&mut self, index: usize, port: i32) -> Option<u16> {
        let valid = u16::try_from(port).ok().filter(|port| *port > 0);
        if valid.is_none() {
            let value = i64::from(port);
            self.refuse(index, "spec.endpoint.port", Problem::BadPort { value });
        }

        valid
    }

    fn mtu(&mut self, index: usize, mtu: Option<i64>) -> Option<u16> {
        let Some(value) = mtu else {
            return Some(MTU_DEFAULT);
        };
        let valid = u16::try_from(value)
            .ok()
            .filter(|_| MTU_RANGE.contains(&value));
        if valid.is_none() {
            self.refuse(index, "spec.mtu", Problem::BadMtu { value });
        }

        valid
    }
}

/// Field with the cluster ID of the peer.
const PEER_FIELD: &str = "metadata.labels[liqo.io/remote-cluster-id]";

fn key_secret(gateway: &str, secret: Option<&LocalObjectReference>) -> String {
    secret
        .map(|secret| secret.name.clone())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| format!("gw-{gateway}"))
}
