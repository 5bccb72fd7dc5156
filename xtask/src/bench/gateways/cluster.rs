//! The clusters at the two ends of the tunnel, and the Kubernetes objects that configure their
//! gateways.

use super::super::cable;
use ::tests::lab::key::base64;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// A cluster with one gateway, at one end of the tunnel.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The cluster id.
    pub(super) name: &'static str,
    /// The gateway's address on the underlay.
    pub(super) underlay: Ipv4Addr,
    /// The pod CIDR, which the peer does not remap.
    pub(super) pods: &'static str,
    /// The external CIDR, which the peer does not remap.
    pub(super) external: &'static str,
    /// The address of the gateway's TAP, which is in the pod CIDR.
    pub(super) address: Ipv4Addr,
    /// Whether the gateway has the client role, which initiates the session.
    pub(super) is_client: bool,
}

/// The cluster of the measuring client.
pub(super) const CLIENT: Cluster = Cluster {
    name: "client",
    underlay: cable::CLIENT,
    pods: "10.202.1.0/24",
    external: "10.203.1.0/24",
    address: Ipv4Addr::new(10, 202, 1, 1),
    is_client: true,
};

/// The cluster of the measuring server.
pub(super) const SERVER: Cluster = Cluster {
    name: "server",
    underlay: cable::SERVER,
    pods: "10.202.2.0/24",
    external: "10.203.2.0/24",
    address: Ipv4Addr::new(10, 202, 2, 1),
    is_client: false,
};

/// The UDP port on which both gateways listen.
pub(super) const PORT: u16 = 51840;

/// The namespace of Liqo's own objects.
const LIQO: &str = "liqo";

/// Returns the Kubernetes objects that describe a gateway's own cluster.
pub(super) fn objects(own: &Cluster) -> Vec<Value> {
    let network = |kind: &str, cidr: &str| {
        json!({
            "apiVersion": "ipam.liqo.io/v1alpha1",
            "kind": "Network",
            "metadata": {
                "name": kind,
                "namespace": LIQO,
                "labels": {
                    "ipam.liqo.io/network-type": kind,
                    "ipam.liqo.io/network-not-remapped": "true",
                },
            },
            "spec": {"cidr": cidr},
        })
    };
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "liqo-clusterid-configmap",
                "namespace": LIQO,
                "labels": {"app.kubernetes.io/name": "clusterid-configmap"},
            },
            "data": {"CLUSTER_ID": own.name},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "liqo-gateway",
                "namespace": LIQO,
                "labels": {"networking.liqo.io/component": "gateway"},
            },
            "addressType": "IPv4",
            "ports": [{"name": "wireguard", "port": PORT, "protocol": "UDP"}],
            "endpoints": [{
                "addresses": [own.underlay],
                "nodeName": own.name,
                "targetRef": {"kind": "Pod", "name": own.name, "namespace": LIQO},
                "conditions": {"ready": true},
            }],
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": own.name},
            "spec": {"podCIDR": own.pods, "podCIDRs": [own.pods]},
            "status": {
                "addresses": [{"type": "InternalIP", "address": own.underlay}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }),
        network("pod-cidr", own.pods),
        network("external-cidr", own.external),
    ]
}

/// The attributes of a remote cluster that a gateway needs to connect to that cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer<'a> {
    /// The cluster id of the peer.
    pub(super) name: &'a str,
    /// The peer's address on the underlay; `None` if the peer initiates the session.
    pub(super) endpoint: Option<Ipv4Addr>,
    pub(super) pods: &'a str,
    pub(super) external: &'a str,
    /// The WireGuard public key of the peer.
    pub(super) key: [u8; 32],
    /// Upper bound of the tunnel's MTU in bytes.
    pub(super) mtu: u16,
}

impl Cluster {
    /// Returns the attributes of this cluster that the other gateway needs. `key` is the public key
    /// of this cluster's gateway, and `mtu` the upper bound of the tunnel's MTU in bytes.
    pub(super) fn as_peer(&self, key: [u8; 32], mtu: u16) -> Peer<'_> {
        Peer {
            name: self.name,
            endpoint: (!self.is_client).then_some(self.underlay),
            pods: self.pods,
            external: self.external,
            key,
            mtu,
        }
    }
}

impl Peer<'_> {
    /// Returns the Kubernetes objects that configure a gateway for the peer.
    pub(super) fn objects(&self) -> Vec<Value> {
        let metadata = json!({
            "name": self.name,
            "namespace": format!("liqo-tenant-{}", self.name),
            "labels": {"liqo.io/remote-cluster-id": self.name},
        });
        let gateway = match self.endpoint {
            Some(address) => json!({
                "apiVersion": "networking.liqo.io/v1beta1",
                "kind": "GatewayClient",
                "metadata": metadata,
                "spec": {
                    "endpoint": {"addresses": [address], "port": PORT, "protocol": "UDP"},
                    "mtu": self.mtu,
                },
            }),
            None => json!({
                "apiVersion": "networking.liqo.io/v1beta1",
                "kind": "GatewayServer",
                "metadata": metadata,
                "spec": {
                    "endpoint": {"port": PORT, "serviceType": "LoadBalancer"},
                    "mtu": self.mtu,
                },
            }),
        };

        vec![
            json!({
                "apiVersion": "networking.liqo.io/v1beta1",
                "kind": "Configuration",
                "metadata": metadata,
                "spec": {"remote": {"cidr": {"pod": [self.pods], "external": [self.external]}}},
            }),
            gateway,
            json!({
                "apiVersion": "networking.liqo.io/v1beta1",
                "kind": "PublicKey",
                "metadata": metadata,
                "spec": {"publicKey": base64(&self.key)},
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_the_id_and_cidrs_of_its_own_cluster() {
        let at_client = [objects(&CLIENT), SERVER.as_peer([1; 32], 1420).objects()].concat();
        let at_server = [objects(&SERVER), CLIENT.as_peer([2; 32], 1420).objects()].concat();

        let of = |objects: &[Value], kind: &str| {
            let found = objects.iter().find(|object| object["kind"] == kind);
            found.cloned().unwrap_or_default()
        };
        for (own, other) in [(&at_client, &at_server), (&at_server, &at_client)] {
            let known = of(own, "Configuration");
            let itself = of(other, "Network");
            assert_eq!(
                known["spec"]["remote"]["cidr"]["pod"][0],
                itself["spec"]["cidr"]
            );
            assert_eq!(
                known["metadata"]["name"],
                of(other, "ConfigMap")["data"]["CLUSTER_ID"]
            );
        }
        let client = of(&at_client, "GatewayClient");
        let slice = of(&at_server, "EndpointSlice");
        assert_eq!(
            client["spec"]["endpoint"]["addresses"],
            slice["endpoints"][0]["addresses"]
        );
    }
}
