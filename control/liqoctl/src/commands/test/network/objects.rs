//! The objects of the test in each cluster. PURE except [`create`] and [`remove`].

use crate::cluster::Cluster;
use anyhow::Result;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::{Value, json};

/// Namespace of the objects.
pub(crate) const NAMESPACE: &str = "liqo-test";
/// Label of the pods. Its values are the names of the DaemonSets.
pub(crate) const APP: &str = "app";
/// DaemonSet of the servers, which are in the pod network.
pub(crate) const PODS: &str = "liqo-test-pod";
/// DaemonSet of the clients, which are in the host network.
pub(crate) const NODES: &str = "liqo-test-node";
/// Port of the servers.
pub(crate) const PORT: i32 = 8080;

/// Serves a page with the first HTTP server that the image contains.
const SERVE: &str = "mkdir -p /tmp/www && hostname > /tmp/www/index.html || exit 1
if command -v httpd >/dev/null; then exec httpd -f -p 8080 -h /tmp/www; fi
if busybox httpd --help >/dev/null 2>&1; then exec busybox httpd -f -p 8080 -h /tmp/www; fi
if command -v python3 >/dev/null; then exec python3 -m http.server 8080 --directory /tmp/www; fi
echo 'the image has none of httpd, busybox with httpd, python3' >&2; exit 1";

const SLEEP: &str = "while :; do sleep 3600; done";

/// Creates the namespace and the DaemonSets.
///
/// # Errors
///
/// Returns an error if the API server refuses an object.
pub(crate) async fn create(cluster: &Cluster, image: &str) -> Result<()> {
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    cluster.apply(&namespaces, namespace()).await?;
    let sets = Api::<DaemonSet>::namespaced(cluster.client.clone(), NAMESPACE);
    tokio::try_join!(
        cluster.apply(&sets, daemon_set(PODS, image, false)),
        cluster.apply(&sets, daemon_set(NODES, image, true)),
    )?;
    Ok(())
}

/// Deletes the namespace, without waiting.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn remove(cluster: &Cluster) -> Result<()> {
    let api = Api::<Namespace>::all(cluster.client.clone());
    cluster.delete(&api, "namespace", NAMESPACE).await?;
    Ok(())
}

fn namespace() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": NAMESPACE,
            "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
        },
    })
}

fn daemon_set(name: &str, image: &str, is_host: bool) -> Value {
    let mut container = json!({
        "name": "test",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", if is_host { SLEEP } else { SERVE }],
    });
    if !is_host {
        container["readinessProbe"] = json!({
            "tcpSocket": {"port": PORT}, "periodSeconds": 1,
        });
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {APP: name}},
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {
                "metadata": {"labels": {APP: name}},
                "spec": {
                    "hostNetwork": is_host,
                    "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": false,
                    "tolerations": [{"operator": "Exists"}],
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [
                            {"key": "liqo.io/type", "operator": "NotIn", "values": ["virtual-node"]},
                        ]}],
                    }}},
                    "containers": [container],
                },
            },
        },
    })
}

/// Returns a Service whose endpoints are a peer's pods, and its EndpointSlice.
pub(crate) fn service(peer: &str, type_: &str, addresses: &[String]) -> (Value, Value) {
    let name = service_name(peer, type_);
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"type": type_, "ports": [{"name": "http", "port": PORT, "protocol": "TCP", "targetPort": PORT}]},
    });
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
        .collect();
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "liqoctl"},
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": PORT, "protocol": "TCP"}],
    });
    (service, slice)
}

/// Returns the name of that Service. The cluster ID is shortened, because names of Services are
/// limited to 63 characters.
pub(crate) fn service_name(peer: &str, type_: &str) -> String {
    let short: String = peer.chars().take(40).collect();
    format!("to-{short}-{}", type_.to_ascii_lowercase())
}

/// Returns an IP object, which gives `address` an address of the external CIDR.
pub(crate) fn ip(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "ipam.liqo.io/v1alpha1",
        "kind": "IP",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"ip": address},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_belongs_to_its_service() {
        let (service, slice) = service("milan", "NodePort", &["10.71.1.2".into()]);

        assert_eq!(service["metadata"]["name"], "to-milan-nodeport");
        assert_eq!(
            slice["metadata"]["labels"]["kubernetes.io/service-name"],
            service["metadata"]["name"]
        );
        assert!(service_name(&"a".repeat(51), "LoadBalancer").len() <= 63);
    }

    #[test]
    fn pods_in_the_host_network_serve_nothing() {
        let of = |is_host| daemon_set("x", "image", is_host)["spec"]["template"]["spec"].clone();

        assert_eq!(of(true)["hostNetwork"], true);
        assert!(of(true)["containers"][0].get("readinessProbe").is_none());
        assert_eq!(of(false)["hostNetwork"], false);
    }
}
