//! The local API server refuses a watch: the right or the resource is missing.

use crate::example::NodeAddresses;
use crate::peers::{Peers, copied, kubeconfig, put_counter, put_peer};
use crate::process::{Process, addresses, put_node, wait_for};
use fake_apiserver::{ApiServer, Front, Head, Reply};

/// Starts a process whose watch of Nodes is refused with `reply`. Its other controller follows a peer.
async fn start(local: &ApiServer, peer: &ApiServer, reply: Reply) -> (Front, Process) {
    let front = Front::start(local, move |head| {
        if is_nodes(head) {
            reply.clone()
        } else {
            Reply::Forward
        }
    });
    put_node(local, "rome-1", "192.0.2.1");
    put_peer(local, "milan", &kubeconfig(&peer.url(), "token"));
    put_counter(peer, 1);
    let process = Process::host_all(&front.url(), "a", None, |runtime, replicas| {
        runtime.add(NodeAddresses, replicas).expect("registrations");
        runtime
            .add(Peers::default(), replicas)
            .expect("registrations");
    });
    wait_for("the other controller", || copied(peer) == Some(1)).await;

    (front, process)
}

fn is_nodes(head: &Head) -> bool {
    head.target.starts_with("/api/v1/nodes")
}

#[tokio::test]
async fn a_missing_right_or_resource_is_named_and_other_controllers_go_on() {
    let forbidden = "nodes is forbidden: User \"a\" cannot list resource \"nodes\"";
    let cases = [
        (Reply::status(403, "Forbidden", forbidden), forbidden),
        (
            Reply::status(
                404,
                "NotFound",
                "the server could not find the requested resource",
            ),
            "could not find the requested resource",
        ),
        // The response of kube-apiserver to requests for a group or version that no CRD serves.
        (
            Reply::response("404 Not Found", "", "404 page not found\n"),
            "404 page not found",
        ),
    ];
    for (reply, text) in cases {
        let (local, peer) = (ApiServer::start(), ApiServer::start());
        let (front, process) = start(&local, &peer, reply).await;

        let named = || {
            process
                .status
                .ready()
                .is_err_and(|error| error.contains(text))
        };
        wait_for("the failure", named).await;

        let error = process.status.ready().unwrap_err();
        assert!(
            error.contains("not listed yet: nodes (") && error.contains("rights"),
            "{error}"
        );
        assert_eq!(process.status.healthy(), Ok(()));
        assert_eq!(addresses(&local, "rome-1"), None);
        let labels = r#"cluster="_local",resource="nodes""#;
        assert!(process.metric("watch_errors_total", labels) > 0.0);

        front.set(|_| Reply::Forward);
        wait_for("the right", || process.status.ready().is_ok()).await;
        wait_for("the map", || addresses(&local, "rome-1").is_some()).await;
        process.stop().await;
    }
}

#[tokio::test]
async fn a_refused_watch_is_repeated_with_growing_delays() {
    let (local, peer) = (ApiServer::start(), ApiServer::start());
    let refusal = Reply::status(403, "Forbidden", "forbidden");
    let (front, process) = start(&local, &peer, refusal).await;
    let started = std::time::Instant::now();
    let refused = || front.count(is_nodes);

    // Delays of 25, 50, 100, 200, 400 and 800 ms, shortened by at most a quarter.
    wait_for("seven requests", || refused() == 7).await;

    let least = std::time::Duration::from_millis(1_575 * 3 / 4 - 100);
    assert!(started.elapsed() > least, "{:?}", started.elapsed());
    process.stop().await;
}

#[tokio::test]
async fn a_deletion_that_a_webhook_refuses_as_a_conflict_is_repeated() {
    let (local, peer) = (ApiServer::start(), ApiServer::start());
    let (front, process) = start(&local, &peer, Reply::Forward).await;
    wait_for("the map", || addresses(&local, "rome-1").is_some()).await;
    let message = "admission webhook \"a\" denied the request: protected";
    front.set(move |head| match head.is_delete() {
        true => Reply::status(409, "Conflict", message),
        false => Reply::Forward,
    });

    local.remove("/api/v1/nodes/rome-1");
    wait_for("two refusals", || front.count(Head::is_delete) >= 2).await;
    assert!(addresses(&local, "rome-1").is_some());

    front.set(|_| Reply::Forward);
    wait_for("the deletion", || addresses(&local, "rome-1").is_none()).await;
    process.stop().await;
}
