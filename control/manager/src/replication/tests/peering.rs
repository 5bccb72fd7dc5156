//! A consumer with its manager, and the API server of its provider, in memory.

use crate::authentication::{ApiServerSettings, AuthenticationController, Grants, Settings};
use crate::foreign_cluster::{self, ForeignClusterController, Refusals};
use crate::replication::{ReplicationController, Report};
use control_api::{ForeignCluster, ResourceSlice};
use control_credentials::{Access, ClusterKey, KeyType, kubeconfig};
use control_runtime::simulation::Simulation;
use control_runtime::{Cluster, Destinations, Key};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Long enough for the requests that a change causes.
pub(super) const MOMENT: Duration = Duration::from_secs(2);

pub(super) const LOCAL: &str = "liqo-tenant-milan";
pub(super) const REMOTE: &str = "liqo-tenant-rome";

/// The consumer `rome`, and the API server of its provider `milan`.
pub(super) struct Peering {
    pub(super) simulation: Simulation,
}

pub(super) fn milan() -> Cluster {
    Cluster::remote("milan")
}

pub(super) fn local(name: &str) -> Key {
    Key::new(LOCAL, name)
}

pub(super) fn remote(name: &str) -> Key {
    Key::new(REMOTE, name)
}

impl Peering {
    /// Creates the clusters, with the credentials of `rome`.
    pub(super) fn new(seed: u64) -> Self {
        let mut peering = Self::without_rights(seed);
        peering.put_rights();
        peering.put_credentials(&kubeconfig_of("https://192.0.2.1:6443"));
        peering
    }

    /// Creates the clusters. The manager of `rome` may not read the Secrets of the tenant namespace yet.
    pub(super) fn without_rights(seed: u64) -> Self {
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
        let summaries = foreign_cluster::Settings {
            namespace: "liqo".to_owned(),
            tenant_namespaces: Vec::new(),
            has_authentication: true,
        };
        // Each replica has a report of its own.
        let made = Arc::<Mutex<Option<Report>>>::default();
        let report = Arc::clone(&made);
        let mut simulation = Simulation::new(seed)
            .host(authentication)
            .host_injected(move |injector| {
                let refusals = Refusals::default();
                *made.lock().unwrap() = Some(refusals.clone().report(injector));
                ForeignClusterController::new(summaries.clone(), refusals)
            })
            .host(move || {
                let report = report.lock().unwrap().take();
                let report = report.unwrap_or_else(|| Box::new(|_, _| {}));
                ReplicationController::new("liqo".to_owned(), Destinations::Remote, report)
            })
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

        Self { simulation }
    }

    /// Gives the manager the right to read the Secrets of the tenant namespace.
    pub(super) fn put_rights(&mut self) {
        let role = "liqo-controller-manager-tenant";
        self.simulation.local().put::<RoleBinding>(json!({
            "metadata": {"name": role, "namespace": LOCAL},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "liqo-controller-manager", "namespace": "liqo"}],
        }));
    }

    pub(super) fn put_credentials(&mut self, kubeconfig: &str) {
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

    pub(super) fn remove_credentials(&mut self) {
        let key = local("kubeconfig-controlplane-milan");
        self.simulation.local().remove::<Secret>(&key);
    }

    /// Ends the right of the manager to read the Secrets of the tenant namespace.
    pub(super) fn remove_rights(&mut self) {
        let key = local("liqo-controller-manager-tenant");
        self.simulation.local().remove::<RoleBinding>(&key);
    }

    /// Creates or changes a ResourceSlice, as `liqoctl` does.
    pub(super) fn put_slice(&mut self, name: &str, cpu: &str) {
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

    pub(super) fn delete_slice(&mut self, name: &str) {
        self.simulation
            .local()
            .remove::<ResourceSlice>(&local(name));
    }

    /// Writes the status of a replica, as the provider does.
    pub(super) fn grant(&mut self, name: &str) {
        let server = self.simulation.cluster(&milan());
        let mut slice = server.get::<ResourceSlice>(&remote(name)).unwrap().clone();
        slice["status"] = json!({
            "conditions": [{"type": "Resources", "status": "Accepted"}],
            "resources": slice["spec"]["resources"],
        });
        server.put::<ResourceSlice>(slice);
    }

    pub(super) fn slice(&mut self, name: &str) -> Option<Value> {
        self.simulation
            .local()
            .get::<ResourceSlice>(&local(name))
            .cloned()
    }

    pub(super) fn replica(&mut self, name: &str) -> Option<Value> {
        self.simulation
            .cluster(&milan())
            .get::<ResourceSlice>(&remote(name))
            .cloned()
    }

    pub(super) fn run(&mut self, time: Duration) {
        self.simulation.pass(time);
    }

    /// Returns the conditions of the ForeignCluster of `milan` that have this type.
    pub(super) fn conditions(&mut self, type_: &str) -> Vec<Value> {
        let foreign = self.foreign().unwrap_or_default();
        let status = &foreign["status"];
        let lists = [
            &status["conditions"],
            &status["modules"]["authentication"]["conditions"],
        ];
        let all = lists.into_iter().flat_map(|it| it.as_array().cloned());
        all.flatten().filter(|it| it["type"] == type_).collect()
    }

    pub(super) fn foreign(&mut self) -> Option<Value> {
        let server = self.simulation.local();
        server
            .get::<ForeignCluster>(&Key::cluster("milan"))
            .cloned()
    }

    /// Declares `milan` dead, as `liqoctl force unpeer` does.
    pub(super) fn declare_dead(&mut self) {
        let mut foreign = self.foreign().unwrap();
        let annotation = "liqo.io/foreign-cluster-permanently-unreachable";
        foreign["metadata"]["annotations"] = json!({annotation: "true"});
        self.simulation.local().put::<ForeignCluster>(foreign);
    }

    /// Returns the number of requests to the provider.
    pub(super) fn requests(&self) -> usize {
        let log = self.simulation.log().iter();
        log.filter(|sent| *sent.request.cluster() == milan())
            .count()
    }
}

/// Returns the kubeconfig of `rome` for an API server of `milan`.
pub(super) fn kubeconfig_of(server: &str) -> String {
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
        client: Some((certificate.as_bytes(), key.to_pem().as_bytes())),
    };

    kubeconfig(&access).unwrap()
}
