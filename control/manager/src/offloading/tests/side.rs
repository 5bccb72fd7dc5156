//! One side of a peering: the offloading controller, with a cluster in memory and virtual time.

use super::recorded::{Notes, Recorded};
use crate::offloading::{OffloadingController, Settings};
use control_api::offloading::quota::LimitsEnforcement;
use control_api::{Identity, ResourceSlice, VirtualNode};
use control_runtime::simulation::{Sent, Simulation};
use control_runtime::{Action, Cluster, Key, Request, Resource};
use k8s_openapi::api::core::v1::{Namespace, Node};
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough for the requests that a change causes.
pub(super) const MOMENT: Duration = Duration::from_secs(2);

/// A cluster with its offloading controller.
pub(super) struct Side {
    pub(super) simulation: Simulation,
    notes: Notes,
}

pub(super) fn settings() -> Settings {
    Settings {
        limits_enforcement: LimitsEnforcement::None,
        allowed_node_labels: Vec::new(),
        kubelets: None,
    }
}

pub(super) fn tenant_namespace(peer: &str) -> String {
    format!("liqo-tenant-{peer}")
}

/// Returns the key of an object in the tenant namespace of a peer.
pub(super) fn key(peer: &str, name: &str) -> Key {
    Key::new(tenant_namespace(peer), name)
}

impl Side {
    /// Creates a cluster whose requests have the order that `seed` determines.
    pub(super) fn new(seed: u64) -> Self {
        Self::with_settings(seed, settings())
    }

    pub(super) fn with_settings(seed: u64, settings: Settings) -> Self {
        let notes = Notes::default();
        let recorder = notes.clone();
        let make = move || Recorded {
            controller: OffloadingController::new(settings.clone()),
            notes: recorder.clone(),
        };
        let simulation = Simulation::new(seed).host(make).replicas(2);
        Self { simulation, notes }
    }

    /// Creates the tenant namespace of a peer.
    pub(super) fn put_peer(&mut self, peer: &str) {
        let labels = json!({"liqo.io/remote-cluster-id": peer, "liqo.io/tenant-namespace": "true"});
        let metadata = json!({"name": tenant_namespace(peer), "labels": labels});
        self.put::<Namespace>(json!({"metadata": metadata}));
    }

    pub(super) fn put<K: kube::Resource<DynamicType = ()>>(&mut self, object: Value) {
        self.simulation.local().put::<K>(object);
    }

    /// Changes an object, as another client does.
    pub(super) fn edit<K>(&mut self, key: &Key, edit: impl FnOnce(&mut Value))
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let mut object = self.object::<K>(key).unwrap();
        edit(&mut object);
        self.put::<K>(object);
    }

    pub(super) fn edit_slice(&mut self, key: &Key, edit: impl FnOnce(&mut Value)) {
        self.edit::<ResourceSlice>(key, edit);
    }

    pub(super) fn remove<K: kube::Resource<DynamicType = ()>>(&mut self, key: &Key) {
        self.simulation.local().remove::<K>(key);
    }

    /// Creates an Identity with or without its kubeconfig Secret.
    pub(super) fn put_identity(&mut self, peer: &str, slice: &str, is_ready: bool) {
        let secret =
            json!({"kubeconfigSecretRef": {"name": format!("kubeconfig-resourceslice-{slice}")}});
        self.put::<Identity>(json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "Identity",
            "metadata": {
                "name": format!("resourceslice-{slice}"),
                "namespace": tenant_namespace(peer),
                "labels": {"liqo.io/resourceslice-name": slice},
            },
            "spec": {"clusterID": peer, "type": "ResourceSlice"},
            "status": if is_ready { secret } else { json!({}) },
        }));
    }

    pub(super) fn put_node(&mut self, name: &str, labels: &Value) {
        self.put::<Node>(json!({"metadata": {"name": name, "labels": labels}}));
    }

    pub(super) fn run(&mut self, time: Duration) {
        self.simulation.pass(time);
    }

    /// Runs while replicas crash, the leader changes and the API server is away, and then until all is quiet.
    pub(super) fn run_with_faults(&mut self) {
        for leader in [1, 0, 1, 0] {
            self.run(Duration::from_millis(3));
            self.simulation.crash(leader);
            self.run(Duration::from_millis(2));
            self.simulation.hand_over(leader);
            self.run(Duration::from_millis(2));
            self.simulation.partition(&Cluster::Local);
            self.run(Duration::from_millis(5));
            self.simulation.heal(&Cluster::Local);
        }
        self.run(Duration::from_secs(300));
    }

    pub(super) fn object<K>(&mut self, key: &Key) -> Option<Value>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        self.simulation.local().get::<K>(key).cloned()
    }

    /// Returns the spec of an object; `Null` if it does not exist.
    pub(super) fn spec<K>(&mut self, key: &Key) -> Value
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let object = self.object::<K>(key);
        object.map(|it| it["spec"].clone()).unwrap_or_default()
    }

    pub(super) fn count<K: kube::Resource<DynamicType = ()>>(&mut self) -> usize {
        self.simulation.local().all::<K>().len()
    }

    /// Returns the number of requests about objects of a type.
    pub(super) fn requests<K: kube::Resource<DynamicType = ()>>(&self) -> usize {
        let log = self.simulation.log().iter();
        log.filter(|sent| {
            sent.request.object().map(|it| &it.resource) == Some(&Resource::of::<K>())
        })
        .count()
    }

    /// Returns whether each change of objects of a type, but not of their statuses, names the version that it changes.
    pub(super) fn is_guarded<K: kube::Resource<DynamicType = ()>>(&self) -> bool {
        let log = self.simulation.log().iter();
        log.filter_map(|sent| match &sent.request {
            Request::Write(write) => Some(write),
            Request::Read(_) | Request::Probe(_) => None,
        })
        .filter(|write| write.object.resource == Resource::of::<K>())
        .filter(|write| write.subresource.is_none() && matches!(write.action, Action::Merge(_)))
        .all(|write| write.uid.is_some() && write.resource_version.is_some())
    }

    pub(super) fn redundant(&self) -> Vec<&Sent> {
        self.simulation.redundant()
    }

    /// Returns the requests that planning everything again causes.
    pub(super) fn replanned(&mut self) -> Vec<Sent> {
        self.simulation.replan(Duration::from_secs(600)).unwrap()
    }

    /// Returns the Events since the last call, as `Kind name reason: note`, each once.
    pub(super) fn events(&mut self) -> Vec<String> {
        Vec::from_iter(self.notes.take())
    }

    /// Returns the VirtualNode's conditions, as `type=status`.
    pub(super) fn conditions(&mut self, key: &Key) -> Vec<String> {
        let node = self.object::<VirtualNode>(key).unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array().cloned();
        let text = |it: &Value| {
            let [type_, status] = ["type", "status"].map(|field| it[field].as_str().unwrap());
            format!("{type_}={status}")
        };
        conditions.iter().flatten().map(text).collect()
    }
}
