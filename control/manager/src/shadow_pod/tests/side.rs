//! A provider: the ShadowPod controller, with a cluster in memory and virtual time.

use crate::shadow_pod::{Settings, ShadowPodController};
use control_api::quantity::{Amount, amount};
use control_api::{Configuration, Quota, ShadowPod, TenantPolicy};
use control_runtime::simulation::{Sent, Simulation};
use control_runtime::{Action, Cluster, Key, Request, Resource};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough for the requests that a change causes.
pub(super) const MOMENT: Duration = Duration::from_secs(2);

/// User of the ResourceSlice of `rome`.
pub(super) const USER: &str = "milan-a8a4c692b93b";

/// Namespace of `rome` in this cluster.
pub(super) const NAMESPACE: &str = "demo-rome";

pub(super) struct Side {
    pub(super) simulation: Simulation,
}

pub(super) fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

/// Returns the key of the ConfigMap with the ID of this cluster.
pub(super) fn cluster_id() -> Key {
    Key::new("liqo", "liqo-clusterid-configmap")
}

/// Returns a pod's spec as virtual kubelets write it, with a request of CPU.
pub(super) fn spec(cpu: &str) -> Value {
    json!({
        "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}],
    })
}

/// Returns a ShadowPod of `rome`, created at this second.
pub(super) fn shadow_pod(name: &str, second: u8, spec: &Value) -> Value {
    json!({
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "creationTimestamp": format!("2026-11-21T08:29:{second:02}Z"),
            "labels": {
                "liqo.io/creator-user": USER,
                "offloading.liqo.io/origin": "rome",
                "offloading.liqo.io/destination": "milan",
            },
        },
        "spec": {"pod": spec},
    })
}

impl Side {
    /// Creates a provider with the consumer `rome` and its Quota of 4 CPUs, whose requests have the order that `seed`
    /// determines.
    pub(super) fn new(seed: u64) -> Self {
        Self::with_enforcement(seed, true)
    }

    pub(super) fn with_enforcement(seed: u64, enforces_resources: bool) -> Self {
        let make = move || {
            ShadowPodController::new(Settings {
                namespace: "liqo".to_owned(),
                enforces_resources,
            })
        };
        let simulation = Simulation::new(seed).host(make).replicas(2);
        let mut side = Self { simulation };
        side.put_cluster_id("milan");
        side.put_consumer("rome", NAMESPACE);
        side.put_quota("rome", USER, &json!({"cpu": "4", "pods": "100"}));
        side
    }

    /// Writes the ID of this cluster.
    pub(super) fn put_cluster_id(&mut self, id: &str) {
        let key = cluster_id();
        self.put::<ConfigMap>(json!({
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": {"app.kubernetes.io/name": "clusterid-configmap"},
            },
            "data": {"CLUSTER_ID": id},
        }));
    }

    /// Creates the tenant namespace of a consumer, and one of its remote namespaces.
    pub(super) fn put_consumer(&mut self, consumer: &str, namespace: &str) {
        let tenant = format!("liqo-tenant-{consumer}");
        let labels =
            json!({"liqo.io/remote-cluster-id": consumer, "liqo.io/tenant-namespace": "true"});
        self.put::<Namespace>(json!({"metadata": {"name": tenant, "labels": labels}}));
        self.put::<Namespace>(json!({"metadata": {
            "name": namespace,
            "labels": {"liqo.io/remote-cluster-id": consumer},
            "annotations": {"liqo.io/managed-by-namespace-map": format!("{tenant}/milan")},
        }}));
    }

    pub(super) fn put_quota(&mut self, consumer: &str, user: &str, resources: &Value) {
        self.put::<Quota>(json!({
            "metadata": {"name": user, "namespace": format!("liqo-tenant-{consumer}")},
            "spec": {"limitsEnforcement": "None", "resources": resources, "user": user},
        }));
    }

    /// Creates the Configuration of a consumer, whose external CIDR 10.70.0.0/16 this cluster remaps to 10.68.0.0/16.
    pub(super) fn put_configuration(&mut self, consumer: &str) {
        self.put::<Configuration>(json!({
            "metadata": {
                "name": consumer,
                "namespace": format!("liqo-tenant-{consumer}"),
                "generation": 1,
                "labels": {"liqo.io/remote-cluster-id": consumer},
            },
            "spec": {"remote": {"cidr": {"pod": ["10.244.0.0/16"], "external": ["10.70.0.0/16"]}}},
            "status": {
                "conditions": [{
                    "lastTransitionTime": "2026-11-21T08:15:18Z",
                    "message": "",
                    "observedGeneration": 1,
                    "reason": "NetworkCIDRsConfigured",
                    "status": "True",
                    "type": "NetworkCIDRsConfigured",
                }],
                "remote": {"cidr": {"pod": ["10.71.0.0/16"], "external": ["10.68.0.0/16"]}},
            },
        }));
    }

    /// Writes the TenantPolicy of a consumer, or the one of name `default`.
    pub(super) fn put_policy(&mut self, name: &str, spec: &Value) {
        self.put::<TenantPolicy>(json!({
            "metadata": {"name": name, "namespace": "liqo"},
            "spec": spec,
        }));
    }

    pub(super) fn put<K: kube::Resource<DynamicType = ()>>(&mut self, object: Value) {
        self.simulation.local().put::<K>(object);
    }

    /// Creates a ShadowPod of `rome` that requests CPU.
    pub(super) fn request(&mut self, name: &str, second: u8, cpu: &str) {
        self.put::<ShadowPod>(shadow_pod(name, second, &spec(cpu)));
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

    pub(super) fn edit_quota(&mut self, edit: impl FnOnce(&mut Value)) {
        self.edit::<Quota>(&Key::new("liqo-tenant-rome", USER), edit);
    }

    /// Sets the phase of a pod, as a kubelet does.
    pub(super) fn set_phase(&mut self, name: &str, phase: &str) {
        self.edit::<Pod>(&key(name), |pod| pod["status"] = json!({"phase": phase}));
    }

    pub(super) fn remove<K: kube::Resource<DynamicType = ()>>(&mut self, name: &str) {
        self.simulation.local().remove::<K>(&key(name));
    }

    /// Removes a ShadowPod and then its pod, as the garbage collector does.
    pub(super) fn remove_both(&mut self, name: &str) {
        self.remove::<ShadowPod>(name);
        self.run(MOMENT);
        self.remove::<Pod>(name);
    }

    pub(super) fn run(&mut self, time: Duration) {
        self.simulation.pass(time);
    }

    /// Runs step by step, and checks at each that the pods fit into 4 CPUs.
    pub(super) fn run_within_quota(&mut self, steps: usize) {
        for _ in 0..steps {
            self.run(Duration::from_millis(1));
            let used = self.used();
            assert!(
                used <= amount("4").unwrap(),
                "{used} CPUs: {:?}",
                self.pods()
            );
        }
    }

    /// Returns the CPUs of the pods that have not ended.
    pub(super) fn used(&mut self) -> Amount {
        let pods = self.simulation.local().all::<Pod>();
        let live = pods.iter().filter(|pod| {
            !["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default())
        });
        let cpus = live.map(|pod| {
            let cpu = &pod["spec"]["containers"][0]["resources"]["requests"]["cpu"];
            amount(cpu.as_str().unwrap()).unwrap()
        });
        cpus.fold(Amount::default(), Amount::saturating_add)
    }

    pub(super) fn object<K>(&mut self, key: &Key) -> Option<Value>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        self.simulation.local().get::<K>(key).cloned()
    }

    pub(super) fn pod(&mut self, name: &str) -> Option<Value> {
        self.object::<Pod>(&key(name))
    }

    /// Returns the phase in the status of a ShadowPod; `Null` without one.
    pub(super) fn phase(&mut self, name: &str) -> Value {
        let object = self.object::<ShadowPod>(&key(name)).unwrap();
        object["status"]["phase"].clone()
    }

    /// Returns the names of all pods.
    pub(super) fn pods(&mut self) -> Vec<String> {
        let pods = self.simulation.local().all::<Pod>();
        let names = pods
            .iter()
            .map(|pod| pod["metadata"]["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }

    /// Returns the Events of the leader about a ShadowPod, as `reason: note`, without equal ones in a row.
    pub(super) fn events(&self, name: &str) -> Vec<String> {
        let events = self.simulation.events(0).iter();
        let events = events.filter(|event| event.object.key.name == name);
        let mut texts: Vec<_> = events
            .map(|event| format!("{}: {}", event.reason, event.note))
            .collect();
        texts.dedup();
        texts
    }

    /// Returns the number of requests about objects of a type.
    pub(super) fn requests<K: kube::Resource<DynamicType = ()>>(&self) -> usize {
        let log = self.simulation.log().iter();
        log.filter(|sent| {
            sent.request.object().map(|it| &it.resource) == Some(&Resource::of::<K>())
        })
        .count()
    }

    /// Returns the number of reads of objects of a type.
    pub(super) fn reads<K: kube::Resource<DynamicType = ()>>(&self) -> usize {
        let log = self.simulation.log().iter();
        let reads = log.filter_map(|sent| match &sent.request {
            Request::Read(object) => Some(object),
            Request::Write(_) | Request::Probe(_) => None,
        });
        reads
            .filter(|it| it.resource == Resource::of::<K>())
            .count()
    }

    /// Returns whether each creation of a pod ends before another replica may lead.
    pub(super) fn creations_have_a_time_limit(&self) -> bool {
        let log = self.simulation.log().iter();
        log.filter_map(|sent| match &sent.request {
            Request::Write(write) => Some(write),
            Request::Read(_) | Request::Probe(_) => None,
        })
        .filter(|write| matches!(write.action, Action::Create(_)))
        .all(|write| write.server_timeout == Some(Duration::from_secs(4)))
    }

    pub(super) fn partition(&mut self, time: Duration) {
        self.simulation.partition(&Cluster::Local);
        self.run(time);
        self.simulation.heal(&Cluster::Local);
    }

    /// Returns the requests that planning everything again causes.
    pub(super) fn replanned(&mut self) -> Vec<Sent> {
        self.simulation.replan(Duration::from_secs(600)).unwrap()
    }
}
