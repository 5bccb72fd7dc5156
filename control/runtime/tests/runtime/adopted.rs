//! Fields of an earlier release's field manager.

use crate::process::{Process, wait_for};
use control_runtime::{
    Cache, Change, Cluster, Controller, Env, Key, Plan, Ref, Registration, Scope,
};
use fake_apiserver::{ApiServer, Front, Head, Reply};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

/// Applies a label to each ConfigMap without it.
struct Labels;

impl Controller for Labels {
    type Item = Key;
    const NAME: &'static str = "labels";
    const FIELD_MANAGER: &'static str = "labels";

    fn resources(&self) -> Vec<Registration> {
        let maps = Registration::whole::<ConfigMap>(Scope::Namespace("a".into()));
        vec![maps.adopt("labels-0.1").verbs(&["patch"])]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<Key> {
        vec![change.object.key.clone()]
    }

    fn plan(&mut self, key: &Key, cache: &Cache, _: &mut Env<'_>) -> Plan<Key> {
        let mut plan = Plan::default();
        let map = cache.local::<ConfigMap>(key);
        if map.is_some_and(|map| map.metadata.labels.is_none()) {
            let fields = json!({"metadata": {"labels": {"a": "b"}}});
            plan.apply(Ref::of::<ConfigMap>(&Cluster::Local, key), fields);
        }
        plan
    }
}

fn put(server: &ApiServer, name: &str, manager: &str, operation: &str) {
    server.put(
        &format!("/api/v1/namespaces/a/configmaps/{name}"),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a",
            "managedFields": [{"manager": manager, "operation": operation, "apiVersion": "v1",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}]}}),
    );
}

#[tokio::test]
async fn the_fields_of_an_adopted_manager_are_assigned_before_the_first_apply() {
    let server = ApiServer::start();
    put(&server, "old", "labels-0.1", "Update");
    put(&server, "foreign", "kubectl", "Update");
    put(&server, "new", "labels", "Apply");
    // Only an Apply names its field manager; the other patch is that of the managed fields.
    let is_adoption = |head: &Head| head.method == "PATCH" && !head.target.contains("fieldManager");
    let front = Front::start(&server, move |head| match is_adoption(head) {
        true => Reply::response("200 OK", "", "{\"metadata\": {}}"),
        false => Reply::Forward,
    });
    let process = Process::host(&front.url(), "a", None, Labels);
    let has_label = |name: &str| {
        let map = server.get(&format!("/api/v1/namespaces/a/configmaps/{name}"));
        map.is_some_and(|map| map["metadata"]["labels"]["a"] == "b")
    };
    for name in ["old", "foreign", "new"] {
        wait_for("the label", || has_label(name)).await;
    }

    let requests = front.requests();
    let of_old = requests.iter().filter(|it| it.target.contains("/old"));
    let order: Vec<_> = of_old
        .map(|head| (head.method.as_str(), is_adoption(head)))
        .collect();
    assert_eq!(order, [("GET", false), ("PATCH", true), ("PATCH", false)]);
    assert_eq!(front.count(is_adoption), 1);
    process.stop().await;
}
