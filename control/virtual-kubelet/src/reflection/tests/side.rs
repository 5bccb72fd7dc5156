//! Two clusters in memory and under virtual time: `rome` with the virtual kubelet, and its provider `milan`.

use crate::reflection::conflicts::Conflicts;
use crate::reflection::controller::ReflectionController;
use crate::reflection::kind::Kind;
use crate::reflection::other::Other;
use crate::reflection::settings::Settings;
use control_api::NamespaceMap;
use control_api::offloading::policy::Policy;
use control_runtime::simulation::{Sent, Simulation};
use control_runtime::{
    Cache, Change, Cluster, ClusterChange, Controller, Destinations, Env, Key, Plan, Registration,
    RemoteConfig, Scope,
};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough for the requests that a change causes.
const MOMENT: Duration = Duration::from_secs(2);

pub(super) const TENANT: &str = "liqo-tenant-milan";

/// Connects to the provider, as another controller of the process does.
pub(super) struct Connect;

impl Controller for Connect {
    type Item = String;
    const NAME: &'static str = "connect";
    const FIELD_MANAGER: &'static str = "connect";

    fn resources(&self) -> Vec<Registration> {
        vec![Registration::whole::<Namespace>(Scope::All).name(TENANT)]
    }

    fn observe(&mut self, _: &Change<'_>, _: &Cache) -> Vec<String> {
        vec!["milan".to_owned()]
    }

    fn plan(&mut self, peer: &String, _: &Cache, _: &mut Env<'_>) -> Plan<String> {
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "peer",
            "contexts": [{"name": "peer", "context": {"cluster": "peer", "user": "peer"}}],
            "clusters": [{"name": "peer", "cluster": {"server": "https://192.0.2.1"}}],
            "users": [{"name": "peer", "user": {"token": "token"}}]});
        let config = RemoteConfig::parse(&kubeconfig.to_string(), Destinations::Any).unwrap();
        let mut plan = Plan::default();
        let set = ClusterChange::Set(Cluster::remote(peer), Box::new(config));
        plan.clusters.push(set);
        plan
    }
}

pub(super) struct Sides {
    pub(super) simulation: Simulation,
}

/// Returns a kind that a flag names, whose status is written back.
pub(super) fn budgets() -> Kind {
    let resource = "poddisruptionbudgets.v1.policy:DenyList:status";
    Kind::Other(Other::leak(&resource.parse().unwrap()))
}

/// Returns settings by which all kinds are reflected.
pub(super) fn settings() -> Settings {
    let kinds = Kind::ALL.into_iter().chain([budgets()]);
    Settings {
        peering: super::peering(),
        tenant_namespace: TENANT.to_owned(),
        policies: kinds.map(|kind| (kind, Policy::DenyList)).collect(),
        pod_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        ..Settings::default()
    }
}

pub(super) fn milan() -> Cluster {
    Cluster::remote("milan")
}

/// Returns the name of an object in the offloaded namespace.
pub(super) fn local(name: &str) -> Key {
    Key::new("shop", name)
}

/// Returns the name of an object in the namespace of the provider.
pub(super) fn remote(name: &str) -> Key {
    Key::new("shop-rome", name)
}

impl Sides {
    /// Creates both clusters with the offloaded namespace `shop`.
    pub(super) fn new(seed: u64, settings: Settings) -> Self {
        let make = move || ReflectionController::new(settings.clone(), Conflicts::default());
        let simulation = Simulation::new(seed).host(|| Connect).host(make);
        Self::with(simulation)
    }

    /// Creates the namespaces of both clusters.
    pub(super) fn with(simulation: Simulation) -> Self {
        let mut sides = Self { simulation };
        for namespace in [TENANT, "shop"] {
            sides.simulation.local().put_namespace(namespace);
        }
        sides
            .simulation
            .cluster(&milan())
            .put_namespace("shop-rome");
        sides.put_map(&json!({"shop": "shop-rome"}), &json!({"shop": "Accepted"}));
        sides
    }

    /// Sets the NamespaceMap: the desired mapping, and the phases that the provider reports.
    pub(super) fn put_map(&mut self, desired: &Value, phases: &Value) {
        let current = phases.as_object().unwrap().iter().map(|(name, phase)| {
            let mapping = json!({"phase": phase, "remoteNamespace": format!("{name}-rome")});
            (name.clone(), mapping)
        });
        let current: serde_json::Map<_, _> = current.collect();
        self.put::<NamespaceMap>(json!({
            "metadata": {"name": "milan", "namespace": TENANT},
            "spec": {"desiredMapping": desired},
            "status": {"currentMapping": current},
        }));
    }

    pub(super) fn put<K: kube::Resource<DynamicType = ()>>(&mut self, object: Value) {
        self.simulation.local().put::<K>(object);
    }

    /// Creates or replaces an object of the namespace `shop`.
    pub(super) fn put_in_shop<K>(&mut self, name: &str, mut object: Value)
    where
        K: kube::Resource<DynamicType = ()>,
    {
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        object["metadata"]["name"] = name.into();
        object["metadata"]["namespace"] = "shop".into();
        self.put::<K>(object);
    }

    /// Creates or replaces an object of the provider in the namespace of `shop`.
    pub(super) fn put_remote<K>(&mut self, name: &str, mut object: Value)
    where
        K: kube::Resource<DynamicType = ()>,
    {
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        object["metadata"]["name"] = name.into();
        object["metadata"]["namespace"] = "shop-rome".into();
        self.simulation.cluster(&milan()).put::<K>(object);
    }

    pub(super) fn remove<K: kube::Resource<DynamicType = ()>>(&mut self, name: &str) {
        self.simulation.local().remove::<K>(&local(name));
    }

    /// Removes a pod whose containers have ended.
    pub(super) fn end_pod(&mut self, name: &str) {
        self.simulation.local().terminate::<Pod>(&local(name));
    }

    /// Returns an object of the provider; `Null` if it does not exist.
    pub(super) fn remote<K: kube::Resource<DynamicType = ()>>(&mut self, name: &str) -> Value {
        let object = self.simulation.cluster(&milan()).get::<K>(&remote(name));
        object.cloned().unwrap_or_default()
    }

    pub(super) fn pass(&mut self) {
        self.simulation.pass(MOMENT);
    }

    /// Returns the Events as `reason kind/name: note`.
    pub(super) fn events(&self) -> Vec<String> {
        let events = self.simulation.events(0).iter();
        let text = |event: &control_runtime::Event| {
            let (kind, name) = (&event.object.resource.kind, &event.object.key.name);
            format!("{} {kind}/{name}: {}", event.reason, event.note)
        };
        events.map(text).collect()
    }

    /// Returns the requests that the provider has carried out.
    pub(super) fn writes(&self) -> Vec<String> {
        let log = self.simulation.log().iter();
        let writes = log.filter(|sent| *sent.request.cluster() == milan());
        let text = |sent: &Sent| {
            let object = sent.request.object().unwrap();
            let kind = match object.resource.kind.as_ref() {
                "" => &object.resource.plural,
                kind => kind,
            };
            format!("{} {kind}/{}", sent.request.verb(), object.key.name)
        };
        writes.map(text).collect()
    }

    /// Asserts that no write was sent twice, and that planning everything again causes no request.
    pub(super) fn assert_settled(&mut self) {
        let redundant: Vec<Sent> = self.simulation.redundant().into_iter().cloned().collect();
        assert!(redundant.is_empty(), "{redundant:?}");
        self.assert_stable();
    }

    /// Asserts that planning everything again causes no request.
    pub(super) fn assert_stable(&mut self) {
        // Refreshes of tokens that are no longer needed end meanwhile.
        let replanned = self.simulation.replan(Duration::from_secs(4000)).unwrap();
        assert!(replanned.is_empty(), "{replanned:?}");
    }
}
