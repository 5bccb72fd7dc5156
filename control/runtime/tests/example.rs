//! The example of the crate's documentation, run against an API server in memory.

mod example {
    use control_runtime::{
        Cache, Change, Cluster, Controller, Env, Key, Plan, Ref, Registration, Scope,
    };
    use k8s_openapi::api::core::v1::{ConfigMap, Node, NodeStatus};
    use serde_json::json;

    /// Keeps a ConfigMap for each node, with the addresses of the node.
    pub(crate) struct NodeAddresses;

    impl Controller for NodeAddresses {
        type Item = String; // Name of a node.
        const NAME: &'static str = "node-addresses";
        const FIELD_MANAGER: &'static str = "node-addresses";

        fn resources(&self) -> Vec<Registration> {
            // Heartbeats change the status every few seconds, so only the addresses are kept.
            let nodes = Registration::of(Scope::All, |node: Node| Node {
                metadata: node.metadata,
                status: Some(NodeStatus {
                    addresses: node.status.and_then(|status| status.addresses),
                    ..NodeStatus::default()
                }),
                spec: None,
            });
            let maps = Registration::of(Scope::Namespace("addresses".into()), |map: ConfigMap| map)
                .verbs(&["create", "patch", "delete"]);
            vec![nodes, maps]
        }

        fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<String> {
            // The ConfigMap has the name of the node, so both kinds of change concern one item.
            vec![change.object.key.name.clone()]
        }

        fn plan(&mut self, name: &String, cache: &Cache, _: &mut Env<'_>) -> Plan<String> {
            let mut plan = Plan::default();
            let key = Key::new("addresses", name);
            let map = Ref::of::<ConfigMap>(&Cluster::Local, &key);
            let present = cache.local::<ConfigMap>(&key);
            let Some(node) = cache.local::<Node>(&Key::cluster(name)) else {
                if let Some(uid) = present.and_then(|map| map.metadata.uid.clone()) {
                    plan.delete(map, uid);
                }
                return plan;
            };
            let status = node.status.iter();
            let addresses = status.flat_map(|status| status.addresses.iter().flatten());
            let addresses: Vec<_> = addresses.map(|it| it.address.as_str()).collect();
            let wanted = addresses.join(",");
            let data = present.and_then(|map| map.data.as_ref()?.get("addresses"));
            if data != Some(&wanted) {
                plan.apply(map, json!({"data": {"addresses": wanted}}));
            }
            plan
        }
    }
}

use control_runtime::{Metrics, Runtime, RuntimeStatus, Settings};
use fake_apiserver::ApiServer;
use prometheus_client::registry::Registry;
use serde_json::json;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const DEADLINE: Duration = Duration::from_secs(30);

struct Process {
    status: RuntimeStatus,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn start(server: &ApiServer) -> Process {
    let config = kube::Config::new(server.url().parse().unwrap());
    let client = control_runtime::transport::client(&config).unwrap();
    let settings = Settings {
        name: "example",
        identity: "example-0".into(),
        lease: None,
        random: || [0; 32],
    };
    let metrics = Metrics::new(&mut Registry::default());
    let mut runtime = Runtime::new(client, settings, metrics);
    runtime.add(example::NodeAddresses).unwrap();
    let status = runtime.status();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(runtime.run(async { drop(stopped.await) }));

    Process { status, stop, task }
}

fn put_node(server: &ApiServer, name: &str, address: &str) {
    server.put(
        &format!("/api/v1/nodes/{name}"),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]}}),
    );
}

fn addresses(server: &ApiServer, name: &str) -> Option<String> {
    let map = server.get(&format!("/api/v1/namespaces/addresses/configmaps/{name}"))?;
    Some(map["data"]["addresses"].as_str()?.to_owned())
}

async fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, waited).await;
    waited.unwrap_or_else(|_| panic!("waited too long for {what}"));
}

#[tokio::test]
async fn a_controller_follows_objects_and_repairs_what_it_wrote() {
    let mut server = ApiServer::start();
    put_node(&server, "rome-1", "192.0.2.1");
    let process = start(&server);
    let is = |name: &str, value: Option<&str>| addresses(&server, name).as_deref() == value;
    wait_for("the first map", || is("rome-1", Some("192.0.2.1"))).await;
    assert_eq!(process.status.ready(), Ok(()));

    put_node(&server, "rome-1", "192.0.2.7");
    put_node(&server, "rome-2", "192.0.2.2");
    wait_for("a change", || is("rome-1", Some("192.0.2.7"))).await;
    wait_for("another map", || is("rome-2", Some("192.0.2.2"))).await;

    server.remove("/api/v1/namespaces/addresses/configmaps/rome-2");
    wait_for("the map again", || is("rome-2", Some("192.0.2.2"))).await;
    server.remove("/api/v1/nodes/rome-2");
    wait_for("the map to be deleted", || is("rome-2", None)).await;

    server.go();
    put_node(&server, "rome-3", "192.0.2.3");
    server.come();
    wait_for("what changed meanwhile", || {
        addresses(&server, "rome-3").is_some()
    })
    .await;

    process.stop.send(()).unwrap();
    tokio::time::timeout(DEADLINE, process.task)
        .await
        .expect("the process stops")
        .unwrap();
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_hides_no_other() {
    let server = ApiServer::start();
    server.put(
        "/api/v1/nodes/broken",
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "broken"}, "status": {"addresses": 7}}),
    );
    put_node(&server, "rome-1", "192.0.2.1");
    let process = start(&server);
    wait_for("the map", || addresses(&server, "rome-1").is_some()).await;

    server.put(
        "/api/v1/nodes/broken",
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "broken"}, "status": "no"}),
    );
    put_node(&server, "rome-2", "192.0.2.2");
    wait_for("the next map", || addresses(&server, "rome-2").is_some()).await;

    assert_eq!(addresses(&server, "broken"), None);
    drop(process.stop);
}

#[tokio::test]
async fn a_missing_api_group_is_named_and_the_process_stays_healthy() {
    let mut server = ApiServer::away();
    let process = start(&server);
    let error = process.status.ready().unwrap_err();
    assert!(
        error.contains("nodes") && error.contains("configmaps in namespace addresses"),
        "{error}"
    );
    wait_for("the failure", || process.status.failing().len() == 2).await;
    assert_eq!(process.status.healthy(), Ok(()));

    server.come();
    wait_for("it to be ready", || process.status.ready().is_ok()).await;
    drop(process.stop);
}
