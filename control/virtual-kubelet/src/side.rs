//! A cluster with the virtual kubelet, and its provider, in memory and under virtual time, for tests.

use crate::connection::Connection;
use crate::kubeconfig::Shared;
use crate::node::NodeController;
use crate::pod::forge::ApiServerSupport;
use crate::reflection::event::controller::PodEvents;
use crate::reflection::event::drops::Drops;
use crate::reflection::event::settings::EventSettings;
use crate::reflection::peering::Peering;
use crate::reflection::settings::Settings as ReflectionSettings;
use crate::reflection::tests::issuing::{self, Issuing};
use crate::reflection::tokens::controller::TokenController;
use crate::reflection::tokens::settings::TokenSettings;
use crate::settings::Settings;
use crate::workload::{Durations, WorkloadController};
use control_api::offloading::policy::Policy;
use control_api::{ForeignCluster, NamespaceMap, ShadowPod, VirtualNode};
use control_runtime::simulation::{Sent, Server, Simulation};
use control_runtime::{Cluster, Destinations, Key, Resource};
use ipam::Remap;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Long enough for the requests that a change causes.
pub(crate) const MOMENT: Duration = Duration::from_secs(2);

/// The cluster `rome` with the virtual node `milan` of the provider `milan`.
pub(crate) struct Side {
    pub(crate) simulation: Simulation,
    pub(crate) content: Shared,
    pub(crate) drops: Drops,
    pub(crate) durations: Durations,
}

pub(crate) fn settings() -> Settings {
    let cidr = |text: &str| text.parse().unwrap();
    Settings {
        node: "milan".to_owned(),
        home: "rome".to_owned(),
        provider: "milan".to_owned(),
        tenant_namespace: "liqo-tenant-milan".to_owned(),
        address: [10, 244, 0, 5].into(),
        creates_node: true,
        checks_network: true,
        api_server_grace_period: Duration::from_secs(300),
        has_storage: true,
        pod_remaps: vec![Remap::new(cidr("10.244.0.0/16"), cidr("10.71.0.0/16")).unwrap()],
        external_remaps: Vec::new(),
        reflects_ips: true,
        reflects_events: true,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        api_server_support: ApiServerSupport::Disabled,
        home_api_server: None,
        service_port: 443,
        version: "v1.35.4".to_owned(),
        kubelet_port: 10250,
        destinations: Destinations::Remote,
    }
}

/// Returns the settings of the reflection of Events.
fn events(settings: &Settings) -> EventSettings {
    let reflection = ReflectionSettings {
        peering: Peering {
            origin: settings.home.clone(),
            destination: settings.provider.clone(),
            ..Peering::default()
        },
        tenant_namespace: settings.tenant_namespace.clone(),
        ..ReflectionSettings::default()
    };
    EventSettings {
        reflection,
        node: Some(settings.node.clone()),
        policy: Policy::DenyList,
    }
}

/// Returns the kubeconfig of a provider at an address.
pub(crate) fn kubeconfig(address: &str) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("https://{address}:6443"),
            "insecure-skip-tls-verify": true}}],
        "users": [{"name": "c", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    });
    config.to_string()
}

impl Side {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with_settings(seed, settings())
    }

    pub(crate) fn with_settings(seed: u64, settings: Settings) -> Self {
        Self::hosting(Simulation::new(seed), settings, None)
    }

    /// Creates both clusters with pods that have tokens of `server`.
    pub(crate) fn with_tokens(seed: u64, server: &Arc<Mutex<issuing::Server>>) -> Self {
        let server = Arc::clone(server);
        let make = move || Issuing {
            controller: TokenController::new(issuing::settings()),
            server: Arc::clone(&server),
        };
        let simulation = Simulation::new(seed).host(make);
        Self::hosting(simulation, settings(), Some(issuing::settings()))
    }

    fn hosting(simulation: Simulation, settings: Settings, tokens: Option<TokenSettings>) -> Self {
        let content = Shared::default();
        content.set(Ok(kubeconfig("192.0.2.1")));
        let (shared, of_node) = (content.clone(), settings.clone());
        let node = move || NodeController::new(of_node.clone(), Connection::new(shared.clone()));
        let of_events = settings.reflects_events.then(|| events(&settings));
        let shared = content.clone();
        let durations = Durations::default();
        let measured = durations.clone();
        let workload = move || {
            let workload =
                WorkloadController::new(settings.clone(), shared.clone(), tokens.clone());
            workload.measured(measured.clone())
        };
        let mut simulation = simulation.host(node).host(workload);
        let drops = Drops::default();
        if let Some(settings) = of_events {
            let drops = drops.clone();
            let make = move || PodEvents::new(settings.clone(), drops.clone());
            simulation = simulation.host(make);
        }
        let simulation = simulation.replicas(2);
        let mut side = Self {
            simulation,
            content,
            drops,
            durations,
        };
        for namespace in ["liqo-tenant-milan", "kube-node-lease", "shop"] {
            side.simulation.local().put_namespace(namespace);
        }
        side.put::<VirtualNode>(json!({
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "VirtualNode",
            "metadata": {"name": "milan", "namespace": "liqo-tenant-milan"},
            "spec": {
                "clusterID": "milan",
                "labels": {"liqo.io/remote-cluster-id": "milan", "provider": "AWS", "region": "B"},
                "resourceQuota": {"hard": {"cpu": "20", "ephemeral-storage": "20Gi", "memory": "20Gi", "pods": "200"}},
            },
        }));
        side.put_foreign("Established", Some("Established"));
        // The API server exists from now on.
        side.provider();
        side
    }

    pub(crate) fn put<K: kube::Resource<DynamicType = ()>>(&mut self, object: Value) {
        self.simulation.local().put::<K>(object);
    }

    /// Creates the ForeignCluster: the state of the API server, and of the networks; `None` without the networking module.
    pub(crate) fn put_foreign(&mut self, api_server: &str, network: Option<&str>) {
        let conditions = network.map(|it| json!({"type": "NetworkConnectionStatus", "status": it}));
        let networking =
            json!({"enabled": network.is_some(), "conditions": Vec::from_iter(conditions)});
        let module = json!({"enabled": true});
        self.put::<ForeignCluster>(json!({
            "apiVersion": "core.liqo.io/v1beta1",
            "kind": "ForeignCluster",
            "metadata": {"name": "milan"},
            "spec": {"clusterID": "milan"},
            "status": {
                "role": "Provider",
                "conditions": [{"type": "APIServerStatus", "status": api_server}],
                "modules": {"authentication": module, "networking": networking, "offloading": module},
            },
        }));
    }

    /// Notes in the ForeignCluster that the API server has stopped to respond now.
    pub(crate) fn put_outage(&mut self, network: Option<&str>) {
        self.put_foreign("Error", network);
        let since = self.simulation.time().to_string();
        let mut foreign = self.object::<ForeignCluster>(&Key::cluster("milan"));
        foreign["status"]["conditions"][0]["lastTransitionTime"] = json!(since);
        self.put::<ForeignCluster>(foreign);
    }

    /// Maps `shop` to `shop-rome`, as the provider does.
    pub(crate) fn put_map(&mut self, phase: &str) {
        self.provider().put_namespace("shop-rome");
        self.put::<NamespaceMap>(json!({
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "NamespaceMap",
            "metadata": {"name": "milan", "namespace": "liqo-tenant-milan"},
            "spec": {"desiredMapping": {"shop": "shop-rome"}},
            "status": {"currentMapping": {"shop": {"phase": phase, "remoteNamespace": "shop-rome"}}},
        }));
    }

    pub(crate) fn provider(&mut self) -> &mut Server {
        self.simulation.cluster(&Cluster::remote("milan"))
    }

    pub(crate) fn pass(&mut self) {
        self.simulation.pass(MOMENT);
    }

    /// Returns an object of this cluster; `Null` if it does not exist.
    pub(crate) fn object<K: kube::Resource<DynamicType = ()>>(&mut self, key: &Key) -> Value {
        self.simulation
            .local()
            .get::<K>(key)
            .cloned()
            .unwrap_or_default()
    }

    pub(crate) fn edit<K: kube::Resource<DynamicType = ()>>(
        &mut self,
        key: &Key,
        edit: impl FnOnce(&mut Value),
    ) {
        let mut object = self.object::<K>(key);
        edit(&mut object);
        self.put::<K>(object);
        self.pass();
    }

    pub(crate) fn node(&mut self) -> Value {
        self.object::<Node>(&Key::cluster("milan"))
    }

    /// Returns the conditions of the Node, as `type=status reason`.
    pub(crate) fn conditions(&mut self) -> Vec<String> {
        let node = self.node();
        let conditions = node["status"]["conditions"].as_array().cloned();
        let text = |it: &Value| {
            let [type_, status, reason] =
                ["type", "status", "reason"].map(|field| it[field].as_str().unwrap());
            format!("{type_}={status} {reason}")
        };
        conditions.iter().flatten().map(text).collect()
    }

    /// Creates a pod that is bound to the Node.
    pub(crate) fn put_pod(&mut self, name: &str) {
        self.put::<Pod>(json!({
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"nodeName": "milan", "containers": [{"name": "web", "image": "web:1"}]},
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        }));
    }

    pub(crate) fn pod(&mut self, name: &str) -> Value {
        self.object::<Pod>(&Key::new("shop", name))
    }

    /// Returns a ShadowPod; `Null` if it does not exist.
    pub(crate) fn shadow(&mut self, name: &str) -> Value {
        let key = Key::new("shop-rome", name);
        self.provider()
            .get::<ShadowPod>(&key)
            .cloned()
            .unwrap_or_default()
    }

    /// Creates or changes the remote pod, as the provider does, and waits a moment.
    pub(crate) fn put_remote(&mut self, name: &str, status: &Value) {
        self.set_remote(name, status);
        self.pass();
    }

    /// Creates or changes the remote pod, as the provider does.
    pub(crate) fn set_remote(&mut self, name: &str, status: &Value) {
        let key = Key::new("shop-rome", name);
        let existing = self.provider().get::<Pod>(&key).cloned();
        let like = existing.unwrap_or_else(|| self.shadow(name));
        let labels = &like["metadata"]["labels"];
        self.provider().put::<Pod>(json!({
            "metadata": {"name": name, "namespace": "shop-rome", "labels": labels},
            "spec": {"nodeName": "milan-2", "containers": [{"name": "web", "image": "web:1"}]},
            "status": status,
        }));
    }

    /// Removes the remote pod, as the provider does when its containers have ended.
    pub(crate) fn remove_remote(&mut self, name: &str) {
        let key = Key::new("shop-rome", name);
        self.provider().terminate::<Pod>(&key);
        self.pass();
    }

    /// Returns the number of writes about objects of a type.
    pub(crate) fn writes<K: kube::Resource<DynamicType = ()>>(&self) -> usize {
        let log = self.simulation.log().iter();
        let objects = log.filter_map(|sent| sent.request.object());
        objects
            .filter(|it| it.resource == Resource::of::<K>())
            .count()
    }

    /// Returns the number of reads of objects of a type.
    pub(crate) fn reads<K: kube::Resource<DynamicType = ()>>(&self) -> usize {
        let log = self.simulation.log().iter();
        let reads = log.filter(|sent| sent.request.verb() == "get");
        let objects = reads.filter_map(|sent| sent.request.object());
        objects
            .filter(|it| it.resource == Resource::of::<K>())
            .count()
    }

    /// Returns the Events of the leader, as `reason: note`.
    pub(crate) fn events(&self) -> Vec<String> {
        let events = self.simulation.events(0).iter();
        events
            .map(|it| format!("{}: {}", it.reason, it.note))
            .collect()
    }

    pub(crate) fn redundant(&self) -> Vec<Sent> {
        self.simulation.redundant().into_iter().cloned().collect()
    }
}
