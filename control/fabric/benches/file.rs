//! Fabric files of any size.

use std::fmt::{self, Write as _};

/// How large a cluster is.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    nodes: u32,
    peers: u32,
}

/// From a usual cluster to the largest that Kubernetes supports.
pub(crate) const SIZES: [Size; 3] = [
    Size {
        nodes: 50,
        peers: 10,
    },
    Size {
        nodes: 500,
        peers: 100,
    },
    Size {
        nodes: 5_000,
        peers: 1_000,
    },
];

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes, {} peers", self.nodes, self.peers)
    }
}

/// Writes the file of a cluster of this size.
pub(crate) fn of(size: Size) -> String {
    let mut text = OWN.to_owned();
    for number in 0..size.nodes {
        node(&mut text, number);
    }
    for number in 0..size.peers {
        peer(&mut text, number);
    }

    text
}

/// Writes the IP objects of as many outside hosts as the cluster has peers.
pub(crate) fn outside(size: Size) -> String {
    let mut text = String::new();
    for number in 0..size.peers {
        let (high, low) = (number / 256, number % 256);
        let _ = write!(
            text,
            "---
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {{name: outside-{number:05}, namespace: liqo}}
spec: {{ip: 198.18.{high}.{low}}}
"
        );
    }

    text
}

/// Writes the EndpointSlice of three gateway replicas on the first nodes.
pub(crate) fn replicas() -> String {
    let endpoint = |number: u32| {
        format!(
            "{{addresses: [10.128.{number}.100], nodeName: node-{number:05}, \
             targetRef: {{kind: Pod, name: gateway-{number}}}, conditions: {{ready: true}}}}"
        )
    };
    let endpoints: Vec<_> = (0..3).map(endpoint).collect();

    format!(
        "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: gateways, namespace: liqo, labels: {{networking.liqo.io/component: gateway}}}}
addressType: IPv4
endpoints: [{}]
",
        endpoints.join(", ")
    )
}

const OWN: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: id, namespace: liqo, labels: {app.kubernetes.io/name: clusterid-configmap}}
data: {CLUSTER_ID: home}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: pod-cidr, namespace: liqo, labels: {ipam.liqo.io/network-type: pod-cidr}}
spec: {cidr: 10.128.0.0/9}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: service-cidr, namespace: liqo, labels: {ipam.liqo.io/network-type: service-cidr}}
spec: {cidr: 10.96.0.0/12}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: external-cidr, namespace: liqo, labels: {ipam.liqo.io/network-type: external-cidr}}
spec: {cidr: 10.70.0.0/16}
";

fn node(text: &mut String, number: u32) {
    let (high, low) = (number / 256, number % 256);
    let _ = write!(
        text,
        "---
apiVersion: v1
kind: Node
metadata: {{name: node-{number:05}}}
spec: {{podCIDRs: [10.{}.{low}.0/24]}}
status: {{addresses: [{{type: InternalIP, address: 192.168.{high}.{low}}}], \
         conditions: [{{type: Ready, status: 'True'}}]}}
",
        128 + high
    );
}

/// A peer with the same addresses as all others, and ten prefixes.
fn peer(text: &mut String, number: u32) {
    let labels = format!("labels: {{liqo.io/remote-cluster-id: cluster-{number:05}}}");
    let metadata =
        format!("metadata: {{name: cluster-{number:05}, namespace: tenant-{number:05}, {labels}}}");
    let pods: Vec<_> = (0..9).map(|third| format!("10.244.{third}.0/24")).collect();
    let _ = write!(
        text,
        "---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
{metadata}
spec: {{remote: {{cidr: {{pod: [{}], external: [10.70.0.0/24]}}}}}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
{metadata}
spec: {{endpoint: {{port: 51840}}, mtu: 1340}}
---
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
{metadata}
spec: {{publicKey: {}}}
",
        pods.join(", "),
        key(number)
    );
}

/// A key of its own for each number, in base64.
fn key(number: u32) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |shift: u32| char::from(DIGITS[((number >> shift) & 63) as usize]);

    format!("{}{}{}{}A=", "A".repeat(39), digit(12), digit(6), digit(0))
}
