//! One cluster with its namespace controller, in memory and under virtual time.

use crate::namespace::{NamespaceController, Settings};
use control_api::{NamespaceMap, NamespaceOffloading, VirtualNode};
use control_runtime::simulation::{Sent, Simulation};
use control_runtime::{Cluster, Key, Resource};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Long enough for the requests that a change causes.
const MOMENT: Duration = Duration::from_secs(2);

pub(super) struct Side {
    pub(super) simulation: Simulation,
}

pub(super) fn tenant_namespace(peer: &str) -> String {
    format!("liqo-tenant-{peer}")
}

/// Returns the key of an object in the tenant namespace of a peer.
pub(super) fn key(peer: &str, name: &str) -> Key {
    Key::new(tenant_namespace(peer), name)
}

impl Side {
    /// Creates the cluster `id`, whose requests have the order that `seed` determines.
    pub(super) fn new(id: &str, seed: u64) -> Self {
        Self::with_kubelets(id, seed, true)
    }

    pub(super) fn with_kubelets(id: &str, seed: u64, has_virtual_kubelets: bool) -> Self {
        let settings = Settings {
            namespace: "liqo".to_owned(),
            has_virtual_kubelets,
        };
        let make = move || NamespaceController::new(settings.clone());
        let mut side = Self {
            simulation: Simulation::new(seed).host(make).replicas(2),
        };
        side.put_namespace("liqo", &json!({}));
        side.put::<ConfigMap>(json!({
            "metadata": {
                "name": "liqo-clusterid-configmap",
                "namespace": "liqo",
                "labels": {"app.kubernetes.io/name": "clusterid-configmap"},
            },
            "data": {"CLUSTER_ID": id},
        }));
        side
    }

    pub(super) fn put<K: kube::Resource<DynamicType = ()>>(&mut self, object: Value) {
        self.simulation.local().put::<K>(object);
    }

    pub(super) fn put_namespace(&mut self, name: &str, labels: &Value) {
        self.put::<Namespace>(json!({"metadata": {"name": name, "labels": labels}}));
    }

    pub(super) fn put_peer(&mut self, peer: &str) {
        let labels = json!({"liqo.io/remote-cluster-id": peer, "liqo.io/tenant-namespace": "true"});
        self.put_namespace(&tenant_namespace(peer), &labels);
    }

    /// Creates a VirtualNode with labels.
    pub(super) fn put_node(&mut self, peer: &str, name: &str, labels: &Value) {
        self.put::<VirtualNode>(json!({
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "VirtualNode",
            "metadata": {"name": name, "namespace": tenant_namespace(peer)},
            "spec": {"clusterID": peer, "labels": labels},
        }));
    }

    /// Creates a namespace, and offloads it.
    pub(super) fn offload(&mut self, namespace: &str, spec: &Value) {
        self.put_namespace(namespace, &json!({}));
        self.put_offloading(namespace, spec);
        self.pass();
    }

    pub(super) fn put_offloading(&mut self, namespace: &str, spec: &Value) {
        self.put::<NamespaceOffloading>(json!({
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "NamespaceOffloading",
            "metadata": {"name": "offloading", "namespace": namespace, "generation": 1},
            "spec": spec,
        }));
    }

    /// Creates the replica of a consumer's NamespaceMap.
    pub(super) fn put_replica(&mut self, peer: &str, own: &str, mapping: &Value) {
        let labels = json!({
            "liqo.io/originID": peer, "liqo.io/remote-cluster-id": peer, "liqo.io/remoteID": own,
            "liqo.io/replicated": "true", "liqo.io/replication": "false",
        });
        self.put::<NamespaceMap>(json!({
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "NamespaceMap",
            "metadata": {"name": own, "namespace": tenant_namespace(peer), "labels": labels},
            "spec": {"desiredMapping": mapping},
        }));
        self.pass();
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
        self.simulation
            .local()
            .get::<K>(key)
            .cloned()
            .unwrap_or_default()
    }

    pub(super) fn namespace(&mut self, name: &str) -> Value {
        self.object::<Namespace>(&Key::cluster(name))
    }

    /// Returns the names that a NamespaceMap of this cluster requests; `Null` if it does not exist.
    pub(super) fn requested(&mut self, peer: &str) -> Value {
        self.object::<NamespaceMap>(&key(peer, peer))["spec"]["desiredMapping"].clone()
    }

    /// Sets the provider's entries of the status of a NamespaceMap.
    pub(super) fn respond(&mut self, peer: &str, mapping: &Value) {
        self.edit::<NamespaceMap>(&key(peer, peer), |map| {
            map["status"] = json!({"currentMapping": mapping});
        });
    }

    pub(super) fn status(&mut self, namespace: &str) -> Value {
        self.object::<NamespaceOffloading>(&Key::new(namespace, "offloading"))["status"].clone()
    }

    /// Returns the conditions of a provider, as `type=status reason`.
    pub(super) fn conditions(&mut self, namespace: &str, peer: &str) -> Vec<String> {
        let status = self.status(namespace);
        let conditions = status["remoteNamespacesConditions"][peer]
            .as_array()
            .cloned();
        let text = |it: &Value| {
            let [type_, status, reason] =
                ["type", "status", "reason"].map(|field| it[field].as_str().unwrap());
            format!("{type_}={status} {reason}")
        };
        conditions.iter().flatten().map(text).collect()
    }

    pub(super) fn is_scheduling(&mut self, namespace: &str) -> bool {
        self.namespace(namespace)["metadata"]["labels"]["liqo.io/scheduling-enabled"] == "true"
    }

    /// Returns the Events of the leader, as `reason: note`, each once.
    pub(super) fn events(&self) -> BTreeSet<String> {
        let events = self.simulation.events(0).iter();
        events
            .map(|it| format!("{}: {}", it.reason, it.note))
            .collect()
    }

    /// Returns the number of requests about objects of a type.
    pub(super) fn requests<K: kube::Resource<DynamicType = ()>>(&self) -> usize {
        let log = self.simulation.log().iter();
        let objects = log.filter_map(|sent| sent.request.object());
        objects
            .filter(|it| it.resource == Resource::of::<K>())
            .count()
    }

    /// Asserts that no write was sent twice, and that planning everything again causes no request.
    pub(super) fn assert_settled(&mut self) {
        let redundant: Vec<Sent> = self.simulation.redundant().into_iter().cloned().collect();
        assert!(redundant.is_empty(), "{redundant:?}");
        self.assert_stable();
    }

    /// Asserts that planning everything again causes no request.
    pub(super) fn assert_stable(&mut self) {
        let replanned = self.simulation.replan(Duration::from_secs(900)).unwrap();
        assert!(replanned.is_empty(), "{replanned:?}");
    }
}
