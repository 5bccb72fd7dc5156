//! Runs the example of the crate's documentation against an API server in memory.

mod adopted;
mod election;
mod example;
mod hostile;
mod leases;
mod peers;
mod probes;
mod process;
mod refused;
mod remote;
mod replaced;
mod seen;
mod simulation;

use fake_apiserver::ApiServer;
use process::{Process, addresses, put_node, wait_for};
use serde_json::json;

#[tokio::test]
async fn a_controller_follows_objects_and_repairs_what_it_wrote() {
    let mut server = ApiServer::start();
    put_node(&server, "rome-1", "192.0.2.1");
    let process = Process::start(&server, "a", None);
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

    server.close();
    put_node(&server, "rome-3", "192.0.2.3");
    server.listen();
    wait_for("what changed meanwhile", || {
        addresses(&server, "rome-3").is_some()
    })
    .await;

    process.stop().await;
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_hides_no_other() {
    let server = ApiServer::start();
    server.put(
        "/api/v1/nodes/broken",
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "broken"}, "status": {"addresses": 7}}),
    );
    put_node(&server, "rome-1", "192.0.2.1");
    let process = Process::start(&server, "a", None);
    wait_for("the map", || addresses(&server, "rome-1").is_some()).await;

    server.put(
        "/api/v1/nodes/broken",
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "broken"}, "status": "no"}),
    );
    put_node(&server, "rome-2", "192.0.2.2");
    wait_for("the next map", || addresses(&server, "rome-2").is_some()).await;

    assert_eq!(addresses(&server, "broken"), None);
    process.stop().await;
}

#[tokio::test]
async fn an_api_server_that_is_away_is_named_and_the_process_stays_healthy() {
    let mut server = ApiServer::closed();
    let process = Process::start(&server, "a", None);
    let error = process.status.ready().unwrap_err();
    assert!(
        error.contains("nodes") && error.contains("configmaps in namespace addresses"),
        "{error}"
    );
    wait_for("the failure", || process.status.failing().len() == 2).await;
    assert_eq!(process.status.healthy(), Ok(()));

    server.listen();
    wait_for("it to be ready", || process.status.ready().is_ok()).await;
    process.stop().await;
}
