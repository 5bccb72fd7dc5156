use super::*;
use crate::authentication::{ApiServerSettings, AuthenticationController, Grants, Settings};
use control_api::{ForeignCluster, Identity, Renew, ResourceSlice};
use control_credentials::{Access, ClusterKey, KeyType, kubeconfig};
use control_runtime::simulation::Simulation;
use control_runtime::{Cluster, Key, Resource};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough for the requests that a change causes.
const MOMENT: Duration = Duration::from_secs(2);

const LOCAL: &str = "liqo-tenant-milan";
const REMOTE: &str = "liqo-tenant-rome";

/// The consumer `rome`, and the API server of its provider `milan`.
struct Peering {
    simulation: Simulation,
}

fn milan() -> Cluster {
    Cluster::remote("milan")
}

fn local(name: &str) -> Key {
    Key::new(LOCAL, name)
}

fn remote(name: &str) -> Key {
    Key::new(REMOTE, name)
}

impl Peering {
    /// Creates the clusters, with the credentials of `rome`.
    fn new(seed: u64) -> Self {
        let settings = Settings {
            namespace: "liqo".to_owned(),
            tenant_namespaces: Vec::new(),
            key_type: KeyType::Ed25519,
            nonce_ttl: Duration::from_secs(3600),
            api_server: ApiServerSettings::default(),
            grants: Grants::default(),
        };
        let authentication =
            move || AuthenticationController::new(settings.clone(), "user".to_owned());
        let mut simulation = Simulation::new(seed)
            .host(authentication)
            .host(|| ReplicationController::new("liqo".to_owned()))
            .replicas(2);
        simulation.cluster(&milan()).put_namespace(REMOTE);
        let server = simulation.local();
        server.put_namespace("liqo");
        server.put::<ConfigMap>(json!({
            "metadata": {"name": "id", "namespace": "liqo", "labels": {"app.kubernetes.io/name": "clusterid-configmap"}},
            "data": {"CLUSTER_ID": "rome"},
        }));
        let labels =
            json!({"liqo.io/remote-cluster-id": "milan", "liqo.io/tenant-namespace": "true"});
        server.put::<Namespace>(json!({"metadata": {"name": LOCAL, "labels": labels}}));
        let role = "liqo-controller-manager-tenant";
        server.put::<RoleBinding>(json!({
            "metadata": {"name": role, "namespace": LOCAL},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "liqo-controller-manager", "namespace": "liqo"}],
        }));
        let mut peering = Self { simulation };
        peering.put_credentials(&kubeconfig_of("https://192.0.2.1:6443"));
        peering
    }

    fn put_credentials(&mut self, kubeconfig: &str) {
        self.simulation.local().put::<Secret>(json!({
            "metadata": {
                "name": "kubeconfig-controlplane-milan",
                "namespace": LOCAL,
                "labels": {"liqo.io/remote-cluster-id": "milan", "liqo.io/identity-type": "ControlPlane"},
                "annotations": {"liqo.io/remote-tenant-namespace": REMOTE},
            },
            "data": {"kubeconfig": ByteString(kubeconfig.as_bytes().to_vec())},
        }));
    }

    fn remove_credentials(&mut self) {
        let key = local("kubeconfig-controlplane-milan");
        self.simulation.local().remove::<Secret>(&key);
    }

    /// Creates or changes a ResourceSlice, as `liqoctl` does.
    fn put_slice(&mut self, name: &str, cpu: &str) {
        let server = self.simulation.local();
        let mut slice = server
            .get::<ResourceSlice>(&local(name))
            .cloned()
            .unwrap_or_else(|| {
                json!({
                    "apiVersion": "authentication.liqo.io/v1beta1",
                    "kind": "ResourceSlice",
                    "metadata": {
                        "name": name,
                        "namespace": LOCAL,
                        "labels": {
                            "liqo.io/remote-cluster-id": "milan",
                            "liqo.io/remoteID": "milan",
                            "liqo.io/replication": "true",
                            "liqo.io/ownership": "Shared",
                        },
                        "annotations": {"liqo.io/create-virtual-node": "true"},
                    },
                })
            });
        slice["spec"]["class"] = json!("default");
        slice["spec"]["resources"] = json!({"cpu": cpu});
        server.put::<ResourceSlice>(slice);
    }

    fn delete_slice(&mut self, name: &str) {
        self.simulation
            .local()
            .remove::<ResourceSlice>(&local(name));
    }

    /// Writes the status of a replica, as the provider does.
    fn grant(&mut self, name: &str) {
        let server = self.simulation.cluster(&milan());
        let mut slice = server.get::<ResourceSlice>(&remote(name)).unwrap().clone();
        slice["status"] = json!({
            "conditions": [{"type": "Resources", "status": "Accepted"}],
            "resources": slice["spec"]["resources"],
        });
        server.put::<ResourceSlice>(slice);
    }

    fn slice(&mut self, name: &str) -> Option<Value> {
        self.simulation
            .local()
            .get::<ResourceSlice>(&local(name))
            .cloned()
    }

    fn replica(&mut self, name: &str) -> Option<Value> {
        self.simulation
            .cluster(&milan())
            .get::<ResourceSlice>(&remote(name))
            .cloned()
    }

    fn run(&mut self, time: Duration) {
        self.simulation.pass(time);
    }

    /// Returns the number of requests to the provider.
    fn requests(&self) -> usize {
        let log = self.simulation.log().iter();
        log.filter(|sent| sent.request.object().cluster == milan())
            .count()
    }
}

/// Returns the kubeconfig of `rome` for an API server of `milan`.
fn kubeconfig_of(server: &str) -> String {
    let key = ClusterKey::generate(KeyType::Ed25519, [1; 32]).unwrap();
    let pair = KeyPair::from_pem(key.to_pem()).unwrap();
    let certificate = CertificateParams::default()
        .self_signed(&pair)
        .unwrap()
        .pem();
    let access = Access {
        cluster: "milan",
        user: "controlplane-milan",
        server,
        certificate_authority: Some(certificate.as_bytes()),
        proxy_url: None,
        namespace: Some(REMOTE),
        certificate: certificate.as_bytes(),
        key: key.to_pem().as_bytes(),
    };

    kubeconfig(&access).unwrap()
}

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
fn a_deleted_slice_goes_after_its_replica() {
    let mut peering = Peering::new(2);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    peering.simulation.partition(&milan());
    peering.delete_slice("milan");
    peering.run(Duration::from_secs(60));
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
    peering.simulation.local().put::<ForeignCluster>(json!({
        "apiVersion": "core.liqo.io/v1beta1",
        "kind": "ForeignCluster",
        "metadata": {
            "name": "milan",
            "annotations": {"liqo.io/foreign-cluster-permanently-unreachable": "true"},
        },
        "spec": {"clusterID": "milan"},
    }));
    peering.run(MOMENT);
    assert!(peering.slice("milan").is_none(), "the provider is dead");
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
        .clone();
    assert_eq!(last.resource.kind, "SelfSubjectAccessReview");

    peering.simulation.cluster(&milan()).refuse(false);
    peering.run(Duration::from_secs(20));
    assert!(peering.replica("milan").is_some());
    peering.grant("milan");
    peering.run(MOMENT);
    let conditions = peering.slice("milan").unwrap()["status"]["conditions"].clone();
    assert_eq!(
        conditions,
        json!([{"type": "Resources", "status": "Accepted"}])
    );
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

#[test]
fn the_renew_of_an_identity_returns_the_credentials_and_goes_after_the_secret() {
    let mut peering = Peering::new(8);
    peering.run(MOMENT);
    let keys = peering
        .simulation
        .local()
        .get::<Secret>(&Key::new("liqo", "authentication-keys"));
    let pem: ByteString =
        serde_json::from_value(keys.unwrap()["data"]["privateKey"].clone()).unwrap();
    let pair = KeyPair::from_pem(str::from_utf8(&pem.0).unwrap()).unwrap();
    let identity = |name: &str| {
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
    };
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

    // Garbage collection deletes the Renew after the Secret.
    peering
        .simulation
        .local()
        .remove::<Identity>(&local("controlplane-milan"));
    peering.remove_credentials();
    peering.run(MOMENT);
    peering
        .simulation
        .local()
        .remove::<Renew>(&local("controlplane-milan"));
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

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Grant(u8),
    Refuse(bool),
    Partition(bool),
    Crash(usize),
    HandOver(usize),
    Run(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..3, 1_u8..4).prop_map(|(slice, cpu)| Step::Put(slice, cpu)),
        (0_u8..3).prop_map(Step::Delete),
        (0_u8..3).prop_map(Step::Grant),
        any::<bool>().prop_map(Step::Refuse),
        any::<bool>().prop_map(Step::Partition),
        (0_usize..2).prop_map(Step::Crash),
        (0_usize..2).prop_map(Step::HandOver),
        (1_u16..3000).prop_map(Step::Run),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// After any faults, replicas and objects are the same.
    #[test]
    fn replicas_follow_the_objects_after_any_faults(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..24),
    ) {
        let mut peering = Peering::new(seed);
        for step in &steps {
            match step {
                Step::Put(slice, cpu) => peering.put_slice(&format!("slice-{slice}"), &cpu.to_string()),
                Step::Delete(slice) => peering.delete_slice(&format!("slice-{slice}")),
                Step::Grant(slice) => {
                    if peering.replica(&format!("slice-{slice}")).is_some() {
                        peering.grant(&format!("slice-{slice}"));
                    }
                }
                Step::Refuse(is_refusing) => peering.simulation.cluster(&milan()).refuse(*is_refusing),
                Step::Partition(true) => peering.simulation.partition(&milan()),
                Step::Partition(false) => peering.simulation.heal(&milan()),
                Step::Crash(replica) => peering.simulation.crash(*replica),
                Step::HandOver(replica) => peering.simulation.hand_over(*replica),
                Step::Run(millis) => peering.run(Duration::from_millis((*millis).into())),
            }
        }
        peering.simulation.heal(&milan());
        peering.simulation.cluster(&milan()).refuse(false);
        peering.run(Duration::from_secs(600));

        for slice in 0..3 {
            let name = format!("slice-{slice}");
            let (slice, replica) = (peering.slice(&name), peering.replica(&name));
            prop_assert_eq!(slice.is_some(), replica.is_some(), "{}", name);
            let (Some(slice), Some(replica)) = (slice, replica) else {
                continue;
            };
            prop_assert!(slice["metadata"]["deletionTimestamp"].is_null());
            prop_assert_eq!(&slice["spec"], &replica["spec"]);
            if !replica["status"].is_null() {
                prop_assert_eq!(&slice["status"], &replica["status"]);
            }
        }
        let is_of_reviews = |resource: &Resource| resource.kind == "SelfSubjectAccessReview";
        let before = peering.requests();
        peering.run(Duration::from_secs(3600));
        prop_assert_eq!(peering.requests(), before);
        let log = peering.simulation.log().last();
        prop_assert!(!log.is_some_and(|sent| is_of_reviews(&sent.request.object().resource)) || before > 0);
    }
}
