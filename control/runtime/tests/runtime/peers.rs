//! A controller that follows clusters of peers, which it adds by kubeconfigs in Secrets.

use control_runtime::{
    Cache, Change, Cluster, ClusterChange, Controller, Destinations, Env, Event, Key, Plan, Ref,
    Registration, RemoteConfig, Scope, Selector, WatchChange, WatchId,
};
use fake_apiserver::ApiServer;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Namespace of the Secrets.
const PEERS: &str = "peers";

/// Namespace of a peer that is watched.
pub(crate) const SHARED: &str = "shared";

/// Values of the ConfigMap `counter` of a peer, in the order in which they were observed.
pub(crate) type Observed = Arc<Mutex<Vec<u64>>>;

/// Copies the ConfigMap `counter` of each peer to `copy`.
#[derive(Default)]
pub(crate) struct Peers {
    pub(crate) observed: Observed,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    /// Connection to a peer.
    Peer(String),
    /// The copy in a peer.
    Copy(Cluster),
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(peer) => write!(f, "connection to {peer}"),
            Self::Copy(cluster) => write!(f, "copy in {cluster}"),
        }
    }
}

fn counter(map: &ConfigMap) -> Option<u64> {
    map.data.as_ref()?.get("value")?.parse().ok()
}

fn map(cluster: &Cluster, name: &str) -> Ref {
    Ref::of::<ConfigMap>(cluster, &Key::new(SHARED, name))
}

impl Controller for Peers {
    type Item = Item;
    const NAME: &'static str = "peers";
    const FIELD_MANAGER: &'static str = "peers";

    fn resources(&self) -> Vec<Registration> {
        vec![
            Registration::whole::<Secret>(Scope::Namespace(PEERS.into())),
            Registration::whole::<ConfigMap>(Scope::Planned)
                .verbs(&["create", "patch"])
                .index("value", |map: &ConfigMap| {
                    counter(map).map(|it| it.to_string()).into_iter().collect()
                }),
        ]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<Item> {
        if change.is::<Secret>() {
            return vec![Item::Peer(change.object.key.name.clone())];
        }
        let value = change.after().and_then(counter);
        if change.object.key.name != "counter" {
            return Vec::new();
        }
        self.observed.lock().expect("no panic").extend(value);
        vec![Item::Copy(change.object.cluster.clone())]
    }

    fn plan(&mut self, item: &Item, cache: &Cache, _: &mut Env<'_>) -> Plan<Item> {
        match item {
            Item::Peer(peer) => connect(peer, cache),
            Item::Copy(cluster) => copy(cluster, cache),
        }
    }
}

fn connect(peer: &str, cache: &Cache) -> Plan<Item> {
    let mut plan = Plan::default();
    let (cluster, key) = (Cluster::remote(peer), Key::new(PEERS, peer));
    let Some(secret) = cache.local::<Secret>(&key) else {
        plan.clusters.push(ClusterChange::Remove(cluster));
        return plan;
    };
    let kubeconfig = secret.data.as_ref().and_then(|data| data.get("kubeconfig"));
    let kubeconfig = kubeconfig.map(|bytes| String::from_utf8_lossy(&bytes.0));
    match RemoteConfig::parse(&kubeconfig.unwrap_or_default(), Destinations::Any) {
        Ok(config) => {
            let set = ClusterChange::Set(cluster.clone(), Box::new(config));
            plan.clusters.push(set);
            plan.watches.push(WatchChange::Add(watch(&cluster)));
        }
        Err(error) => plan.events.push(Event {
            object: Ref::of::<Secret>(&Cluster::Local, &key),
            is_warning: true,
            reason: "InvalidKubeconfig",
            note: error.to_string(),
            is_repeated: false,
        }),
    }
    plan
}

/// Returns the watch of a peer.
pub(crate) fn watch(cluster: &Cluster) -> WatchId {
    WatchId {
        cluster: cluster.clone(),
        resource: control_runtime::Resource::of::<ConfigMap>(),
        namespace: Some(SHARED.into()),
        selector: Selector::default(),
    }
}

fn copy(cluster: &Cluster, cache: &Cache) -> Plan<Item> {
    let mut plan = Plan::default();
    let objects = cache.objects::<ConfigMap>(cluster);
    let Some(wanted) = objects.get(&Key::new(SHARED, "counter")).and_then(counter) else {
        return plan;
    };
    let wanted = wanted.to_string();
    let is_copied = |(key, _): (&Key, _)| key.name == "copy";
    if !objects.indexed("value", &wanted).any(is_copied) {
        plan.apply(map(cluster, "copy"), json!({"data": {"value": wanted}}));
    }
    plan
}

/// Stores the kubeconfig of a peer.
pub(crate) fn put_peer(local: &ApiServer, peer: &str, kubeconfig: &str) {
    let data = [(
        "kubeconfig".to_owned(),
        ByteString(kubeconfig.as_bytes().to_vec()),
    )];
    let mut secret = Secret {
        data: Some(data.into()),
        ..Secret::default()
    };
    secret.metadata.name = Some(peer.to_owned());
    secret.metadata.namespace = Some(PEERS.to_owned());
    let path = format!("/api/v1/namespaces/{PEERS}/secrets/{peer}");
    local.put(&path, serde_json::to_value(secret).expect("an object"));
}

/// Returns a kubeconfig with a bearer token.
pub(crate) fn kubeconfig(url: &str, token: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Config", "current-context": "peer",
        "contexts": [{"name": "peer", "context": {"cluster": "peer", "user": "peer"}}],
        "clusters": [{"name": "peer", "cluster": {"server": url}}],
        "users": [{"name": "peer", "user": {"token": token}}]})
    .to_string()
}

/// Writes the ConfigMap `counter`.
pub(crate) fn put_counter(server: &ApiServer, value: u64) {
    server.put(
        &format!("/api/v1/namespaces/{SHARED}/configmaps/counter"),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": value.to_string()},
            "metadata": {"name": "counter", "namespace": SHARED}}),
    );
}

/// Returns the value of the ConfigMap `copy`.
pub(crate) fn copied(server: &ApiServer) -> Option<u64> {
    let map = server.get(&format!("/api/v1/namespaces/{SHARED}/configmaps/copy"))?;
    map["data"]["value"].as_str()?.parse().ok()
}
