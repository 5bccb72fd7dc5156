use super::*;
use crate::metric_agent::registrations;
use control_runtime::{Registration, Resource};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use serde_json::{Value, json};

fn put<K: kube::Resource<DynamicType = ()>>(cache: &mut Cache, mut object: Value) {
    let resource = Resource::of::<K>();
    object["metadata"]["uid"] = "1".into();
    object["metadata"]["resourceVersion"] = "1".into();
    let registrations = registrations();
    let of = |it: &&Registration| it.resource == resource;
    let registration = registrations.iter().find(of).unwrap();
    let entry = registration.decode(&object.to_string()).unwrap();
    cache.fixture_put(registration, entry);
}

fn namespace(cache: &mut Cache, name: &str, peer: &str, original: Option<&str>) {
    let mut metadata = json!({"name": name, "labels": {"liqo.io/remote-cluster-id": peer}});
    if let Some(original) = original {
        metadata["annotations"] = json!({"liqo.io/original-name": original});
    }
    put::<Namespace>(cache, json!({"metadata": metadata}));
}

fn pod(cache: &mut Cache, namespace: &str, name: &str, origin: &str, node: Option<&str>) {
    let metadata = json!({"namespace": namespace, "name": name,
        "labels": {"offloading.liqo.io/origin": origin}});
    let spec = json!({"nodeName": node, "containers": []});
    put::<Pod>(cache, json!({"metadata": metadata, "spec": spec}));
}

fn node(cache: &mut Cache, name: &str) {
    let status = json!({
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [
            {"type": "Hostname", "address": name},
            {"type": "InternalIP", "address": "fd00::7"},
            {"type": "InternalIP", "address": "10.0.0.7"},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    });
    put::<Node>(cache, json!({"metadata": {"name": name}, "status": status}));
}

#[test]
fn a_pod_is_visible_in_a_namespace_of_its_consumer_with_an_original_name_only() {
    let mut cache = Cache::fixture(&registrations()).unwrap();
    namespace(&mut cache, "shop-rome", "rome", Some("shop"));
    namespace(&mut cache, "liqo-tenant-rome", "rome", None);
    namespace(&mut cache, "evil-rome", "rome", Some("a\",pod=\"b"));
    namespace(&mut cache, "shop-milan", "milan", Some("shop"));
    node(&mut cache, "n1");
    for (namespace, origin) in [
        ("shop-rome", "rome"),
        ("liqo-tenant-rome", "rome"),
        ("evil-rome", "rome"),
        ("shop-milan", "rome"),
        ("default", "rome"),
    ] {
        pod(&mut cache, namespace, "web", origin, Some("n1"));
    }
    pod(&mut cache, "shop-rome", "pending", "rome", None);
    pod(&mut cache, "shop-rome", "of-milan", "milan", Some("n1"));

    let selection = Selection::of(&cache, "rome", Endpoint::Cadvisor);

    let kubelet = &selection.kubelets["n1"];
    assert_eq!(kubelet.address, "[fd00::7]:10250".parse().unwrap());
    let visible = Visible {
        original: "shop".to_owned(),
        pods: ["web".to_owned()].into(),
    };
    assert_eq!(kubelet.pods, [("shop-rome".to_owned(), visible)].into());
    assert_eq!(selection.skipped.len(), 0);
    assert_eq!(peers(&cache), BTreeSet::from(["milan", "rome"]));
}

#[test]
fn nodes_without_pods_of_the_consumer_have_totals_only() {
    let mut cache = Cache::fixture(&registrations()).unwrap();
    namespace(&mut cache, "shop-rome", "rome", Some("shop"));
    for name in ["n1", "n2"] {
        node(&mut cache, name);
    }
    pod(&mut cache, "shop-rome", "web", "rome", Some("n2"));

    for endpoint in Endpoint::ALL {
        let selection = Selection::of(&cache, "rome", endpoint);
        let asked: Vec<_> = selection.kubelets.keys().collect();
        let expected: &[&str] = match endpoint {
            Endpoint::Resource => &["n1", "n2"],
            Endpoint::Kubelet | Endpoint::Cadvisor | Endpoint::Probes => &["n2"],
        };
        assert_eq!(asked, expected, "{endpoint:?}");
    }
    assert_eq!(
        Selection::of(&cache, "turin", Endpoint::Cadvisor),
        Selection::default()
    );
}
