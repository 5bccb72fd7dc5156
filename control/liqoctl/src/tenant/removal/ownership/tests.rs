use super::*;
use kube::api::GroupVersionKind;
use serde_json::{Value, from_value, json};

/// Objects of a kind: group, kind and the metadata of each.
type OfKind = (&'static str, &'static str, Vec<Value>);

/// Returns the objects of other owners because of which a namespace with these objects is kept.
fn foreign(kinds: Vec<OfKind>) -> Vec<String> {
    let lists = kinds.into_iter().map(|(group, kind, objects)| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let metadata = objects.into_iter().map(from_value::<ObjectMeta>);
        let metadata: Result<Vec<_>, _> = metadata.collect();
        (resource, metadata.expect("metadata"))
    });
    let lists = Vec::from_iter(lists);
    let mut objects = Objects::default();
    for (resource, metadata) in &lists {
        objects.add(resource, metadata, true);
    }
    let mut found = BTreeSet::new();
    for (resource, metadata) in &lists {
        let of_kind = metadata
            .iter()
            .map(|metadata| Object { resource, metadata });
        let origins = of_kind.filter_map(|object| objects.foreign_origin(object));
        found.extend(origins.map(Object::describe));
    }
    Vec::from_iter(found)
}

/// Returns metadata whose UID is the name.
fn named(name: &str, labels: &Value) -> Value {
    json!({"name": name, "uid": name, "labels": labels})
}

fn owned(name: &str, (api_version, kind, owner): (&str, &str, &str)) -> Value {
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": owner, "uid": owner});
    json!({"name": name, "uid": name, "ownerReferences": [owner]})
}

fn peer() -> Value {
    json!({"liqo.io/remote-cluster-id": "milan"})
}

#[test]
fn labels_identify_the_objects_of_liqo() {
    for labels in [
        peer(),
        json!({"liqo.io/managed": "true"}),
        json!({"app.kubernetes.io/managed-by": "liqo"}),
    ] {
        let secret = ("", "Secret", vec![named("liqo-nonce", &labels)]);
        assert!(foreign(vec![secret]).is_empty(), "{labels}");
    }

    for (kind, labels) in [
        ("Pod", json!({})),
        (
            "RoleBinding",
            json!({"liqo.io/remote-cluster-id": "rome", "liqo.io/peering-user-name": "rome"}),
        ),
        (
            "Secret",
            json!({"liqo.io/remote-cluster-id": "milan", "liqo.io/identity-type": "ControlPlane"}),
        ),
    ] {
        let found = foreign(vec![("", kind, vec![named("mine", &labels)])]);
        assert_eq!(found, [format!("{kind} mine")]);
    }
}

#[test]
fn the_objects_of_a_peering_keep_a_namespace_until_they_are_deleted() {
    let tenant = |metadata| foreign(vec![("authentication.liqo.io", "Tenant", vec![metadata])]);
    let mut terminating = named("rome", &peer());
    terminating["deletionTimestamp"] = json!("2026-11-26T12:00:00Z");

    assert_eq!(tenant(named("rome", &peer())), ["Tenant rome"]);
    assert!(tenant(terminating).is_empty());
    let renews = vec![named("controlplane-milan", &peer())];
    assert!(foreign(vec![("authentication.liqo.io", "Renew", renews)]).is_empty());
}

#[test]
fn only_names_of_the_same_kind_are_those_of_kubernetes() {
    let none = json!({});
    let of_kubernetes = vec![
        ("", "ConfigMap", vec![named("kube-root-ca.crt", &none)]),
        ("", "ServiceAccount", vec![named("default", &none)]),
    ];

    assert!(foreign(of_kubernetes).is_empty());
    let deployment = ("apps", "Deployment", vec![named("default", &none)]);
    assert_eq!(foreign(vec![deployment]), ["Deployment default"]);
}

#[test]
fn an_object_is_judged_by_its_owner() {
    let workload = |labels: &Value| {
        vec![
            (
                "",
                "Pod",
                vec![owned("pod", ("apps/v1", "ReplicaSet", "set"))],
            ),
            ("apps", "Deployment", vec![named("deployment", labels)]),
            (
                "apps",
                "ReplicaSet",
                vec![owned("set", ("apps/v1", "Deployment", "deployment"))],
            ),
        ]
    };

    assert!(foreign(workload(&peer())).is_empty());
    assert_eq!(foreign(workload(&json!({}))), ["Deployment deployment"]);
}

#[test]
fn an_owner_elsewhere_does_not_make_an_object_one_of_liqo() {
    let node = ("v1", "Node", "milan");

    let found = foreign(vec![("", "Pod", vec![owned("mine", node)])]);

    assert_eq!(found, ["Pod mine"]);
}

#[test]
fn an_object_whose_owner_was_deleted_awaits_garbage_collection() {
    let mut secret = owned(
        "kubeconfig-controlplane-milan",
        ("authentication.liqo.io/v1beta1", "Identity", "gone"),
    );
    secret["labels"] = json!({"liqo.io/identity-type": "ControlPlane"});
    let identities = || ("authentication.liqo.io", "Identity", vec![]);

    assert!(foreign(vec![("", "Secret", vec![secret.clone()]), identities()]).is_empty());
    // An owner of a kind that is not known may exist.
    assert_eq!(foreign(vec![("", "Secret", vec![secret])]).len(), 1);
}

#[test]
fn objects_that_own_each_other_are_judged_themselves() {
    let one = owned("one", ("v1", "ConfigMap", "two"));
    let two = owned("two", ("v1", "ConfigMap", "one"));

    let found = foreign(vec![("", "ConfigMap", vec![one, two])]);

    assert_eq!(found, ["ConfigMap one", "ConfigMap two"]);
}

#[test]
fn endpoints_are_judged_by_their_service() {
    let derived = |service: &Value| {
        let name = json!({"kubernetes.io/service-name": "web"});
        vec![
            ("", "Endpoints", vec![named("web", &json!({}))]),
            ("", "Service", vec![named("web", service)]),
            (
                "discovery.k8s.io",
                "EndpointSlice",
                vec![named("web-x", &name)],
            ),
        ]
    };
    assert!(foreign(derived(&peer())).is_empty());
    assert_eq!(foreign(derived(&json!({}))), ["Service web"]);

    let of_controller =
        json!({"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"});
    let slice = |labels| {
        let slices = vec![named("web-x", labels)];
        foreign(vec![("discovery.k8s.io", "EndpointSlice", slices)])
    };
    assert!(slice(&of_controller).is_empty());
    assert_eq!(slice(&json!({})), ["EndpointSlice web-x"]);
}

#[test]
fn a_token_is_judged_by_its_service_account() {
    let mut token = named("token", &json!({}));
    token["annotations"] = json!({"kubernetes.io/service-account.name": "default"});
    let accounts = vec![named("default", &json!({}))];

    let found = foreign(vec![
        ("", "Secret", vec![token]),
        ("", "ServiceAccount", accounts),
    ]);

    assert!(found.is_empty());
}
