//! Leader election between two processes.

use crate::process::{Process, addresses, put_node, wait_for};
use control_runtime::Timing;
use fake_apiserver::ApiServer;
use serde_json::Value;
use std::time::{Duration, Instant};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/addresses/leases/example";

pub(crate) const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(2),
    renew_deadline: Duration::from_millis(1_200),
    renew_period: Duration::from_millis(400),
    retry_period: Duration::from_millis(100),
};

fn lease(server: &ApiServer) -> Value {
    server.get(LEASE).unwrap_or_default()
}

fn holder(server: &ApiServer) -> String {
    let holder = &lease(server)["spec"]["holderIdentity"];
    holder.as_str().unwrap_or_default().to_owned()
}

/// Starts the leader `a` and the standby `b`.
async fn pair(server: &ApiServer) -> (Process, Process) {
    put_node(server, "rome-1", "192.0.2.1");
    let leader = Process::start(server, "a", Some(TIMING));
    wait_for("a leader", || leader.status.is_leader()).await;
    let standby = Process::start(server, "b", Some(TIMING));
    wait_for("a standby", || standby.status.ready().is_ok()).await;
    wait_for("the first map", || addresses(server, "rome-1").is_some()).await;

    (leader, standby)
}

#[tokio::test]
async fn a_standby_writes_when_the_lease_of_a_killed_leader_has_expired() {
    let server = ApiServer::start();
    let (leader, standby) = pair(&server).await;
    let before = lease(&server)["metadata"]["resourceVersion"].clone();
    wait_for("a renewal", || {
        lease(&server)["metadata"]["resourceVersion"] != before
    })
    .await;
    let renewed = Instant::now();
    leader.kill();
    put_node(&server, "rome-2", "192.0.2.2");

    wait_for("the standby's write", || {
        addresses(&server, "rome-2").is_some()
    })
    .await;

    let delay = renewed.elapsed();
    assert!(standby.status.is_leader());
    assert_eq!(holder(&server), "b");
    // The Lease was read a few milliseconds after it was renewed.
    let expected = TIMING.lease_duration - Duration::from_millis(50);
    assert!(
        delay > expected,
        "the standby wrote after {delay:?}, while the Lease was valid"
    );
    eprintln!("the standby wrote {delay:?} after the last renewal of a Lease of 2 s");
    standby.stop().await;
}

#[tokio::test]
async fn a_leader_that_stops_hands_the_lease_over() {
    let server = ApiServer::start();
    let (leader, standby) = pair(&server).await;
    assert_eq!(holder(&server), "a");

    leader.stop().await;
    wait_for("the standby to lead", || standby.status.is_leader()).await;
    put_node(&server, "rome-2", "192.0.2.2");
    wait_for("its write", || addresses(&server, "rome-2").is_some()).await;
    standby.stop().await;
    assert_eq!(holder(&server), "");
}

#[tokio::test]
async fn a_standby_writes_nothing_and_plans_everything_when_it_takes_over() {
    let server = ApiServer::start();
    let (leader, standby) = pair(&server).await;
    leader.kill();
    // The standby plans this, but must not write it.
    put_node(&server, "rome-1", "192.0.2.9");
    assert!(!standby.status.is_leader());
    assert_eq!(addresses(&server, "rome-1").as_deref(), Some("192.0.2.1"));

    wait_for("the standby to lead", || standby.status.is_leader()).await;
    wait_for("the write", || {
        addresses(&server, "rome-1").as_deref() == Some("192.0.2.9")
    })
    .await;
    standby.stop().await;
}

#[tokio::test]
async fn every_replica_is_ready_again_after_the_api_server_was_away() {
    let mut server = ApiServer::start();
    let (leader, standby) = pair(&server).await;

    server.close();
    wait_for("failing replicas", || {
        leader.status.ready().is_err() && standby.status.ready().is_err()
    })
    .await;
    server.listen();

    wait_for("ready replicas", || {
        leader.status.ready().is_ok() && standby.status.ready().is_ok()
    })
    .await;
    leader.stop().await;
    standby.stop().await;
}

/// Renewals take longer than the time from their start to the renew deadline, and end before the
/// deadline that they extend.
#[tokio::test]
async fn plans_without_the_lease_are_made_again_after_a_late_renewal() {
    const SLOW: Timing = Timing {
        lease_duration: Duration::from_secs(20),
        renew_deadline: Duration::from_secs(2),
        renew_period: Duration::from_millis(600),
        retry_period: Duration::from_millis(100),
    };
    let server = ApiServer::start();
    put_node(&server, "rome-0", "192.0.2.1");
    let leader = Process::start(&server, "a", Some(SLOW));
    wait_for("the first map", || addresses(&server, "rome-0").is_some()).await;

    server.slow_down("/leases/", Duration::from_millis(1_700));
    wait_for("a slow renewal", || server.slow_writes() > 0).await;
    let mut nodes = 0;
    while server.slow_writes() < 3 {
        nodes += 1;
        put_node(&server, &format!("rome-{nodes}"), "192.0.2.1");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.slow_down("/leases/", Duration::ZERO);

    for node in 1..=nodes {
        let name = format!("rome-{node}");
        wait_for(&name, || addresses(&server, &name).is_some()).await;
    }
    let transitions = &lease(&server)["spec"]["leaseTransitions"];
    assert_eq!(*transitions, 1, "the Lease was lost meanwhile");
    leader.stop().await;
}
