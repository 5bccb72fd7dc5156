//! The cluster `rome` with the controller, its consumer `turin`, and the API server of its provider `milan`, in memory.

use crate::multicluster::{MultiClusterController, Settings};
use crate::shadow_endpoint_slice::{self, Metrics};
use control_api::{
    Configuration, ExportedService, ForeignCluster, Network, ServiceExport, ServiceImport,
};
use control_runtime::simulation::Simulation;
use control_runtime::{
    Cache, Change, Cluster, ClusterChange, Controller, Destinations, Env, Key, Plan, Registration,
    RemoteConfig, Scope,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Long enough for the requests that a change causes.
pub(super) const MOMENT: Duration = Duration::from_secs(2);

/// Tenant namespace of `rome` at `milan`.
pub(super) const REMOTE: &str = "liqo-tenant-rome";

/// Connects the manager to `milan`, as the replication controller does.
struct Connector;

impl Controller for Connector {
    type Item = String;
    const NAME: &'static str = "connector";
    const FIELD_MANAGER: &'static str = "connector";

    fn resources(&self) -> Vec<Registration> {
        vec![Registration::whole::<ForeignCluster>(Scope::All)]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<String> {
        let name = change.object.key.name.clone();
        Vec::from_iter(Some(name).filter(|name| name == "milan"))
    }

    fn plan(&mut self, item: &String, _: &Cache, _: &mut Env<'_>) -> Plan<String> {
        let text = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1"}}],
            "users": [{"name": "u", "user": {}}]}"#;
        let config = RemoteConfig::parse(text, Destinations::Remote).unwrap();
        let mut plan = Plan::default();
        let set = ClusterChange::Set(Cluster::remote(item), Box::new(config));
        plan.clusters.push(set);
        plan
    }
}

pub(super) struct Side {
    pub(super) simulation: Simulation,
}

pub(super) fn key(name: &str) -> Key {
    Key::new("shop", name)
}

pub(super) fn milan() -> Cluster {
    Cluster::remote("milan")
}

fn settings() -> Settings {
    Settings {
        namespace_labels: [("import".to_owned(), "true".to_owned())].into(),
        endpoints: shadow_endpoint_slice::Settings {
            namespace: "liqo".to_owned(),
            tenant_namespaces: Vec::new(),
            deny_direct_connections: false,
            api_server_grace_period: Duration::from_secs(300),
        },
    }
}

/// Returns the ExportedService of `shop/web` of a peer with a ready pod, whose content `edit` changes.
pub(super) fn exported(edit: impl FnOnce(&mut Value)) -> Value {
    let mut exported = json!({
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "ExportedService",
        "metadata": {},
        "spec": {
            "namespace": "shop",
            "name": "web",
            "type": "ClusterSetIP",
            "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
            "ipFamilies": ["IPv4"],
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "exportedAt": "2026-11-21T09:00:00Z",
            "endpointSlices": [{
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.244.0.7"], "conditions": {"ready": true}}],
                "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
            }],
        },
    });
    edit(&mut exported);
    exported
}

impl Side {
    /// Creates the clusters. The namespace `shop` is chosen for imports, and has a Service `web`.
    pub(super) fn new(seed: u64) -> Self {
        let make = || MultiClusterController::new(settings(), Metrics::default());
        let simulation = Simulation::new(seed)
            .host(make)
            .host(|| Connector)
            .replicas(2);
        let mut side = Self { simulation };
        side.simulation.cluster(&milan()).put_namespace(REMOTE);
        let server = side.simulation.local();
        server.set_defaults::<Service>(|service| {
            service["spec"]["clusterIP"] = json!("10.96.0.77");
        });
        side.put_namespace("liqo", &json!({}));
        side.put_namespace("shop", &json!({"import": "true"}));
        side.put::<ConfigMap>(json!({
            "metadata": {"name": "id", "namespace": "liqo", "labels": {"app.kubernetes.io/name": "clusterid-configmap"}},
            "data": {"CLUSTER_ID": "rome"},
        }));
        side.put_owner();
        side.put::<Network>(json!({
            "apiVersion": "ipam.liqo.io/v1beta1",
            "kind": "Network",
            "metadata": {"name": "pod-cidr", "namespace": "liqo", "labels": {"ipam.liqo.io/network-type": "pod-cidr"}},
            "spec": {"cidr": "10.244.0.0/16"},
        }));
        side.put_peer("turin", "Consumer", "Established");
        side.put_peer("milan", "Provider", "Established");
        side.put_web(|_| {});
        side.pass();
        side
    }

    pub(super) fn put_owner(&mut self) {
        let name = "liqo-controller-manager-multi-cluster";
        self.put::<ClusterRole>(json!({"metadata": {"name": name}, "rules": []}));
    }

    pub(super) fn put<K: kube::Resource<DynamicType = ()>>(&mut self, object: Value) {
        self.simulation.local().put::<K>(object);
    }

    pub(super) fn put_namespace(&mut self, name: &str, labels: &Value) {
        self.put::<Namespace>(json!({"metadata": {"name": name, "labels": labels}}));
    }

    /// Creates a peer, whose pods this cluster reaches at 10.71.0.0/16 (`turin`) or 10.72.0.0/16.
    pub(super) fn put_peer(&mut self, peer: &str, role: &str, connection: &str) {
        let namespace = format!("liqo-tenant-{peer}");
        let labels = json!({"liqo.io/remote-cluster-id": peer, "liqo.io/tenant-namespace": "true"});
        self.put_namespace(&namespace, &labels);
        let remapped = if peer == "turin" {
            "10.71.0.0/16"
        } else {
            "10.72.0.0/16"
        };
        self.put::<Configuration>(json!({
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": "Configuration",
            "metadata": {
                "name": peer,
                "namespace": namespace,
                "generation": 2,
                "labels": {"liqo.io/remote-cluster-id": peer},
            },
            "spec": {"remote": {"cidr": {"pod": ["10.244.0.0/16"], "external": ["10.70.0.0/16"]}}},
            "status": {
                "conditions": [{
                    "lastTransitionTime": "2026-11-21T08:15:18Z",
                    "message": "All network CIDRs are configured",
                    "observedGeneration": 2,
                    "reason": "NetworkCIDRsConfigured",
                    "status": "True",
                    "type": "NetworkCIDRsConfigured",
                }],
                "remote": {"cidr": {"pod": [remapped], "external": ["10.68.0.0/16"]}},
            },
        }));
        let conditions =
            json!([{"type": "NetworkConnectionStatus", "status": connection, "reason": "x"}]);
        self.put::<ForeignCluster>(json!({
            "apiVersion": "core.liqo.io/v1beta1",
            "kind": "ForeignCluster",
            "metadata": {"name": peer, "labels": {"liqo.io/remote-cluster-id": peer}},
            "spec": {"clusterID": peer},
            "status": {
                "modules": {
                    "authentication": {"enabled": true},
                    "networking": {"enabled": true, "conditions": conditions},
                    "offloading": {"enabled": false},
                },
                "role": role,
                "tenantNamespace": {"local": namespace, "remote": REMOTE},
            },
        }));
    }

    /// Creates the Service `web` of this cluster with two endpoints, of which one is no pod.
    pub(super) fn put_web(&mut self, edit: impl FnOnce(&mut Value)) {
        let mut service = json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": "10.96.0.5",
                "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}],
                "ipFamilies": ["IPv4"],
                "sessionAffinity": "None",
                "internalTrafficPolicy": "Cluster",
            },
        });
        edit(&mut service);
        self.put::<Service>(service);
        self.put_endpoints(json!([
            {"addresses": ["10.244.1.2"], "conditions": {"ready": true}, "nodeName": "worker", "hostname": "web-0"},
            {"addresses": ["192.0.2.7"], "conditions": {"ready": true}},
        ]));
    }

    pub(super) fn put_endpoints(&mut self, endpoints: Value) {
        self.put::<EndpointSlice>(json!({
            "metadata": {
                "name": "web-x",
                "namespace": "shop",
                "labels": {"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
            },
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        }));
    }

    /// Exports `web`.
    pub(super) fn export(&mut self) {
        self.put::<ServiceExport>(json!({
            "apiVersion": "multicluster.x-k8s.io/v1beta1",
            "kind": "ServiceExport",
            "metadata": {
                "name": "web",
                "namespace": "shop",
                "generation": 1,
                "creationTimestamp": "2026-11-21T08:00:00Z",
            },
        }));
        self.pass();
    }

    /// Creates an ExportedService of `turin`, as its manager replicates it.
    pub(super) fn put_of_turin(&mut self, mut exported: Value) {
        if exported["metadata"]["name"].is_null() {
            exported["metadata"]["name"] = json!("web.shop.turin");
        }
        exported["metadata"]["namespace"] = json!("liqo-tenant-turin");
        if exported["metadata"]["labels"].is_null() {
            exported["metadata"]["labels"] = json!({
                "liqo.io/replicated": "true",
                "liqo.io/replication": "false",
                "liqo.io/originID": "turin",
                "liqo.io/managed-by": "serviceimport",
            });
        }
        self.put::<ExportedService>(exported);
        self.pass();
    }

    /// Creates an ExportedService of `milan` for `rome`, as its manager does.
    pub(super) fn put_of_milan(&mut self, mut exported: Value) {
        exported["metadata"]["name"] = json!("web.shop.milan");
        exported["metadata"]["namespace"] = json!(REMOTE);
        exported["metadata"]["labels"] = json!({
            "liqo.io/remote-cluster-id": "rome",
            "liqo.io/replication": "false",
            "liqo.io/originID": "milan",
        });
        let server = self.simulation.cluster(&milan());
        server.put::<ExportedService>(exported);
        self.pass();
    }

    pub(super) fn pass(&mut self) {
        self.simulation.pass(MOMENT);
    }

    pub(super) fn remove<K: kube::Resource<DynamicType = ()>>(&mut self, key: &Key) {
        self.simulation.local().remove::<K>(key);
        self.pass();
    }

    /// Returns an object; `Null` if it does not exist.
    pub(super) fn object<K>(&mut self, key: &Key) -> Value
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let object = self.simulation.local().get::<K>(key).cloned();
        object.unwrap_or_default()
    }

    /// Returns the ServiceImport `web`.
    pub(super) fn import(&mut self) -> Value {
        self.object::<ServiceImport>(&key("web"))
    }

    /// Returns a condition of the ServiceExport `web`, as `status reason`.
    pub(super) fn condition(&mut self, type_: &str) -> String {
        let export = self.object::<ServiceExport>(&key("web"));
        let conditions = export["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.unwrap_or_default().into_iter();
        let found = conditions.find(|it| it["type"] == type_);
        let found = found.unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();

        format!("{} {}", text("status"), text("reason"))
    }

    /// Returns the imported endpoints as `cluster address`, those that are not ready with a `!`.
    pub(super) fn endpoints(&mut self) -> Vec<String> {
        let slices = self.simulation.local().all::<EndpointSlice>();
        let mut texts = BTreeSet::new();
        for slice in slices {
            let labels = &slice["metadata"]["labels"];
            let Some(cluster) = labels["multicluster.kubernetes.io/source-cluster"].as_str() else {
                continue;
            };
            for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                let mark = if endpoint["conditions"]["ready"] == true {
                    ""
                } else {
                    "!"
                };
                let address = endpoint["addresses"][0].as_str().unwrap_or_default();
                texts.insert(format!("{cluster} {mark}{address}"));
            }
        }

        Vec::from_iter(texts)
    }

    /// Returns the Services that were created for imports.
    pub(super) fn derived(&mut self) -> Vec<Value> {
        let services = self.simulation.local().all::<Service>().into_iter();
        let derived =
            services.filter(|it| it["metadata"]["labels"]["liqo.io/managed-by"] == "serviceimport");
        derived.cloned().collect()
    }

    /// Asserts that no write was sent twice, and that planning everything again causes no request.
    pub(super) fn assert_settled(&mut self) {
        let redundant = self.simulation.redundant();
        assert!(redundant.is_empty(), "{redundant:?}");
        let replanned = self.simulation.replan(Duration::from_secs(900)).unwrap();
        assert!(replanned.is_empty(), "{replanned:?}");
    }
}
