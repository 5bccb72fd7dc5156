//! The objects of the benchmark, of a realistic size. All functions are pure.

use serde_json::{Value, json};

/// The number of tenant namespaces.
pub(crate) const TENANTS: usize = 100;

/// The number of namespaces with pods, EndpointSlices and Services.
pub(crate) const APPLICATIONS: usize = 50;

/// The number of nodes. Each has the same number of pods.
pub(crate) const NODES: usize = 100;

/// The number of endpoints of an EndpointSlice. Most Services have few.
const ENDPOINTS: usize = 3;

/// The namespace of the controller manager.
pub(crate) const LIQO: &str = "liqo";

/// The annotation of the EndpointSlice that ends a series of changes.
const MARKER: &str = "bench.liqo.io/marker";

/// A request to create an object: the path of its resource, and the object.
pub(crate) struct Creation {
    pub(crate) path: String,
    pub(crate) object: Value,
}

impl Creation {
    fn new(path: impl Into<String>, object: Value) -> Self {
        Self {
            path: path.into(),
            object,
        }
    }
}

/// Returns the name of a namespace with pods and EndpointSlices.
pub(crate) fn application(index: usize) -> String {
    format!("application-{}", index % APPLICATIONS)
}

/// Returns all namespaces.
pub(crate) fn namespaces() -> Vec<Creation> {
    let namespace = |name: String, labels: Value| {
        let object = json!({"metadata": {"name": name, "labels": labels}});
        Creation::new("/api/v1/namespaces", object)
    };
    let applications = (0..APPLICATIONS).map(|it| namespace(application(it), json!({})));
    let tenants = (0..TENANTS).map(|it| {
        let labels =
            json!({"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": peer(it)});
        namespace(tenant(it), labels)
    });
    let liqo = namespace(LIQO.to_owned(), json!({}));

    applications.chain(tenants).chain([liqo]).collect()
}

/// Returns the nodes, and the Networks of the controller manager's own cluster.
pub(crate) fn cluster() -> Vec<Creation> {
    let nodes = (0..NODES).map(|it| {
        let object = json!({"metadata": {"name": node(it)}});
        Creation::new("/api/v1/nodes", object)
    });
    let networks = [
        ("pod-cidr", "10.244.0.0/16"),
        ("service-cidr", "10.96.0.0/16"),
        ("external-cidr", "10.70.0.0/16"),
        ("internal-cidr", "10.80.0.0/16"),
    ];
    let networks = networks.into_iter().map(|(name, cidr)| {
        let path = format!("/apis/ipam.liqo.io/v1alpha1/namespaces/{LIQO}/networks");
        let labels = json!({"ipam.liqo.io/network-type": name});
        let object = json!({
            "apiVersion": "ipam.liqo.io/v1alpha1", "kind": "Network",
            "metadata": {"name": name, "labels": labels}, "spec": {"cidr": cidr},
        });
        Creation::new(path, object)
    });

    nodes.chain(networks).collect()
}

/// Returns the objects of the peer of a tenant namespace, as `liqoctl` creates them.
pub(crate) fn peering(index: usize) -> Vec<Creation> {
    let (id, namespace) = (peer(index), tenant(index));
    let object = |kind: &str, plural: &str, spec: Value| {
        let path = format!("/apis/networking.liqo.io/v1beta1/namespaces/{namespace}/{plural}");
        let object = json!({
            "apiVersion": "networking.liqo.io/v1beta1", "kind": kind,
            "metadata": {"name": id, "labels": {"liqo.io/remote-cluster-id": id}}, "spec": spec,
        });
        Creation::new(path, object)
    };
    let cidr = json!({"pod": ["10.244.0.0/16"], "external": ["10.70.0.0/16"]});
    let endpoint = json!({"addresses": ["192.0.2.1"], "port": 51840, "protocol": "UDP"});

    vec![
        object(
            "Configuration",
            "configurations",
            json!({"remote": {"cidr": cidr}}),
        ),
        object(
            "GatewayClient",
            "gatewayclients",
            json!({"endpoint": endpoint, "mtu": 1340}),
        ),
    ]
}

/// Returns the path of the Configuration of a tenant namespace.
pub(crate) fn configuration(index: usize) -> String {
    let (namespace, id) = (tenant(index), peer(index));
    format!("/apis/networking.liqo.io/v1beta1/namespaces/{namespace}/configurations/{id}")
}

/// Returns a pod of a Deployment. Its [`status`](pod_status) is written separately.
pub(crate) fn pod(index: usize) -> Creation {
    let name = pod_name(index);
    let labels = json!({"app": format!("web-{}", index / 2), "pod-template-hash": "6c9f8d7b5d"});
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{}-6c9f8d7b5d", index / 2),
        "uid": "6f1f1b6e-7a0e-4d7c-9d3c-2f6f3a0b1c2d", "controller": true, "blockOwnerDeletion": true,
    });
    let environment: Vec<_> = (0..8)
        .map(|it| json!({"name": format!("SETTING_{it}"), "value": format!("value-{it}")}))
        .collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    let container = json!({
        "name": "web", "image": "registry.example.com/team/web:v1.42.0",
        "ports": [{"name": "http", "containerPort": 8080}], "env": environment,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "readinessProbe": probe, "livenessProbe": probe,
    });
    let object = json!({
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {"nodeName": node(index), "containers": [container]},
    });

    Creation::new(
        format!("/api/v1/namespaces/{}/pods", application(index)),
        object,
    )
}

/// Returns the path of a pod's status, and the status of a running pod.
pub(crate) fn pod_status(index: usize) -> (String, Value) {
    let (namespace, name) = (application(index), pod_name(index));
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
    let conditions: Vec<_> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(|it| json!({"type": it, "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}))
        .into();
    let container = json!({
        "name": "web", "ready": true, "started": true, "restartCount": 0,
        "image": "registry.example.com/team/web:v1.42.0", "imageID": "sha256:0123456789abcdef",
        "containerID": "containerd://0123456789abcdef",
        "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
    });
    let address = address(index);
    let status = json!({
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "hostIP": "172.18.1.2",
        "conditions": conditions, "containerStatuses": [container],
    });

    (path, json!({"status": status}))
}

/// Returns an EndpointSlice of its own Service.
pub(crate) fn slice(index: usize) -> Creation {
    let service = format!("service-{index}");
    let labels = json!({
        "kubernetes.io/service-name": service,
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    });
    let object = json!({
        "metadata": {"name": slice_name(index), "labels": labels}, "addressType": "IPv4",
        "endpoints": endpoints(index, true),
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    });
    let namespace = application(index);

    Creation::new(
        format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"),
        object,
    )
}

/// Returns the path of an EndpointSlice, and a merge patch that changes whether an endpoint is ready.
pub(crate) fn slice_change(index: usize, is_ready: bool) -> (String, Value) {
    (
        slice_path(index),
        json!({"endpoints": endpoints(index, is_ready)}),
    )
}

/// Returns the path of an EndpointSlice, and a merge patch that sets the marker.
pub(crate) fn slice_marker(index: usize, marker: &str) -> (String, Value) {
    let annotations = json!({MARKER: marker});
    (
        slice_path(index),
        json!({"metadata": {"annotations": annotations}}),
    )
}

fn slice_path(index: usize) -> String {
    let (namespace, name) = (application(index), slice_name(index));
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{name}")
}

/// Returns the endpoints of an EndpointSlice, of which the first is ready or not.
fn endpoints(index: usize, is_ready: bool) -> Vec<Value> {
    let endpoints = (0..ENDPOINTS).map(|it| {
        let pod = index * ENDPOINTS + it;
        let is_ready = it > 0 || is_ready;
        json!({
            "addresses": [address(pod)],
            "conditions": {"ready": is_ready, "serving": is_ready, "terminating": false},
            "nodeName": node(pod), "zone": "zone-a",
            "targetRef": {
                "kind": "Pod", "namespace": application(index), "name": pod_name(pod),
                "uid": "6f1f1b6e-7a0e-4d7c-9d3c-2f6f3a0b1c2d",
            },
        })
    });

    endpoints.collect()
}

fn peer(index: usize) -> String {
    format!("peer-{index}")
}

fn tenant(index: usize) -> String {
    format!("liqo-tenant-{}", peer(index))
}

fn node(index: usize) -> String {
    format!("node-{}", index % NODES)
}

fn pod_name(index: usize) -> String {
    format!("web-{}-6c9f8d7b5d-{index:05}", index / 2)
}

fn slice_name(index: usize) -> String {
    format!("service-{index}-x7k2p")
}

fn address(index: usize) -> String {
    format!("10.244.{}.{}", index / 250 % 250, index % 250 + 1)
}
