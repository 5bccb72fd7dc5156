use control_api::{Identity, Renew, ResourceSlice};
use control_runtime::Key;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use peering::{LOCAL, MOMENT, Peering, REMOTE, kubeconfig_of, local, milan, remote};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use std::time::Duration;

mod eks;
mod exports;
mod faults;
mod hostile;
mod orders;
mod peering;
mod reached;
mod statuses;
mod steps;

#[test]
fn a_slice_is_replicated_as_upstream_does_and_its_status_returns() {
    let mut peering = Peering::new(1);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);

    let replica = peering.replica("milan").unwrap();
    let labels = json!({
        "liqo.io/originID": "rome",
        "liqo.io/remote-cluster-id": "rome",
        "liqo.io/remoteID": "milan",
        "liqo.io/replicated": "true",
        "liqo.io/replication": "false",
    });
    assert_eq!(replica["metadata"]["labels"], labels);
    assert_eq!(
        replica["metadata"]["annotations"],
        json!({"liqo.io/create-virtual-node": "true"})
    );
    assert!(replica["metadata"]["finalizers"].is_null());
    let slice = peering.slice("milan").unwrap();
    assert!(slice["spec"]["csr"].is_string(), "{slice}");
    assert_eq!(replica["spec"], slice["spec"]);
    assert_eq!(
        slice["metadata"]["finalizers"],
        json!(["crdreplicator.liqo.io/resource"])
    );

    peering.grant("milan");
    peering.run(MOMENT);
    let slice = peering.slice("milan").unwrap();
    assert_eq!(slice["status"]["resources"]["cpu"], "2");

    // A user's edit of the status is undone, and a change of the specification is carried over.
    let mut edited = slice.clone();
    edited["status"]["resources"]["cpu"] = json!("1000");
    peering.simulation.local().put::<ResourceSlice>(edited);
    peering.put_slice("milan", "3");
    peering.run(MOMENT);
    assert_eq!(
        peering.replica("milan").unwrap()["spec"]["resources"]["cpu"],
        "3"
    );
    assert_eq!(
        peering.slice("milan").unwrap()["status"]["resources"]["cpu"],
        "2"
    );
    assert!(
        peering.simulation.redundant().is_empty(),
        "{:?}",
        peering.simulation.redundant()
    );
}

#[test]
fn a_slice_is_created_with_its_request_in_any_order() {
    for seed in 0..24 {
        let mut peering = Peering::new(seed);
        peering.put_slice("milan", "2");
        peering.run(MOMENT);
        let log = peering.simulation.log().iter();
        let writes = log.filter(|sent| {
            let object = sent.request.object().unwrap();
            object.cluster == milan() && object.key.name == "milan"
        });
        assert_eq!(writes.count(), 1, "seed {seed}");
    }
}

#[test]
fn a_deleted_slice_goes_after_its_replica() {
    let mut peering = Peering::new(2);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    peering.simulation.partition(&milan());
    peering.delete_slice("milan");
    peering.run(Duration::from_secs(30));
    // The credentials are not known before the Secrets are listed again.
    peering.simulation.crash(0);
    peering.run(Duration::from_secs(30));
    assert!(peering.slice("milan").is_some(), "its replica may exist");

    peering.simulation.heal(&milan());
    peering.run(Duration::from_secs(60));
    assert!(peering.replica("milan").is_none());
    assert!(peering.slice("milan").is_none());
}

#[test]
fn the_deletion_waits_at_most_five_minutes_and_not_for_a_cluster_that_is_dead() {
    let mut peering = Peering::new(3);
    peering.put_slice("milan", "2");
    peering.put_slice("turin", "2");
    peering.run(MOMENT);
    peering.simulation.partition(&milan());
    peering.delete_slice("milan");
    peering.run(Duration::from_secs(10));
    assert!(peering.slice("milan").is_some());
    // The API server in memory dates all deletions to the start.
    peering.run(Duration::from_secs(300));
    assert!(peering.slice("milan").is_none(), "the limit has passed");

    let mut peering = Peering::new(4);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    peering.simulation.partition(&milan());
    peering.delete_slice("milan");
    peering.run(MOMENT);
    assert!(peering.slice("milan").is_some());
    peering.declare_dead();
    peering.run(Duration::from_secs(10));
    assert!(peering.slice("milan").is_none(), "the provider is dead");
}

#[test]
fn an_object_without_provider_and_credentials_that_are_unknown_delay_no_deletion_for_ever() {
    let mut peering = Peering::new(12);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    peering.remove_credentials();
    let mut unlabelled = peering.slice("milan").unwrap();
    unlabelled["metadata"]["labels"] = json!({});
    peering.simulation.local().put::<ResourceSlice>(unlabelled);
    peering.run(MOMENT);
    peering.delete_slice("milan");
    peering.run(MOMENT);
    assert!(peering.slice("milan").is_none());

    // A Secret with invalid credentials is none.
    let mut peering = Peering::new(15);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    peering.put_credentials("invalid");
    peering.simulation.crash(0);
    peering.delete_slice("milan");
    peering.run(MOMENT);
    assert!(peering.slice("milan").is_none());

    // The manager restarts after its rights to the Secrets have ended.
    let mut peering = Peering::new(13);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    peering.remove_rights();
    peering.simulation.crash(0);
    peering.simulation.crash(1);
    peering.delete_slice("milan");
    peering.run(Duration::from_secs(310));
    assert!(peering.slice("milan").is_none());
}

#[test]
fn a_finalizer_that_a_user_removes_is_set_again_and_the_replica_stays() {
    let mut peering = Peering::new(14);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    let uid = peering.replica("milan").unwrap()["metadata"]["uid"].clone();
    let mut edited = peering.slice("milan").unwrap();
    edited["metadata"]["finalizers"] = json!([]);
    peering.simulation.local().put::<ResourceSlice>(edited);
    peering.run(MOMENT);
    let finalizers = peering.slice("milan").unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["crdreplicator.liqo.io/resource"]));
    assert_eq!(peering.replica("milan").unwrap()["metadata"]["uid"], uid);
}

#[test]
fn a_replica_without_object_is_deleted_also_after_a_crash() {
    let mut peering = Peering::new(5);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    let mut orphan = peering.replica("milan").unwrap();
    orphan["metadata"]["name"] = json!("orphan");
    peering
        .simulation
        .cluster(&milan())
        .put::<ResourceSlice>(orphan);
    peering.simulation.crash(0);
    peering.run(MOMENT);

    assert!(peering.replica("orphan").is_none());
    assert!(peering.replica("milan").is_some());
}

#[test]
fn a_provider_that_refuses_is_asked_by_reviews_only_until_it_permits() {
    let mut peering = Peering::new(6);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    peering.grant("milan");
    peering.run(MOMENT);

    // As a provider does that drains the Tenant.
    peering.simulation.cluster(&milan()).refuse(true);
    peering
        .simulation
        .cluster(&milan())
        .remove::<ResourceSlice>(&remote("milan"));
    peering.run(MOMENT);
    let conditions = peering.slice("milan").unwrap()["status"]["conditions"].clone();
    assert_eq!(conditions[0]["reason"], "ReplicationForbidden");
    assert_eq!(conditions[0]["status"], "Denied");
    let before = peering.requests();
    peering.run(Duration::from_secs(600));
    let reviews = peering.requests() - before;
    assert!(
        (39..=45).contains(&reviews),
        "{reviews} requests in ten minutes"
    );
    let last = peering
        .simulation
        .log()
        .last()
        .unwrap()
        .request
        .object()
        .unwrap()
        .clone();
    assert_eq!(last.resource.kind, "SelfSubjectAccessReview");

    peering.simulation.cluster(&milan()).refuse(false);
    peering.run(Duration::from_secs(20));
    assert!(peering.replica("milan").is_some());
    let slice = peering.slice("milan").unwrap();
    assert!(
        !slice["status"].is_null(),
        "before the provider has decided again"
    );
    peering.grant("milan");
    peering.run(MOMENT);
    let conditions = peering.slice("milan").unwrap()["status"]["conditions"].clone();
    assert_eq!(
        conditions,
        json!([{"type": "Resources", "status": "Accepted"}])
    );
}

/// A right that is missing at a provider is no reason for a loop, also if its reviews say that nothing is missing.
#[test]
fn a_missing_right_is_named_and_asked_for_at_growing_intervals() {
    for is_lying in [false, true] {
        let mut peering = Peering::new(9);
        let right = Some(("create", "resourceslices"));
        peering
            .simulation
            .cluster(&milan())
            .refuse_right(right, is_lying);
        peering.put_slice("milan", "2");
        peering.run(Duration::from_secs(60));
        let slice = peering.slice("milan").unwrap();
        if !is_lying {
            let conditions = &slice["status"]["conditions"];
            assert_eq!(conditions[0]["reason"], "ReplicationForbidden");
            let message = conditions[0]["message"].as_str().unwrap();
            assert!(message.contains("milan: Forbidden"), "{message}");
        }
        let before = peering.requests();
        peering.run(Duration::from_secs(600));
        let requests = peering.requests() - before;
        // Each review that permits is followed by the refused request.
        assert!(requests <= 45 * 2, "{requests} requests in ten minutes");

        peering
            .simulation
            .cluster(&milan())
            .refuse_right(None, false);
        peering.run(Duration::from_secs(20));
        assert!(peering.replica("milan").is_some());
    }
}

#[test]
fn a_provider_that_refuses_the_lists_is_noticed() {
    let mut peering = Peering::new(7);
    peering.simulation.cluster(&milan()).refuse(true);
    peering.put_slice("milan", "2");
    peering.run(Duration::from_secs(10));
    let slice = peering.slice("milan").unwrap();
    assert_eq!(
        slice["status"]["conditions"][0]["reason"], "ReplicationForbidden",
        "{slice}"
    );

    peering.delete_slice("milan");
    peering.run(MOMENT);
    assert!(
        peering.slice("milan").is_none(),
        "nothing of it is at the provider"
    );
}

/// Returns a function that makes the Identity of `rome` with a certificate of this name.
fn identities(peering: &mut Peering) -> impl Fn(&str) -> Value + use<> {
    let keys = peering
        .simulation
        .local()
        .get::<Secret>(&Key::new("liqo", "authentication-keys"));
    let pem: ByteString =
        serde_json::from_value(keys.unwrap()["data"]["privateKey"].clone()).unwrap();
    let pair = KeyPair::from_pem(str::from_utf8(&pem.0).unwrap()).unwrap();
    move |name: &str| {
        let names = CertificateParams::new([name.to_owned()]).unwrap();
        let crt = names.self_signed(&pair).unwrap().pem();
        json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "Identity",
            "metadata": {"name": "controlplane-milan", "namespace": LOCAL},
            "spec": {
                "clusterID": "milan",
                "type": "ControlPlane",
                "namespace": REMOTE,
                "authParams": {"apiServer": "https://192.0.2.1:6443", "signedCRT": ByteString(crt.as_bytes().to_vec())},
            },
        })
    }
}

#[test]
fn the_renew_of_an_identity_returns_the_credentials_and_goes_after_the_secret() {
    let mut peering = Peering::new(8);
    peering.run(MOMENT);
    let identity = identities(&mut peering);
    peering
        .simulation
        .local()
        .put::<Identity>(identity("first"));
    peering.run(MOMENT);
    let key = remote("controlplane-milan");
    let server = peering.simulation.cluster(&milan());
    let mut renew = server.get::<Renew>(&key).unwrap().clone();
    assert_eq!(
        renew["spec"],
        json!({"consumerClusterID": "rome", "identityType": "ControlPlane"})
    );
    renew["status"]["authParams"] = identity("second")["spec"]["authParams"].clone();
    server.put::<Renew>(renew.clone());
    peering.run(MOMENT);
    let stored = peering
        .simulation
        .local()
        .get::<Identity>(&local("controlplane-milan"))
        .unwrap();
    assert_eq!(stored["spec"]["authParams"], renew["status"]["authParams"]);

    // The Renew of the Identity goes without waiting for garbage collection, and its replica although the Secret is gone.
    peering
        .simulation
        .local()
        .remove::<Identity>(&local("controlplane-milan"));
    peering.remove_credentials();
    peering.run(MOMENT);
    assert!(
        peering
            .simulation
            .cluster(&milan())
            .get::<Renew>(&key)
            .is_none()
    );
    assert!(
        peering
            .simulation
            .local()
            .get::<Renew>(&local("controlplane-milan"))
            .is_none()
    );
}

#[test]
fn credentials_that_would_run_a_program_or_read_a_file_are_not_used() {
    let mut peering = Peering::new(9);
    peering.remove_credentials();
    let hostile = kubeconfig_of("https://192.0.2.1:6443").replace("client-key-data", "client-key");
    peering.put_credentials(&hostile);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);

    assert_eq!(peering.requests(), 0);
}

#[test]
fn an_api_server_on_this_machine_is_not_connected_to() {
    for server in [
        "https://127.0.0.1:6443",
        "https://169.254.169.254",
        "https://[::1]:6443",
    ] {
        let mut peering = Peering::new(11);
        peering.remove_credentials();
        peering.put_credentials(&kubeconfig_of(server));
        peering.put_slice("milan", "2");
        peering.run(MOMENT);
        assert_eq!(peering.requests(), 0, "{server}");
    }
}

#[test]
fn new_credentials_replace_the_old_without_a_list() {
    let mut peering = Peering::new(10);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    let lists = peering.simulation.cluster(&milan()).lists();
    for port in 1..=100 {
        peering.put_credentials(&kubeconfig_of(&format!("https://192.0.2.1:{port}")));
        peering.simulation.swap_credentials(&milan());
        peering.put_slice("milan", &port.to_string());
        peering.run(Duration::from_millis(50));
    }
    peering.run(MOMENT);
    assert_eq!(
        peering.replica("milan").unwrap()["spec"]["resources"]["cpu"],
        "100"
    );
    assert_eq!(peering.simulation.cluster(&milan()).lists(), lists);
}
