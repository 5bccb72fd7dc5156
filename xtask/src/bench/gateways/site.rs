//! The two ends and the desired state of their gateways: PURE.

use super::super::cable;
use ::tests::lab::key::base64;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// One end.
#[derive(Debug)]
pub(super) struct Site {
    /// Its cluster id.
    pub(super) name: &'static str,
    /// The gateway's address on the underlay.
    pub(super) underlay: Ipv4Addr,
    /// Its pods' addresses, which a peer knows by the same ones.
    pub(super) pods: &'static str,
    /// Its other addresses.
    pub(super) external: &'static str,
    /// The address of its TAP, one of its pods'.
    pub(super) address: Ipv4Addr,
    /// Whether it begins.
    pub(super) is_client: bool,
}

/// The client's.
pub(super) const NEAR: Site = Site {
    name: "near",
    underlay: cable::NEAR,
    pods: "10.202.1.0/24",
    external: "10.203.1.0/24",
    address: Ipv4Addr::new(10, 202, 1, 1),
    is_client: true,
};

/// The server's.
pub(super) const FAR: Site = Site {
    name: "far",
    underlay: cable::FAR,
    pods: "10.202.2.0/24",
    external: "10.203.2.0/24",
    address: Ipv4Addr::new(10, 202, 2, 1),
    is_client: false,
};

/// Where gateways listen.
pub(super) const PORT: u16 = 51840;

/// That of a plain WireGuard.
pub(super) const TUNNEL_MTU: u32 = 1420;

/// Liqo's own namespace.
const LIQO: &str = "liqo";

/// What a gateway has to know of itself.
pub(super) fn objects(own: &Site) -> Vec<Value> {
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

/// What a gateway has to know of a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer<'a> {
    /// Its cluster id.
    pub(super) name: &'a str,
    /// Where it is called; `None` if it is the one that calls.
    pub(super) endpoint: Option<Ipv4Addr>,
    /// Its pods' addresses.
    pub(super) pods: &'a str,
    /// Its other addresses.
    pub(super) external: &'a str,
    /// Its public key.
    pub(super) key: [u8; 32],
}

impl Site {
    /// What another gateway has to know of this one, whose public key is `key`.
    pub(super) fn as_peer(&self, key: [u8; 32]) -> Peer<'_> {
        Peer {
            name: self.name,
            endpoint: (!self.is_client).then_some(self.underlay),
            pods: self.pods,
            external: self.external,
            key,
        }
    }
}

impl Peer<'_> {
    /// The objects that say so.
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
                    "mtu": TUNNEL_MTU,
                },
            }),
            None => json!({
                "apiVersion": "networking.liqo.io/v1beta1",
                "kind": "GatewayServer",
                "metadata": metadata,
                "spec": {
                    "endpoint": {"port": PORT, "serviceType": "LoadBalancer"},
                    "mtu": TUNNEL_MTU,
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
    fn each_end_knows_the_other_as_that_knows_itself() {
        let near = [objects(&NEAR), FAR.as_peer([1; 32]).objects()].concat();
        let far = [objects(&FAR), NEAR.as_peer([2; 32]).objects()].concat();

        let of = |objects: &[Value], kind: &str| {
            let found = objects.iter().find(|object| object["kind"] == kind);
            found.cloned().unwrap_or_default()
        };
        for (own, other) in [(&near, &far), (&far, &near)] {
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
        let client = of(&near, "GatewayClient");
        let slice = of(&far, "EndpointSlice");
        assert_eq!(
            client["spec"]["endpoint"]["addresses"],
            slice["endpoints"][0]["addresses"]
        );
    }
}
