use super::*;
use fake_apiserver::{ApiServer, Front, Reply};
use serde_json::{Value, from_value, json};

fn foreign(role: &str, modules: [bool; 2]) -> DynamicObject {
    let [authentication, offloading] = modules.map(|enabled| json!({"enabled": enabled}));
    from_value(json!({
        "apiVersion": "core.liqo.io/v1beta1", "kind": "ForeignCluster", "metadata": {"name": "milan"},
        "status": {"role": role, "modules": {
            "networking": {"enabled": true}, "authentication": authentication, "offloading": offloading,
        }},
    }))
    .unwrap()
}

fn of_modules(role: &str, modules: [bool; 2]) -> String {
    let mut found = Leftovers::default();
    found.add_modules(&foreign(role, modules));
    found.to_string()
}

/// Returns the leftovers of a cluster with these objects.
async fn found(objects: &[(&str, Value)]) -> String {
    let server = ApiServer::start();
    for (path, object) in objects {
        server.put(path, object.clone());
    }
    let front = Front::start(&server, |_| Reply::Forward);
    let cluster = Cluster::behind(&front, "local");
    find(&cluster, "liqo").await.unwrap().to_string()
}

#[test]
fn the_list_is_upstreams_with_the_commands() {
    let text = of_modules("Provider", [true, false]);

    let expected = "\n\ndisable authentication for clusters:\n- milan\nby: liqoctl unpeer";
    assert!(text.starts_with(expected), "{text}");
    assert!(!text.contains("offloading") && !text.contains("networking"));
}

#[test]
fn the_peering_of_a_consumer_is_ended_in_its_cluster() {
    let text = of_modules("Consumer", [true, false]);
    let expected = "\n\nend the peerings of consumers, which are clusters:\n- milan\nby: liqoctl unpeer --kubeconfig CONSUMER";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("liqoctl force unpeer NAME"), "{text}");
    assert!(!text.contains("disable authentication"), "{text}");

    let text = of_modules("ConsumerAndProvider", [true, true]);
    for part in [
        "end the peerings of consumers",
        "disable authentication",
        "disable offloading",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[tokio::test]
async fn a_replica_of_a_consumer_is_not_to_be_deleted_but_its_peering_is_to_be_ended() {
    let folder = "/apis/authentication.liqo.io/v1beta1/namespaces";
    let slice = |namespace: &str, labels: Value| {
        json!({"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice",
            "metadata": {"name": "slice", "namespace": namespace, "labels": labels}})
    };
    let replica = json!({"liqo.io/replicated": "true", "liqo.io/originID": "rome"});
    let requested = json!({"liqo.io/replication": "true", "liqo.io/remoteID": "turin"});
    let text = found(&[
        (
            &format!("{folder}/liqo-tenant-rome/resourceslices/slice"),
            slice("liqo-tenant-rome", replica),
        ),
        (
            &format!("{folder}/liqo-tenant-turin/resourceslices/slice"),
            slice("liqo-tenant-turin", requested),
        ),
    ])
    .await;

    assert!(
        text.contains("which are clusters:\n- rome\nby: liqoctl unpeer"),
        "{text}"
    );
    assert!(
        text.contains("delete resourceslices:\n- liqo-tenant-turin/slice\nby"),
        "{text}"
    );
    assert!(!text.contains("liqo-tenant-rome/slice"), "{text}");
}

#[tokio::test]
async fn a_configuration_outside_of_the_tenant_namespace_is_named_with_its_namespace() {
    let configuration = |namespace: &str| {
        let labels = json!({"liqo.io/remote-cluster-id": "milan"});
        let path =
            format!("/apis/networking.liqo.io/v1beta1/namespaces/{namespace}/configurations/cidrs");
        let object = json!({"apiVersion": "networking.liqo.io/v1beta1", "kind": "Configuration",
            "metadata": {"name": "cidrs", "namespace": namespace, "labels": labels}, "spec": {}});
        (path, object)
    };
    let labels = json!({"liqo.io/remote-cluster-id": "milan", "liqo.io/tenant-namespace": "true"});
    let namespace = json!({"metadata": {"name": "liqo-tenant-milan", "labels": labels}});
    let of_peer = ("/api/v1/namespaces/liqo-tenant-milan", namespace);
    let (stray, of_tenant) = (configuration("default"), configuration("liqo-tenant-milan"));

    let text = found(&[of_peer.clone(), (&stray.0, stray.1)]).await;
    let expected = "of their peer:\n- default/cidrs\nby: kubectl delete configurations.networking.liqo.io -n NAMESPACE NAME";
    assert!(text.ends_with(expected), "{text}");
    assert!(!text.contains("network reset"), "{text}");

    let text = found(&[of_peer, (&of_tenant.0, of_tenant.1)]).await;
    assert!(
        text.contains("disable networking for clusters:\n- milan\nby: liqoctl network reset"),
        "{text}"
    );
}

#[tokio::test]
async fn finalizers_without_controller_are_named_with_the_setting_that_starts_it() {
    let manager = |args: &[&str]| {
        let labels = json!({"app.kubernetes.io/name": "controller-manager", "app.kubernetes.io/component": "controller-manager"});
        let containers = json!([{"name": "controller-manager", "args": args}]);
        json!({"metadata": {"name": "liqo-controller-manager", "namespace": "liqo", "labels": labels},
            "spec": {"selector": {}, "template": {"spec": {"containers": containers}}}})
    };
    let tenant = json!({"apiVersion": "authentication.liqo.io/v1beta1", "kind": "Tenant",
        "metadata": {"name": "rome", "namespace": "liqo-tenant-rome", "finalizers": ["tenant.liqo.io/finalizer"]},
        "spec": {"clusterID": "rome"}});
    let with = async |manager: Value| {
        found(&[
            (
                "/apis/apps/v1/namespaces/liqo/deployments/liqo-controller-manager",
                manager,
            ),
            (
                "/apis/authentication.liqo.io/v1beta1/namespaces/liqo-tenant-rome/tenants/rome",
                tenant.clone(),
            ),
        ])
        .await
    };

    let text = with(manager(&["--cluster-id=rome"])).await;
    let expected = ":\n- Tenant liqo-tenant-rome/rome (tenant.liqo.io/finalizer)\nby: liqoctl install --set authentication.enabled=true";
    assert!(text.contains(expected), "{text}");
    let text = with(manager(&["--authentication-enabled=true"])).await;
    assert_eq!(text, "");
}

#[test]
fn only_finalizers_of_other_objects_are_reported() {
    let network = |metadata| -> Network {
        from_value(json!({
            "apiVersion": "ipam.liqo.io/v1alpha1", "kind": "Network",
            "metadata": metadata, "spec": {"cidr": "10.0.0.0/16"},
        }))
        .unwrap()
    };
    let finalizers = json!({"name": "a", "finalizers": ["network.ipam.liqo.io/finalizer"]});
    let preinstalled = json!({
        "name": "a", "finalizers": ["x/y"], "annotations": {"liqo.io/preinstalled": "true"},
    });

    assert!(is_stuck(&network(finalizers)));
    assert!(!is_stuck(&network(preinstalled)));
    assert!(!is_stuck(&network(json!({"name": "a"}))));
}
