//! Objects that are not reflected.

use super::shop::{addresses, map, service, shop, slice};
use super::side::{Sides, milan, settings};
use crate::reflection::kind::Kind;
use control_api::ShadowEndpointSlice;
use control_api::offloading::policy::Policy;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

#[test]
fn annotations_exclude_objects_and_remove_reflected_ones() {
    let mut sides = shop(1);
    sides.pass();
    let skip = json!({"liqo.io/skip-reflection": "true"});
    let mut skipped = map("blue");
    skipped["metadata"] = json!({"annotations": skip});
    sides.put_in_shop::<ConfigMap>("web", skipped);
    let mut skipped = service();
    skipped["metadata"] = json!({"annotations": skip});
    sides.put_in_shop::<Service>("web", skipped);
    sides.pass();

    assert_eq!(sides.remote::<ConfigMap>("web"), Value::Null);
    assert_eq!(sides.remote::<Service>("web"), Value::Null);
    // The slice has the annotation of its Service.
    assert_eq!(sides.remote::<ShadowEndpointSlice>("web-1"), Value::Null);
    let event = "ReflectionDisabled ConfigMap/web: not reflected to cluster milan: the annotation liqo.io/skip-reflection is set";
    assert!(
        sides.events().contains(&event.to_owned()),
        "{:?}",
        sides.events()
    );

    let mut allowed = slice(&[("10.244.0.5", "rome-1")]);
    allowed["metadata"]["annotations"] = json!({"liqo.io/allow-reflection": "true"});
    sides.put_in_shop::<EndpointSlice>("web-1", allowed);
    sides.pass();
    assert_eq!(addresses(&mut sides), ["10.244.0.5"]);
    sides.assert_settled();
}

#[test]
fn with_an_allow_list_only_annotated_objects_are_reflected() {
    let mut settings = settings();
    settings.policies.insert(Kind::ConfigMap, Policy::AllowList);
    let mut sides = Sides::new(1, settings);
    sides.put_in_shop::<ConfigMap>("web", map("blue"));
    let mut allowed = map("red");
    allowed["metadata"] = json!({"annotations": {"liqo.io/allow-reflection": "true"}});
    sides.put_in_shop::<ConfigMap>("api", allowed);
    sides.pass();

    assert_eq!(sides.writes(), ["create ConfigMap/api"]);
    sides.assert_settled();
}

#[test]
fn the_annotation_of_a_namespace_applies_to_objects_without_one() {
    let mut sides = shop(1);
    sides.pass();
    let namespace =
        |annotations: Value| json!({"metadata": {"name": "shop", "annotations": annotations}});
    let mut own = map("red");
    own["metadata"] = json!({"annotations": {"liqo.io/skip-reflection": "false"}});
    sides.put_in_shop::<ConfigMap>("own", own);
    sides.put::<Namespace>(namespace(json!({"liqo.io/skip-reflection": "true"})));
    sides.pass();

    assert_eq!(sides.remote::<ConfigMap>("web"), Value::Null);
    assert_eq!(sides.remote::<Service>("web"), Value::Null);
    assert_eq!(sides.remote::<ShadowEndpointSlice>("web-1"), Value::Null);
    assert_eq!(sides.remote::<ConfigMap>("own")["data"]["color"], "red");
    let event = "ReflectionDisabled ConfigMap/web: not reflected to cluster milan, by the annotation liqo.io/skip-reflection of \
                 the namespace";
    assert!(
        sides.events().contains(&event.to_owned()),
        "{:?}",
        sides.events()
    );
    sides.assert_stable();

    let mut allowed = service();
    allowed["metadata"] = json!({"annotations": {"liqo.io/allow-reflection": "true"}});
    sides.put_in_shop::<Service>("web", allowed);
    sides.pass();
    // The slice has the annotation of its Service.
    assert!(sides.remote::<Service>("web").is_object());
    assert_eq!(addresses(&mut sides), ["10.244.0.5"]);
    sides.put::<Namespace>(namespace(Value::Null));
    sides.pass();
    assert_eq!(sides.remote::<ConfigMap>("web")["data"]["color"], "blue");
    sides.assert_stable();
}

#[test]
fn with_an_allow_list_a_namespace_allows_its_objects() {
    let mut settings = settings();
    settings.policies.insert(Kind::ConfigMap, Policy::AllowList);
    let mut sides = Sides::new(1, settings);
    let annotations = json!({"liqo.io/allow-reflection": "true"});
    sides.put::<Namespace>(json!({"metadata": {"name": "shop", "annotations": annotations}}));
    sides.put_in_shop::<ConfigMap>("web", map("blue"));
    let mut denied = map("red");
    denied["metadata"] = json!({"annotations": {"liqo.io/allow-reflection": "false"}});
    sides.put_in_shop::<ConfigMap>("api", denied);
    sides.pass();

    assert_eq!(sides.writes(), ["create ConfigMap/web"]);
}

#[test]
fn a_kind_without_workers_is_not_reflected() {
    let mut settings = settings();
    settings.policies.remove(&Kind::Secret);
    let mut sides = Sides::new(1, settings);
    sides.put_in_shop::<Secret>("web", json!({"data": {"key": "AAE="}}));
    sides.put_in_shop::<ConfigMap>("web", map("blue"));
    let stale = json!({"metadata": {"labels": {
        "offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan"}}});
    sides.put_remote::<Secret>("stale", stale);
    sides.pass();

    assert_eq!(sides.writes(), ["create ConfigMap/web"]);
}

#[test]
fn the_service_of_the_api_server_and_reserved_names_are_not_reflected() {
    let mut sides = Sides::new(1, settings());
    sides.simulation.local().put_namespace("default");
    sides
        .simulation
        .cluster(&milan())
        .put_namespace("default-rome");
    sides.put_map(
        &json!({"default": "default-rome", "shop": "shop-rome"}),
        &json!({"default": "Accepted", "shop": "Accepted"}),
    );
    let metadata = json!({"name": "kubernetes", "namespace": "default"});
    let mut object = service();
    object["metadata"] = metadata.clone();
    sides.put::<Service>(object);
    let mut object = slice(&[]);
    object["metadata"] = metadata;
    sides.put::<EndpointSlice>(object);
    sides.put_in_shop::<Secret>("a", json!({"type": "kubernetes.io/service-account-token"}));
    sides.put_in_shop::<ConfigMap>(
        "kube-root-ca.crt.rome",
        json!({"data": {"ca.crt": "forged"}}),
    );
    sides.put_in_shop::<ConfigMap>("kube-root-ca.crt", json!({"data": {"ca.crt": "x"}}));
    sides.pass();

    assert_eq!(sides.writes(), ["create ConfigMap/kube-root-ca.crt.rome"]);
    assert_eq!(
        sides.remote::<ConfigMap>("kube-root-ca.crt.rome")["data"]["ca.crt"],
        "x"
    );
    let is_reserved =
        |it: &String| it.starts_with("FailedReflection ConfigMap/kube-root-ca.crt.rome");
    assert!(
        sides.events().iter().any(is_reserved),
        "{:?}",
        sides.events()
    );
    sides.assert_settled();
}
