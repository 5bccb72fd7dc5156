//! A cluster that a plan adds.

use crate::process::wait_for;
use control_runtime::{
    Cache, Change, Cluster, ClusterChange, Controller, Destinations, Env, Key, Metrics, Plan, Ref,
    Registration, RemoteConfig, Replicas, Resource, Runtime, Scope, Selector, Settings,
    WatchChange, WatchId, transport,
};
use fake_apiserver::ApiServer;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

/// Copies the remote ConfigMaps. The watch is planned for the object `watch`, and the cluster is set for
/// the object `connect`.
struct Importer {
    config: RemoteConfig,
}

fn remote() -> Cluster {
    Cluster::remote("milan")
}

impl Controller for Importer {
    type Item = Ref;
    const NAME: &'static str = "importer";
    const FIELD_MANAGER: &'static str = "importer";

    fn resources(&self) -> Vec<Registration> {
        vec![
            Registration::whole::<ConfigMap>(Scope::Namespace("here".into())),
            Registration::whole::<ConfigMap>(Scope::Planned),
        ]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<Ref> {
        vec![change.object.clone()]
    }

    fn plan(&mut self, object: &Ref, cache: &Cache, _: &mut Env<'_>) -> Plan<Ref> {
        let mut plan = Plan::default();
        let key = &object.key;
        let copy = Ref::of::<ConfigMap>(&Cluster::Local, &Key::new("here", &key.name));
        let watch = WatchId {
            cluster: remote(),
            resource: Resource::of::<ConfigMap>(),
            namespace: Some("there".into()),
            selector: Selector::default(),
        };
        match (&object.cluster, key.name.as_str()) {
            (Cluster::Local, "watch") => {
                plan.watches.push(WatchChange::Add(watch));
                let planned = Key::new("here", "planned");
                plan.apply(Ref::of::<ConfigMap>(&Cluster::Local, &planned), json!({}));
            }
            (Cluster::Local, "connect") => {
                let config = Box::new(self.config.clone());
                plan.clusters.push(ClusterChange::Set(remote(), config));
            }
            (Cluster::Remote(_), _) if cache.contains(object) && !cache.contains(&copy) => {
                plan.apply(copy, json!({"data": {}}));
            }
            _ => {}
        }
        plan
    }
}

fn put(server: &ApiServer, namespace: &str, name: &str) {
    server.put(
        &format!("/api/v1/namespaces/{namespace}/configmaps/{name}"),
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace}}),
    );
}

#[tokio::test]
async fn a_watch_of_a_cluster_that_is_not_connected_starts_when_it_is() {
    let (server, peer) = (ApiServer::start(), ApiServer::start());
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": peer.url()}}],
        "users": [{"name": "u", "user": {}}]});
    let config = RemoteConfig::parse(&kubeconfig.to_string(), Destinations::Any).unwrap();
    let local = kube::Config::new(server.url().parse().unwrap());
    let settings = Settings {
        name: "test",
        identity: "a".into(),
        random: || [0; 32],
    };
    let client = transport::client(&local).unwrap();
    let mut runtime = Runtime::new(client, settings, Metrics::default());
    runtime.add(Importer { config }, &Replicas::Active).unwrap();
    let task = tokio::spawn(runtime.run(std::future::pending()));
    let is = |name: &str| {
        let path = format!("/api/v1/namespaces/here/configmaps/{name}");
        server.get(&path).is_some()
    };

    put(&peer, "there", "first");
    put(&server, "here", "watch");
    wait_for("the plan of the watch", || is("planned")).await;
    put(&server, "here", "connect");
    wait_for("the copy of a remote object", || is("first")).await;
    put(&peer, "there", "second");
    wait_for("the copy of another one", || is("second")).await;
    task.abort();
}
