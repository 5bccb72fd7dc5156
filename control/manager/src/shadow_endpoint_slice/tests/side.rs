//! A provider with the controller of ShadowEndpointSlices, in memory and under virtual time.

use crate::shadow_endpoint_slice::{Metrics, Settings, ShadowEndpointSliceController};
use control_api::{Configuration, ForeignCluster, ShadowEndpointSlice, TenantPolicy};
use control_runtime::simulation::{Sent, Simulation};
use control_runtime::{Cluster, Key, Resource};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Long enough for the requests that a change causes.
const MOMENT: Duration = Duration::from_secs(2);

/// Namespace that `rome` has offloaded, in this cluster.
pub(super) const REMOTE: &str = "demo-rome";

pub(super) struct Side {
    pub(super) simulation: Simulation,
    /// Metrics of each controller that was created. The last two are of the two replicas.
    metrics: Arc<Mutex<Vec<Metrics>>>,
}

/// Returns an endpoint as the virtual kubelet of `rome` writes it.
pub(super) fn endpoint(address: &str) -> Value {
    json!({"addresses": [address], "conditions": {"ready": true}, "nodeName": "rome"})
}

pub(super) fn settings() -> Settings {
    Settings {
        namespace: "liqo".to_owned(),
        tenant_namespaces: Vec::new(),
        deny_direct_connections: false,
        api_server_grace_period: Duration::from_secs(300),
    }
}

fn tenant_namespace(peer: &str) -> String {
    format!("liqo-tenant-{peer}")
}

impl Side {
    /// Creates a cluster without peers, whose requests have the order that `seed` determines.
    pub(super) fn empty(seed: u64, settings: Settings) -> Self {
        let metrics = Arc::new(Mutex::new(Vec::new()));
        let created = Arc::clone(&metrics);
        let make = move || {
            let metrics = Metrics::default();
            created.lock().unwrap().push(metrics.clone());
            ShadowEndpointSliceController::new(settings.clone(), metrics)
        };
        let mut side = Self {
            simulation: Simulation::new(seed).host(make).replicas(2),
            metrics,
        };
        side.put_namespace("liqo", &json!({}), &json!({}));
        for (type_, cidr) in [
            ("pod-cidr", "10.244.0.0/16"),
            ("service-cidr", "10.96.0.0/12"),
            ("internal-cidr", "10.80.0.0/16"),
        ] {
            side.put_network(type_, cidr);
        }
        side.put_node("milan-worker", "172.18.0.3");
        side
    }

    /// Creates `milan`, to which `rome` has offloaded a namespace. Their networks are connected.
    pub(super) fn milan(seed: u64) -> Self {
        Self::with_settings(seed, settings())
    }

    pub(super) fn with_settings(seed: u64, settings: Settings) -> Self {
        let mut milan = Self::empty(seed, settings);
        milan.put_peer("rome");
        milan.put_remote_namespace(REMOTE, "rome");
        milan.put_configuration("rome", "10.244.0.0/16", "10.71.0.0/16");
        milan.put_foreign_cluster("rome", true, "Established", None);
        milan.pass();
        milan
    }

    pub(super) fn put<K: kube::Resource<DynamicType = ()>>(&mut self, object: Value) {
        self.simulation.local().put::<K>(object);
    }

    pub(super) fn put_namespace(&mut self, name: &str, labels: &Value, annotations: &Value) {
        let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
        self.put::<Namespace>(json!({"metadata": metadata}));
    }

    /// Creates the tenant namespace of a peer.
    pub(super) fn put_peer(&mut self, peer: &str) {
        let labels = json!({"liqo.io/remote-cluster-id": peer, "liqo.io/tenant-namespace": "true"});
        self.put_namespace(&tenant_namespace(peer), &labels, &json!({}));
    }

    /// Creates a namespace as the namespace controller does for a consumer.
    pub(super) fn put_remote_namespace(&mut self, name: &str, peer: &str) {
        let map = format!("{}/milan", tenant_namespace(peer));
        let annotations = json!({"liqo.io/managed-by-namespace-map": map});
        self.put_namespace(
            name,
            &json!({"liqo.io/remote-cluster-id": peer}),
            &annotations,
        );
    }

    pub(super) fn put_network(&mut self, type_: &str, cidr: &str) {
        self.put::<control_api::Network>(json!({
            "apiVersion": "ipam.liqo.io/v1beta1",
            "kind": "Network",
            "metadata": {
                "name": type_,
                "namespace": "liqo",
                "labels": {"ipam.liqo.io/network-type": type_},
            },
            "spec": {"cidr": cidr},
        }));
    }

    pub(super) fn put_node(&mut self, name: &str, address: &str) {
        self.put::<Node>(json!({
            "metadata": {"name": name},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        }));
    }

    /// Creates the Configuration of a peer, whose pod CIDR is remapped.
    pub(super) fn put_configuration(&mut self, peer: &str, pods: &str, remapped: &str) {
        self.put::<Configuration>(json!({
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": "Configuration",
            "metadata": {
                "name": peer,
                "namespace": tenant_namespace(peer),
                "generation": 2,
                "labels": {"liqo.io/remote-cluster-id": peer},
            },
            "spec": {"remote": {"cidr": {"pod": [pods], "external": ["10.70.0.0/16"]}}},
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
    }

    /// Creates the summary of a peer. `api_server` is the state of its API server, if it is probed.
    pub(super) fn put_foreign_cluster(
        &mut self,
        peer: &str,
        is_networked: bool,
        connection: &str,
        api_server: Option<&str>,
    ) {
        let connection =
            json!([{"type": "NetworkConnectionStatus", "status": connection, "reason": "x"}]);
        let conditions = if is_networked { connection } else { json!([]) };
        let api_server: Vec<Value> = api_server
            .map(|status| json!({"type": "APIServerStatus", "status": status}))
            .into_iter()
            .collect();
        self.put::<ForeignCluster>(json!({
            "apiVersion": "core.liqo.io/v1beta1",
            "kind": "ForeignCluster",
            "metadata": {"name": peer, "labels": {"liqo.io/remote-cluster-id": peer}},
            "spec": {"clusterID": peer},
            "status": {
                "conditions": api_server,
                "modules": {
                    "authentication": {"enabled": true},
                    "networking": {"enabled": is_networked, "conditions": conditions},
                    "offloading": {"enabled": false},
                },
                "role": "Consumer",
            },
        }));
    }

    /// Creates a TenantPolicy.
    pub(super) fn put_policy(&mut self, name: &str, cidrs: &[&str]) {
        self.put::<TenantPolicy>(json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "TenantPolicy",
            "metadata": {"name": name, "namespace": "liqo"},
            "spec": {"endpointCIDRs": cidrs},
        }));
    }

    /// Creates the slice `web` of `rome` with these endpoints, and lets the controller act.
    pub(super) fn reflect(&mut self, endpoints: Value) {
        self.put_shadow("web", endpoints);
        self.pass();
    }

    /// Creates a slice of `rome`.
    pub(super) fn put_shadow(&mut self, name: &str, endpoints: Value) {
        self.put::<ShadowEndpointSlice>(json!({
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "ShadowEndpointSlice",
            "metadata": {
                "name": name,
                "namespace": REMOTE,
                "labels": {
                    "endpointslice.kubernetes.io/managed-by": "endpointslice.reflection.liqo.io",
                    "kubernetes.io/service-name": "web",
                    "offloading.liqo.io/destination": "milan",
                    "offloading.liqo.io/origin": "rome",
                },
            },
            "spec": {"template": {
                "addressType": "IPv4",
                "endpoints": endpoints,
                "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
            }},
        }));
    }

    /// Changes an object, as another client does.
    pub(super) fn edit<K>(&mut self, key: &Key, edit: impl FnOnce(&mut Value))
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let mut object = self.object::<K>(key);
        assert!(object.is_object(), "{key} does not exist");
        edit(&mut object);
        self.put::<K>(object);
        self.pass();
    }

    /// Changes the slice `web` of `rome`.
    pub(super) fn edit_shadow(&mut self, edit: impl FnOnce(&mut Value)) {
        self.edit::<ShadowEndpointSlice>(&Key::new(REMOTE, "web"), edit);
    }

    pub(super) fn remove<K: kube::Resource<DynamicType = ()>>(&mut self, key: &Key) {
        self.simulation.local().remove::<K>(key);
        self.pass();
    }

    pub(super) fn pass(&mut self) {
        self.simulation.pass(MOMENT);
    }

    /// Runs while replicas crash, the leader changes and the API server is away, and then until all is quiet.
    pub(super) fn pass_with_faults(&mut self) {
        for leader in [1, 0, 1, 0] {
            self.simulation.pass(Duration::from_millis(3));
            self.simulation.crash(leader);
            self.simulation.pass(Duration::from_millis(2));
            self.simulation.hand_over(leader);
            self.simulation.pass(Duration::from_millis(2));
            self.simulation.partition(&Cluster::Local);
            self.simulation.pass(Duration::from_millis(5));
            self.simulation.heal(&Cluster::Local);
        }
        self.simulation.pass(Duration::from_secs(300));
    }

    /// Returns an object; `Null` if it does not exist.
    pub(super) fn object<K>(&mut self, key: &Key) -> Value
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let object = self.simulation.local().get::<K>(key).cloned();
        object.unwrap_or_default()
    }

    /// Returns an EndpointSlice in the namespace of `rome`; `Null` if it does not exist.
    pub(super) fn slice(&mut self, name: &str) -> Value {
        self.object::<EndpointSlice>(&Key::new(REMOTE, name))
    }

    /// Returns the addresses of the slice `web`, those of endpoints that are not ready with a `!`.
    pub(super) fn endpoints(&mut self) -> Vec<String> {
        let slice = self.slice("web");
        let endpoints = slice["endpoints"].as_array().cloned().unwrap_or_default();
        let texts = endpoints.iter().flat_map(|endpoint| {
            let mark = match endpoint["conditions"]["ready"].as_bool() {
                Some(true) => "",
                Some(false) => "!",
                None => "?",
            };
            let addresses = endpoint["addresses"].as_array().cloned();
            let addresses = addresses.unwrap_or_default().into_iter();
            addresses.map(move |address| format!("{mark}{}", address.as_str().unwrap()))
        });
        texts.collect()
    }

    /// Returns the Events of the leader, as `reason: note`, each once.
    pub(super) fn events(&self) -> BTreeSet<String> {
        let events = self.simulation.events(0).iter();
        let texts = events.map(|it| format!("{}: {}", it.reason, it.note));
        texts.collect()
    }

    pub(super) fn has_event(&self, reason: &str, text: &str) -> bool {
        let mut events = self.events().into_iter();
        events.any(|it| it.starts_with(&format!("{reason}: ")) && it.contains(text))
    }

    /// Returns the number of requests about EndpointSlices.
    pub(super) fn requests(&self) -> usize {
        let log = self.simulation.log().iter();
        let objects = log.filter_map(|sent| sent.request.object());
        let resource = Resource::of::<EndpointSlice>();
        objects.filter(|it| it.resource == resource).count()
    }

    /// Returns the number of addresses that the first replica has left out, if it did not crash.
    pub(super) fn dropped(&self) -> u64 {
        let metrics = self.metrics.lock().unwrap();
        metrics[metrics.len() - 2].dropped()
    }

    /// Returns the number of contested EndpointSlices of the first replica, if it did not crash.
    pub(super) fn contested(&self) -> i64 {
        let metrics = self.metrics.lock().unwrap();
        metrics[metrics.len() - 2].contested()
    }

    /// Asserts that no write was sent twice, and that planning everything again causes no request.
    pub(super) fn assert_settled(&mut self) {
        let redundant: Vec<Sent> = self.simulation.redundant().into_iter().cloned().collect();
        assert!(redundant.is_empty(), "{redundant:?}");
        let replanned = self.simulation.replan(Duration::from_secs(900)).unwrap();
        assert!(replanned.is_empty(), "{replanned:?}");
    }
}
