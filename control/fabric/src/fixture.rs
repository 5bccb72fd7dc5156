//! A fabric for tests: cluster `rome` with two nodes, two gateway replicas and two peers, all of whose
//! pods have the same addresses.

use super::{Errors, Fabric, Objects, parse, plan};

/// The file before `plan`.
pub(super) const ROME: &str = r#"# The fabric of rome.
apiVersion: v1
kind: ConfigMap
metadata:
  name: liqo-clusterid-configmap
  namespace: liqo
  labels:
    app.kubernetes.io/name: clusterid-configmap
data:
  CLUSTER_ID: rome
---
apiVersion: v1
kind: Node
metadata:
  name: rome-2
spec:
  podCIDRs: [10.244.2.0/24]
status:
  addresses:
    - type: Hostname
      address: rome-2
    - type: InternalIP
      address: 172.18.1.3
---
apiVersion: v1
kind: Node
metadata:
  name: rome-1
spec:
  podCIDR: 10.244.1.0/24
status:
  addresses:
    - type: InternalIP
      address: 172.18.1.2
  conditions:
    - type: Ready
      status: "False"
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: gateway
  labels:
    networking.liqo.io/component: gateway
addressType: IPv4
endpoints:
  - addresses: [10.244.1.100]
    nodeName: rome-1
    targetRef: {kind: Pod, name: gateway-b}
    conditions: {ready: false}
  - addresses: [10.244.2.100]
    nodeName: rome-2
    targetRef: {kind: Pod, name: gateway-a}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata:
  name: pod-cidr
  namespace: liqo
  labels:
    ipam.liqo.io/network-type: pod-cidr
spec:
  cidr: 10.244.0.0/16
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata:
  name: service-cidr
  namespace: liqo
  labels:
    ipam.liqo.io/network-type: service-cidr
spec:
  cidr: 10.96.0.0/12
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata:
  name: external-cidr
  namespace: liqo
  labels:
    ipam.liqo.io/network-type: external-cidr
spec:
  cidr: 10.70.0.0/16
  preAllocated: 1
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata:
  name: internal-cidr
  namespace: liqo
  labels:
    ipam.liqo.io/network-type: internal-cidr
spec:
  cidr: 10.80.0.0/16
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata:
  name: reserved-10-0-0-0-16
  namespace: liqo
  labels:
    ipam.liqo.io/network-type: reserved
spec:
  cidr: 10.0.0.0/16
---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata:
  name: naples
  namespace: liqo-tenant-naples
  labels:
    liqo.io/remote-cluster-id: naples
spec:
  remote:
    cidr:
      pod: [10.244.0.0/16]
      external: [10.70.0.0/16]
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayClient
metadata:
  name: to-naples
  namespace: liqo-tenant-naples
  labels:
    liqo.io/remote-cluster-id: naples
spec:
  endpoint:
    addresses: [gw.naples.example, 203.0.113.7]
    port: 31110
    protocol: UDP
  mtu: 1280
  secretRef:
    name: my-key
---
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata:
  name: naples
  namespace: liqo-tenant-naples
  labels:
    liqo.io/remote-cluster-id: naples
spec:
  publicKey: Mff4yxtyO/xaHJRQ0eQEpEJcPfFMwGq5/KoSHOaZI2g=
---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata:
  name: milan
  namespace: liqo-tenant-milan
  labels:
    liqo.io/remote-cluster-id: milan
spec:
  remote:
    cidr:
      pod: [10.244.0.0/16, 10.200.0.0/24]
      external: [10.70.0.0/16]
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata:
  name: milan
  namespace: liqo-tenant-milan
  labels:
    liqo.io/remote-cluster-id: milan
spec:
  endpoint:
    port: 51840
    serviceType: NodePort
  secretRef: {}
---
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata:
  name: milan
  namespace: liqo-tenant-milan
  labels:
    liqo.io/remote-cluster-id: milan
spec:
  publicKey: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=
---
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata:
  name: printer
  namespace: office
spec:
  ip: 192.0.2.9
  masquerade: true
---
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata:
  name: web
  namespace: demo
spec:
  ip: 10.244.2.30
"#;

/// Returns the file with `from` replaced by `to`, which must be in it.
pub(super) fn rome_with(from: &str, to: &str) -> String {
    assert!(ROME.contains(from), "`{from}` is not in the file");
    ROME.replacen(from, to, 1)
}

/// Returns the file without its last document that contains `text`.
pub(super) fn rome_without(text: &str) -> String {
    let mut documents: Vec<_> = ROME.split("---\n").collect();
    let index = documents
        .iter()
        .rposition(|document| document.contains(text))
        .unwrap();
    documents.remove(index);
    documents.join("---\n")
}

/// Returns the planned objects of a file.
pub(super) fn planned(text: &str) -> Objects {
    let mut objects = parse(text).unwrap();
    plan(&mut objects).unwrap();
    objects
}

/// Returns the view of a file after planning it.
pub(super) fn fabric(text: &str) -> Fabric {
    Fabric::try_from(&planned(text)).unwrap()
}

/// Returns the errors of planned objects after a change.
pub(super) fn refused(objects: &Objects) -> Vec<String> {
    lines(&Fabric::try_from(objects).unwrap_err())
}

/// Returns the errors of planning a file.
pub(super) fn plan_refused(text: &str) -> Vec<String> {
    let mut objects = parse(text).unwrap();
    let before = objects.clone();

    let errors = plan(&mut objects).unwrap_err();

    assert_eq!(objects, before, "a failed plan changes nothing");
    lines(&errors)
}

/// Checks that planning refuses the file with one error, whose message ends with or contains `expected`.
#[track_caller]
pub(super) fn expect_one(text: &str, expected: &str) {
    let errors = plan_refused(text);

    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(
        errors[0].contains(expected),
        "expected {expected}\n{errors:#?}"
    );
}

/// Returns the messages of errors without the lines of the documents, which each change would move.
fn lines(errors: &Errors) -> Vec<String> {
    let without_lines = |message: &str| {
        let mut parts = message.split(" (line ");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            text + part.split_once(')').map_or(part, |(_, rest)| rest)
        })
    };

    errors.to_string().lines().map(without_lines).collect()
}
