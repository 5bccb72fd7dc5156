use super::peering;
use super::side::{Sides, settings};
use crate::reflection::ingress::remote;
use k8s_openapi::api::networking::v1::Ingress;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

fn backend(service: &str) -> Value {
    json!({"service": {"name": service, "port": {"name": "http"}}})
}

/// Returns an Ingress of this cluster with the class `local`, by the annotation and by the field.
fn ingress(spec: &Value) -> Value {
    let mut object = json!({
        "metadata": {
            "name": "web",
            "annotations": {"kubernetes.io/ingress.class": "local", "nginx.ingress.kubernetes.io/use-regex": "true"},
        },
        "spec": spec,
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    });
    object["spec"]["ingressClassName"] = "local".into();
    object
}

fn reflected(object: &Value, class: Option<&str>) -> Value {
    let local: Ingress = serde_json::from_value(object.clone()).unwrap();
    json!(remote(&local, &peering(), class))
}

fn spec() -> impl Strategy<Value = Value> {
    let path = ("/[a-z]{0,3}", "[a-z]{1,3}");
    let rule = ("[a-z]{1,3}", prop::collection::vec(path, 0..3)).prop_map(|(host, paths)| {
        let paths = paths.iter().map(|(path, service)| {
            json!({"path": path, "pathType": "Prefix", "backend": backend(service)})
        });
        json!({"host": host, "http": {"paths": Vec::from_iter(paths)}})
    });
    let tls = ("[a-z]{1,3}", "[a-z]{1,3}")
        .prop_map(|(host, secret)| json!({"hosts": [host], "secretName": secret}));
    let default = prop::option::of("[a-z]{1,3}");
    let (rules, tls) = (
        prop::collection::vec(rule, 1..4),
        prop::collection::vec(tls, 1..3),
    );

    (rules, tls, default).prop_map(|(rules, tls, default)| {
        let mut spec = json!({"rules": rules, "tls": tls});
        if let Some(service) = default {
            spec["defaultBackend"] = backend(&service);
        }
        spec
    })
}

proptest! {
    #[test]
    fn backends_rules_and_tls_are_reflected_and_the_class_is_that_of_the_provider(
        spec in spec(),
        class in prop::option::of("[a-z]{1,3}"),
    ) {
        let object = reflected(&ingress(&spec), class.as_deref());

        let mut expected = spec;
        if let Some(class) = class {
            expected["ingressClassName"] = class.into();
        }
        prop_assert_eq!(&object["spec"], &expected);
        prop_assert_eq!(&object["status"], &Value::Null);
        let annotations = json!({"nginx.ingress.kubernetes.io/use-regex": "true"});
        prop_assert_eq!(&object["metadata"]["annotations"], &annotations);
    }
}

#[test]
fn an_ingress_whose_only_annotation_is_its_class_has_none() {
    let mut object = ingress(&json!({}));
    object["metadata"]["annotations"] = json!({"kubernetes.io/ingress.class": "local"});

    let metadata = &reflected(&object, None)["metadata"];

    assert_eq!(metadata["annotations"], Value::Null);
}

#[test]
fn an_ingress_is_written_once_per_change_with_the_class_of_the_provider() {
    let mut settings = settings();
    settings.ingress_class = Some("nginx".to_owned());
    let mut sides = Sides::new(1, settings);
    let rule = |host: &str| ingress(&json!({"rules": [{"host": host}]}));
    sides.put_in_shop::<Ingress>("web", rule("a.example"));
    sides.pass();
    assert_eq!(sides.writes(), ["create Ingress/web"]);
    let expected = json!({"ingressClassName": "nginx", "rules": [{"host": "a.example"}]});
    assert_eq!(sides.remote::<Ingress>("web")["spec"], expected);

    // The class of this cluster is no difference.
    let mut other = rule("a.example");
    other["spec"]["ingressClassName"] = "other".into();
    other["metadata"]["annotations"]["kubernetes.io/ingress.class"] = "other".into();
    sides.put_in_shop::<Ingress>("web", other);
    sides.pass();
    assert_eq!(sides.writes().len(), 1);

    sides.put_in_shop::<Ingress>("web", rule("b.example"));
    sides.pass();
    let spec = &sides.remote::<Ingress>("web")["spec"];
    assert_eq!(spec["rules"][0]["host"], "b.example");
    sides.assert_settled();
    sides.remove::<Ingress>("web");
    sides.pass();
    let expected = ["create", "apply", "delete"].map(|it| format!("{it} Ingress/web"));
    assert_eq!(sides.writes(), expected);
}

/// As the admission plugin DefaultIngressClass of Kubernetes.
#[test]
fn the_default_class_of_the_provider_causes_no_further_write() {
    let mut sides = Sides::new(1, settings());
    let default = |object: &mut Value| object["spec"]["ingressClassName"] = "default".into();
    sides
        .simulation
        .cluster(&super::side::milan())
        .set_defaults::<Ingress>(default);
    sides.put_in_shop::<Ingress>("web", ingress(&json!({"rules": [{"host": "a.example"}]})));
    sides.simulation.pass(Duration::from_secs(600));

    assert_eq!(sides.writes(), ["create Ingress/web"]);
}
