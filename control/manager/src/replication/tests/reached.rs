//! Providers that respond, that do not, and that are another cluster.

use super::peering::{LOCAL, MOMENT, Peering, local, milan};
use control_api::{NamespaceMap, ResourceSlice};
use serde_json::{Value, json};
use std::time::Duration;

const READY: [&str; 3] = [
    "Established",
    "APIServerReady",
    "The foreign cluster API Server is ready",
];
const NOT_READY: [&str; 3] = [
    "Error",
    "APIServerNotReady",
    "The foreign cluster API Server is not ready",
];

/// Longest time that anything waits for a cluster that is dead or gone.
const ENDED: Duration = Duration::from_secs(10);

/// Time after which a provider that has returned is known to be reached: `liqoctl unpeer` waits for 6 s.
const REACHED: Duration = Duration::from_millis(5800);

fn api_server(peering: &mut Peering) -> Vec<Vec<Value>> {
    let found = peering.conditions("APIServerStatus").into_iter();
    let text = |it: &Value| ["status", "reason", "message"].map(|field| it[field].clone());
    found.map(|it| text(&it).to_vec()).collect()
}

#[test]
fn the_api_server_of_a_provider_is_probed_every_15_s_while_there_are_credentials() {
    let mut peering = Peering::new(1);
    peering.run(Duration::from_secs(3));
    assert_eq!(api_server(&mut peering), [READY]);
    let since = peering.conditions("APIServerStatus")[0]["lastTransitionTime"].clone();
    let (probes, requests) = (peering.simulation.probes(&milan()), peering.requests());

    peering.run(Duration::from_secs(600));
    assert_eq!(peering.simulation.probes(&milan()) - probes, 40);
    assert_eq!(peering.requests(), requests, "further requests");
    let condition = &peering.conditions("APIServerStatus")[0];
    assert_eq!(condition["lastTransitionTime"], since);

    peering.simulation.partition(&milan());
    peering.run(Duration::from_secs(21));
    assert_eq!(api_server(&mut peering), [NOT_READY]);
    peering.simulation.heal(&milan());
    peering.run(REACHED);
    assert_eq!(api_server(&mut peering), [READY]);
    peering.simulation.cluster(&milan()).trust(false);
    peering.run(Duration::from_secs(16));
    assert_eq!(api_server(&mut peering), [NOT_READY]);

    peering.remove_credentials();
    peering.run(MOMENT);
    assert!(api_server(&mut peering).is_empty());
    let probes = peering.simulation.probes(&milan());
    peering.run(Duration::from_secs(60));
    assert_eq!(peering.simulation.probes(&milan()), probes);
}

/// A standby does not probe, and a new leader does not report a provider as unknown.
#[test]
fn a_change_of_the_leader_changes_neither_the_condition_nor_the_number_of_probes() {
    let mut peering = Peering::new(2);
    peering.run(Duration::from_secs(3));
    let foreign = peering.foreign();
    for _ in 0..4 {
        for replica in [1, 0] {
            let before = peering.simulation.probes(&milan());
            peering.simulation.hand_over(replica);
            peering.run(Duration::from_secs(60));
            let probes = peering.simulation.probes(&milan()) - before;
            assert!((3..=5).contains(&probes), "{probes} probes in a minute");
        }
    }
    peering.simulation.crash(0);
    peering.run(Duration::from_secs(3));

    assert_eq!(peering.foreign(), foreign, "it was written again");
}

#[test]
fn a_deletion_waits_10_s_for_a_cluster_that_is_declared_dead_and_for_one_that_responds_as_long_as_it_takes()
 {
    let mut peering = Peering::new(3);
    peering.put_slice("milan", "2");
    peering.run(Duration::from_secs(20));
    assert_eq!(api_server(&mut peering), [READY]);
    peering.simulation.partition(&milan());
    peering.delete_slice("milan");
    peering.declare_dead();
    peering.run(ENDED);
    assert!(peering.slice("milan").is_none(), "the provider is dead");

    let mut peering = Peering::new(4);
    peering.put_slice("milan", "2");
    peering.run(Duration::from_secs(20));
    peering.declare_dead();
    peering.delete_slice("milan");
    peering.run(ENDED);
    assert!(peering.slice("milan").is_none());
    assert!(peering.replica("milan").is_none(), "the provider responds");
}

#[test]
fn a_deletion_does_not_wait_for_a_server_of_another_authority() {
    let mut peering = Peering::new(5);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    peering.simulation.cluster(&milan()).trust(false);
    peering.delete_slice("milan");
    peering.run(ENDED);
    assert!(peering.slice("milan").is_none());

    // A manager that starts has no list of the replicas.
    let mut peering = Peering::new(6);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    peering.simulation.cluster(&milan()).trust(false);
    peering.simulation.crash(0);
    peering.delete_slice("milan");
    peering.run(ENDED);
    assert!(peering.slice("milan").is_none());
}

/// An attacker who redirects the traffic to a server of its own gains nothing but the end of a wait.
#[test]
fn a_server_of_another_authority_changes_no_live_object_and_the_replicas_follow_when_it_is_gone() {
    let mut peering = Peering::new(7);
    peering.put_slice("kept", "2");
    peering.put_slice("deleted", "2");
    peering.run(MOMENT);
    peering.grant("kept");
    peering.run(MOMENT);
    let (slice, replica) = (peering.slice("kept"), peering.replica("kept"));
    peering.simulation.cluster(&milan()).trust(false);
    peering.delete_slice("deleted");
    // The API server in memory dates all deletions to the start, and they wait for 300 s.
    peering.run(Duration::from_secs(100));
    assert_eq!(peering.slice("kept"), slice);
    assert!(peering.replica("deleted").is_some(), "nothing was sent");

    peering.simulation.cluster(&milan()).trust(true);
    peering.run(Duration::from_secs(100));
    assert_eq!(peering.slice("kept"), slice);
    assert_eq!(peering.replica("kept"), replica);
    assert!(peering.replica("deleted").is_none());

    // Later deletions wait again.
    peering.simulation.partition(&milan());
    peering.delete_slice("kept");
    peering.run(Duration::from_secs(20));
    assert!(peering.slice("kept").is_some());
}

/// A provider without any slice of this cluster refuses the replica of another object.
#[test]
fn a_refusal_without_slices_is_a_condition_of_the_identity() {
    let mut peering = Peering::new(8);
    peering.run(MOMENT);
    let identity = |peering: &mut Peering| {
        let found = peering.conditions("AuthIdentityControlPlaneStatus");
        found[0]["status"].clone()
    };
    assert_eq!(identity(&mut peering), "Ready");
    peering.simulation.cluster(&milan()).refuse(true);
    peering.simulation.local().put::<NamespaceMap>(json!({
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "NamespaceMap",
        "metadata": {
            "name": "milan",
            "namespace": LOCAL,
            "labels": {
                "liqo.io/remote-cluster-id": "milan",
                "liqo.io/remoteID": "milan",
                "liqo.io/replication": "true",
            },
        },
        "spec": {"desiredMapping": {}},
    }));
    peering.run(MOMENT);
    assert!(peering.slice("milan").is_none());
    assert_eq!(identity(&mut peering), "NotReady");

    peering.simulation.cluster(&milan()).refuse(false);
    peering.run(Duration::from_secs(20));
    assert_eq!(identity(&mut peering), "Ready");
    let server = peering.simulation.local();
    assert!(server.get::<ResourceSlice>(&local("milan")).is_none());
}
