//! The cluster `rome`, whose peer is `milan`.

use super::*;
use control_api::{
    Configuration, Connection, ForeignCluster, GatewayClient, GatewayServer, Identity,
    NamespaceMap, PublicKey, Quota, Renew, ResourceSlice, Tenant, VirtualNode,
};
use control_runtime::Key;
use control_runtime::simulation::{Sent, Server, Simulation};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;

/// Time without requests after which nothing is left to do.
const QUIET: Duration = Duration::from_millis(100);

/// The cluster, with two replicas of the manager.
pub(super) struct Rome {
    pub(super) simulation: Simulation,
}

/// Calls a generic function with the type of a kind.
macro_rules! with_type {
    ($kind:expr, $type:ident => $body:expr) => {
        with_type!(@ $kind, $type, $body, Namespace RoleBinding ConfigMap Secret Pod Node Configuration
            Connection GatewayServer GatewayClient PublicKey Tenant Identity ResourceSlice Renew
            NamespaceMap Quota VirtualNode ForeignCluster)
    };
    (@ $kind:expr, $type:ident, $body:expr, $($known:ident)*) => {
        match $kind {
            $(stringify!($known) => {
                type $type = $known;
                $body
            })*
            other => panic!("no type for {other}"),
        }
    };
}

impl Rome {
    /// Creates the cluster, with an empty tenant namespace of the peer and a ready replica of the gateway.
    pub(super) fn new() -> Self {
        Self::with(7, true)
    }

    pub(super) fn with(seed: u64, has_authentication: bool) -> Self {
        let mut rome = Self::empty(seed, has_authentication);
        rome.put(config_map("rome"));
        rome.put(namespace());
        rome.put(role_binding());
        rome.put(gateway_pod("a", true));
        rome
    }

    pub(super) fn empty(seed: u64, has_authentication: bool) -> Self {
        let settings = Settings {
            namespace: "liqo".to_owned(),
            tenant_namespaces: vec!["named".to_owned()],
            has_authentication,
        };
        let make = move || ForeignClusterController::new(settings.clone(), Refusals::default());
        let simulation = Simulation::new(seed).host(make).replicas(2);
        Self { simulation }
    }

    /// Creates or replaces an object, as its user does.
    pub(super) fn put(&mut self, object: Value) {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let server = self.simulation.local();
        with_type!(kind.as_str(), K => server.put::<K>(object));
    }

    /// Deletes an object. Its finalizers delay that.
    pub(super) fn remove(&mut self, object: &Value) {
        let key = key(object);
        let server = self.simulation.local();
        with_type!(object["kind"].as_str().unwrap(), K => server.remove::<K>(&key));
    }

    /// Changes an object by a merge patch.
    pub(super) fn edit(&mut self, object: &Value, patch: Value) {
        let present = self.get(object).unwrap();
        self.put(fake_apiserver::merged(present, patch));
    }

    pub(super) fn get(&mut self, object: &Value) -> Option<Value> {
        fn found<K: kube::Resource<DynamicType = ()>>(server: &Server, key: &Key) -> Option<Value> {
            server.get::<K>(key).cloned()
        }
        let key = key(object);
        let kind = object["kind"].as_str().unwrap().to_owned();
        let server = self.simulation.local();
        with_type!(kind.as_str(), K => found::<K>(server, &key).map(|mut it| {
            it["kind"] = json!(kind);
            it
        }))
    }

    /// Runs for a time.
    pub(super) fn run(&mut self, time: Duration) {
        self.simulation.pass(time);
    }

    /// Runs until nothing is left to do but probes, which must take less than a second.
    pub(super) fn settle(&mut self) {
        self.simulation.pass(SOON - QUIET);
        let before = self.log().len();
        self.simulation.pass(QUIET);
        let late = &self.log()[before..];
        assert!(late.is_empty(), "{late:?}");
    }

    /// Has every object observed again, and returns the requests that this caused.
    pub(super) fn replan(&mut self) -> Vec<Sent> {
        let before = self.log().len();
        self.simulation.replay();
        self.settle();
        self.log()[before..].to_vec()
    }

    /// Returns the ForeignCluster of the peer.
    pub(super) fn summary(&mut self) -> Option<Value> {
        self.get(&json!({"kind": "ForeignCluster", "metadata": {"name": "milan"}}))
    }

    /// Returns role, enabled modules and conditions, one a line.
    pub(super) fn lines(&mut self) -> Vec<String> {
        let Some(summary) = self.summary() else {
            return vec!["none".to_owned()];
        };
        lines_of(&summary["status"])
    }

    /// Returns the requests that were carried out.
    pub(super) fn log(&self) -> &[Sent] {
        self.simulation.log()
    }
}

fn lines_of(status: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("null").to_owned();
    let mut lines = vec![text(&status["role"])];
    for name in ["networking", "authentication", "offloading"] {
        let module = &status["modules"][name];
        let conditions = module["conditions"].as_array().into_iter().flatten();
        let conditions: Vec<_> = conditions
            .map(|it| {
                let [type_, status, reason, message] =
                    ["type", "status", "reason", "message"].map(|field| text(&it[field]));
                format!("{type_} {status} {reason}: {message}")
            })
            .collect();
        assert_eq!(
            module["enabled"] == true,
            !conditions.is_empty(),
            "{module}"
        );
        lines.extend(conditions);
    }
    lines
}

fn key(object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    Key::new(text("namespace"), text("name"))
}
