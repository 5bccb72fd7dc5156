//! The watch against an API server that goes away and comes back.

use super::*;
use fake_apiserver::ApiServer;
use prometheus_client::registry::Registry;
use serde_json::json;

/// How long anything may take here: the watches wait longer and longer before they ask again.
const DEADLINE: Duration = Duration::from_secs(60);

/// Interval at which a condition is checked of which nothing notifies.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

#[tokio::test]
async fn a_watch_that_starts_before_the_api_server_waits_for_it() {
    let mut server = ApiServer::closed();
    put_node(&server, "rome-1");
    let mut watch = watch(&server);
    let early = tokio::time::timeout(Duration::from_secs(1), watch.wait_until_complete()).await;
    assert!(early.is_err() && is_failing(&watch));

    server.listen();

    within(watch.wait_until_complete()).await;
    assert_eq!(nodes(&mut watch), ["rome-1"]);
}

#[tokio::test]
async fn the_last_objects_stay_in_force_while_the_api_server_is_unreachable() {
    let mut server = ApiServer::start();
    put_node(&server, "rome-1");
    put_node(&server, "rome-2");
    let mut watch = watch(&server);
    within(watch.wait_until_complete()).await;

    server.close();
    server.remove("/api/v1/nodes/rome-1");
    put_node(&server, "rome-3");
    within(async {
        while !is_failing(&watch) {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    })
    .await;
    assert_eq!(nodes(&mut watch), ["rome-1", "rome-2"]);
    server.listen();

    within(async {
        while nodes(&mut watch) != ["rome-2", "rome-3"] {
            watch.changed().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_calico_block_replaces_the_pod_prefix_of_a_node() {
    let server = ApiServer::start();
    put_node(&server, "rome-1");
    let network = json!({
        "metadata": {
            "name": "pod-cidr",
            "namespace": "liqo",
            "labels": {"ipam.liqo.io/network-type": "pod-cidr"},
        },
        "spec": {"cidr": "10.244.0.0/16"},
    });
    server.put(
        "/apis/ipam.liqo.io/v1alpha1/namespaces/liqo/networks/pod-cidr",
        network,
    );
    let mut watch = watch(&server);
    within(watch.wait_until_complete()).await;
    let path = "/apis/crd.projectcalico.org/v1/ipamblocks/10-244-7-0-26";
    let spec = json!({"cidr": "10.244.7.0/26", "affinity": "host:rome-1"});

    server.put(
        path,
        json!({"metadata": {"name": "10-244-7-0-26"}, "spec": spec}),
    );

    within(async {
        while pods(&mut watch) != ["10.244.7.0/26"] {
            watch.changed().await;
        }
    })
    .await;
    server.remove(path);
    within(async {
        while !pods(&mut watch).is_empty() {
            watch.changed().await;
        }
    })
    .await;
}

#[tokio::test]
async fn all_watches_share_one_connection() {
    let server = ApiServer::start_tls();
    put_node(&server, "rome-1");
    let mut watch = watch(&server);

    within(watch.wait_until_complete()).await;
    put_node(&server, "rome-2");
    within(async {
        while nodes(&mut watch) != ["rome-1", "rome-2"] {
            watch.changed().await;
        }
    })
    .await;

    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_missing_cni_is_requested_once_and_is_no_failure() {
    let server = ApiServer::start();
    server.forget_group("crd.projectcalico.org");
    server.forget_group("cilium.io");
    let mut watch = watch(&server);
    within(watch.wait_until_complete()).await;

    // Long enough for several attempts of a watch that fails.
    let some_time = Duration::from_secs(5);
    let endless = async {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            assert!(!is_failing(&watch));
        }
    };
    let ended = tokio::time::timeout(some_time, endless).await;

    assert!(ended.is_err());
    for group in ["crd.projectcalico.org", "cilium.io"] {
        assert_eq!(server.refused(group), 1, "{group}");
    }
}

#[tokio::test]
async fn an_object_of_a_peer_counts_once_its_namespace_has_the_tenant_labels() {
    let server = ApiServer::start();
    let labels = json!({"liqo.io/remote-cluster-id": "milan"});
    server.put(
        "/apis/networking.liqo.io/v1beta1/namespaces/developers/publickeies/milan",
        json!({
            "metadata": {"name": "milan", "namespace": "developers", "labels": labels},
            "spec": {"publicKey": "AAAA"},
        }),
    );
    let mut watch = watch(&server);
    within(watch.wait_until_complete()).await;
    assert_eq!(misplaced(&mut watch), ["milan"]);
    let namespace = |is_tenant: &str| {
        let labels = json!({
            "liqo.io/remote-cluster-id": "milan",
            "liqo.io/tenant-namespace": is_tenant,
        });
        server.put(
            "/api/v1/namespaces/developers",
            json!({"metadata": {"name": "developers", "labels": labels}}),
        );
    };

    namespace("true");

    within(async {
        while !misplaced(&mut watch).is_empty() {
            watch.changed().await;
        }
    })
    .await;
    server.remove("/api/v1/namespaces/developers");
    within(async {
        while misplaced(&mut watch).is_empty() {
            watch.changed().await;
        }
    })
    .await;
}

/// Returns the peers of which objects are left out for their namespace.
fn misplaced(watch: &mut Watch) -> Vec<String> {
    let refused = &watch.resolve().refused;
    let peers = refused.iter().filter_map(|error| {
        let control_fabric::Problem::Misplaced(problem) = &error.problem else {
            return None;
        };
        Some(problem.peer().to_owned())
    });
    peers.collect()
}

fn pods(watch: &mut Watch) -> Vec<String> {
    watch.resolve();
    let objects = watch.resolver.objects();
    let nodes = objects.filter_map(|it| <&k8s_openapi::api::core::v1::Node>::try_from(it).ok());
    let specs = nodes.filter_map(|node| node.spec.clone()?.pod_cidrs);
    specs.flatten().collect()
}

fn watch(server: &ApiServer) -> Watch {
    let mut config = Config::new(server.url().parse().unwrap());
    config.root_cert = server.certificate().map(|it| vec![it]);
    let metrics = Metrics::new(&mut Registry::default());
    Watch::with(&config, "liqo", Scope::Gateway, &metrics, |_| Ok(()))
        .expect("the registrations agree")
}

fn is_failing(watch: &Watch) -> bool {
    !watch.status.failing().is_empty()
}

fn put_node(server: &ApiServer, name: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    server.put(&format!("/api/v1/nodes/{name}"), node);
}

fn nodes(watch: &mut Watch) -> Vec<String> {
    watch.resolve();
    let objects = watch.resolver.objects();
    let nodes = objects.filter_map(|it| <&k8s_openapi::api::core::v1::Node>::try_from(it).ok());
    nodes
        .filter_map(|node| node.metadata.name.clone())
        .collect()
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(DEADLINE, future).await;
    result.expect("it comes to an end")
}
