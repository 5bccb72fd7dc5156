//! Converts the desired state of a cluster to the objects of its fabric file. This module does no
//! IO.

use super::cluster::Cluster;
use super::spec::{Exposure, GATEWAY_PORT, NODE_PORT};
use anyhow::{Context as _, Result};
use ipnet::Ipv4Net;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The desired state of a cluster without its nodes and gateways.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// The peers, by cluster ID.
    pub remotes: BTreeMap<String, Remote>,
    /// The IP objects, by name. Peers may reach their addresses.
    pub ips: BTreeMap<String, MappedAddress>,
    /// Networks that remapped CIDRs must not overlap, by the name of their Network object.
    pub reserved: BTreeMap<String, Ipv4Net>,
}

/// The part of a cluster's desired state that describes one remote cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Remote {
    /// Original pod CIDRs of the remote cluster.
    pub pod_cidrs: Vec<Ipv4Net>,
    /// Original external CIDR of the remote cluster.
    pub external_cidr: Ipv4Net,
    /// Role of the local cluster's gateways.
    pub role: Role,
    /// Upper bound of the tunnel's MTU in bytes.
    pub mtu: u16,
    /// WireGuard public key of the remote cluster's gateways.
    pub public_key: [u8; 32],
}

/// The role of a cluster's gateways in a peering.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// The gateways wait for handshake initiations of the peer.
    Server,
    /// The gateways initiate handshakes with the exposed endpoints of the peer.
    Client {
        /// IPv4 addresses or host names of the endpoints.
        addresses: Vec<String>,
        /// UDP port of all endpoints.
        port: u16,
    },
}

/// The spec of an IP object, which maps an address into the external CIDR.
#[derive(Clone, Debug, PartialEq)]
pub struct MappedAddress {
    /// The original address (`spec.ip`).
    pub ip: Ipv4Addr,
    /// Whether packets to the address get a node's address as source (`spec.masquerade`).
    pub masquerade: bool,
}

/// Returns the name of the subdirectory of [`Lab::key_dir`](super::Lab::key_dir) with the private
/// key for a peer.
pub(super) fn secret_name(remote: &str) -> String {
    format!("gw-{remote}")
}

/// Returns all objects of a cluster, without the statuses that `gateway plan` allocates.
pub(super) fn objects(cluster: &Cluster, desired: &Desired) -> Vec<Value> {
    let spec = &cluster.spec;
    let mut objects = vec![cluster_id(cluster.name())];

    objects.extend(cluster.nodes.iter().map(|node| {
        let ready = if node.alive { "True" } else { "Unknown" };
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name},
            "spec": {"podCIDR": node.pod_cidrs[0], "podCIDRs": node.pod_cidrs},
            "status": {
                "addresses": [{"type": "InternalIP", "address": node.internal_ip}],
                "conditions": [{"type": "Ready", "status": ready}],
            },
        })
    }));
    objects.push(gateways(cluster));

    for (index, cidr) in spec.pod_cidrs.iter().enumerate() {
        let name = match index {
            0 => "pod-cidr".to_owned(),
            _ => format!("pod-cidr-{}", index + 1),
        };
        objects.push(network(&name, "pod-cidr", *cidr));
    }
    objects.push(network("service-cidr", "service-cidr", spec.service_cidr));
    objects.push(network(
        "external-cidr",
        "external-cidr",
        spec.external_cidr,
    ));
    for (name, cidr) in &desired.reserved {
        objects.push(network(name, "reserved", *cidr));
    }

    for (id, remote) in &desired.remotes {
        objects.extend(peering(id, remote, spec.exposure));
    }
    objects.extend(desired.ips.iter().map(|(name, address)| {
        json!({
            "apiVersion": "ipam.liqo.io/v1alpha1",
            "kind": "IP",
            "metadata": {"name": name, "namespace": LIQO},
            "spec": {"ip": address.ip, "masquerade": address.masquerade},
        })
    }));

    objects
}

/// Adds the allocations of the existing fabric file `old` to the objects `new`.
///
/// An object whose spec has not changed keeps its status. An object that `gateway plan` has added
/// is kept if the object for which it was added still exists.
pub(super) fn keep_plan(new: Vec<Value>, old: &[Value]) -> Vec<Value> {
    let known: BTreeMap<[String; 3], &Value> =
        old.iter().map(|object| (key(object), object)).collect();
    let mut merged: Vec<Value> = new
        .into_iter()
        .map(|mut object| {
            if let Some(old) = known.get(&key(&object))
                && object.get("status").is_none()
                && old["spec"] == object["spec"]
                && let Some(status) = old.get("status")
            {
                object["status"] = status.clone();
            }
            object
        })
        .collect();

    let present: Vec<[String; 3]> = merged.iter().map(key).collect();
    let added = old
        .iter()
        .filter(|object| !present.contains(&key(object)) && is_planned_for(object, &merged))
        .cloned()
        .collect::<Vec<_>>();
    merged.extend(added);

    merged
}

/// Returns whether `object` belongs to a Node or a Configuration in `objects`. `gateway plan` adds
/// an IP object for each Node, and Networks for each Configuration.
fn is_planned_for(object: &Value, objects: &[Value]) -> bool {
    let has = |kind: &str, name: &str| {
        objects
            .iter()
            .any(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();

    match object["kind"].as_str() {
        Some("IP") => name
            .strip_prefix("node-")
            .is_some_and(|node| has("Node", node)),
        Some("Network") => object["metadata"]["labels"]["liqo.io/remote-cluster-id"]
            .as_str()
            .is_some_and(|remote| has("Configuration", remote)),
        _ => false,
    }
}

pub(super) fn parse(text: &str) -> Result<Vec<Value>> {
    serde_saphyr::from_multiple(text).context("failed to parse a fabric file")
}

pub(super) fn print(objects: &[Value]) -> Result<String> {
    let documents = objects
        .iter()
        .map(serde_saphyr::to_string)
        .collect::<Result<Vec<_>, _>>()
        .context("failed to write a fabric file")?;

    Ok(documents.join("---\n"))
}

/// Returns the remapped address for `address`, which is an original address of the cluster
/// `remote`.
pub(super) fn seen(objects: &[Value], remote: &str, address: Ipv4Addr) -> Option<Ipv4Addr> {
    let configuration = objects.iter().find(|object| {
        object["kind"] == "Configuration"
            && object["metadata"]["labels"]["liqo.io/remote-cluster-id"] == remote
    })?;
    let nets = |part: &str, kind: &str| -> Vec<Ipv4Net> {
        let list = configuration[part]["remote"]["cidr"][kind].as_array();
        list.into_iter()
            .flatten()
            .filter_map(|net| net.as_str()?.parse().ok())
            .collect()
    };

    ["pod", "external"].into_iter().find_map(|kind| {
        let (from, to) = nets("spec", kind)
            .into_iter()
            .zip(nets("status", kind))
            .find(|(from, _)| from.contains(&address))?;
        let host = address.to_bits() & from.hostmask().to_bits();
        Some(Ipv4Addr::from_bits(to.network().to_bits() | host))
    })
}

/// Returns the address in the external CIDR that `gateway plan` has allocated to an IP object.
pub(super) fn mapped(objects: &[Value], name: &str) -> Option<Ipv4Addr> {
    objects
        .iter()
        .find(|object| object["kind"] == "IP" && object["metadata"]["name"] == name)?["status"]["ip"]
        .as_str()?
        .parse()
        .ok()
}

fn cluster_id(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "liqo-clusterid-configmap",
            "namespace": LIQO,
            "labels": {"app.kubernetes.io/name": "clusterid-configmap"},
        },
        "data": {"CLUSTER_ID": name},
    })
}

fn gateways(cluster: &Cluster) -> Value {
    let endpoints: Vec<Value> = cluster
        .gateways
        .iter()
        .map(|gateway| {
            json!({
                "addresses": [gateway.pod.address],
                "nodeName": gateway.pod.node,
                "targetRef": {"kind": "Pod", "name": gateway.pod.name, "namespace": LIQO},
                "conditions": {"ready": gateway.ready},
            })
        })
        .collect();

    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "liqo-gateway",
            "namespace": LIQO,
            "labels": {"networking.liqo.io/component": "gateway"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "wireguard", "port": GATEWAY_PORT, "protocol": "UDP"}],
        "endpoints": endpoints,
    })
}

fn network(name: &str, kind: &str, cidr: Ipv4Net) -> Value {
    let mut labels = json!({"ipam.liqo.io/network-type": kind});
    if kind != "external-cidr" {
        labels["ipam.liqo.io/network-not-remapped"] = json!("true");
    }

    json!({
        "apiVersion": "ipam.liqo.io/v1alpha1",
        "kind": "Network",
        "metadata": {"name": name, "namespace": LIQO, "labels": labels},
        "spec": {"cidr": cidr},
    })
}

fn peering(id: &str, remote: &Remote, exposure: Exposure) -> [Value; 3] {
    let metadata = json!({
        "name": id,
        "namespace": format!("liqo-tenant-{id}"),
        "labels": {"liqo.io/remote-cluster-id": id},
    });
    let template = |kind: &str, name: &str| {
        json!({
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": kind,
            "name": name,
            "namespace": LIQO,
        })
    };

    let configuration = json!({
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "Configuration",
        "metadata": metadata,
        "spec": {"remote": {"cidr": {
            "pod": remote.pod_cidrs,
            "external": [remote.external_cidr],
        }}},
    });
    let gateway = match &remote.role {
        Role::Server => {
            let mut endpoint = json!({"port": GATEWAY_PORT, "serviceType": "LoadBalancer"});
            if exposure == Exposure::NodePort {
                endpoint["serviceType"] = json!("NodePort");
                endpoint["nodePort"] = json!(NODE_PORT);
            }
            json!({
                "apiVersion": "networking.liqo.io/v1beta1",
                "kind": "GatewayServer",
                "metadata": metadata,
                "spec": {
                    "endpoint": endpoint,
                    "mtu": remote.mtu,
                    "serverTemplateRef": template("WgGatewayServerTemplate", "wireguard-server"),
                },
            })
        }
        Role::Client { addresses, port } => json!({
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": "GatewayClient",
            "metadata": metadata,
            "spec": {
                "endpoint": {"addresses": addresses, "port": port, "protocol": "UDP"},
                "mtu": remote.mtu,
                "clientTemplateRef": template("WgGatewayClientTemplate", "wireguard-client"),
            },
        }),
    };
    let public_key = json!({
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "PublicKey",
        "metadata": metadata,
        "spec": {"publicKey": super::key::base64(&remote.public_key)},
    });

    [configuration, gateway, public_key]
}

fn key(object: &Value) -> [String; 3] {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];

    [
        text(&object["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"]),
    ]
}

/// Namespace of the objects that belong to no peer.
const LIQO: &str = "liqo";
