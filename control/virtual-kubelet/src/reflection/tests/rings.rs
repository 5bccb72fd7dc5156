//! Objects that are reflected from another cluster are not reflected on.

use super::others::{budget, put_budget};
use super::shop::shop;
use super::side::{Sides, budgets, settings};
use crate::reflection::kind::Kind;
use control_api::{ShadowEndpointSlice, labels};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns `rome` with an object of each kind.
fn with_ingress(seed: u64) -> Sides {
    let mut sides = shop(seed);
    let rules = json!([{"host": "shop.example"}]);
    sides.put_in_shop::<Ingress>("web", json!({"spec": {"rules": rules}}));
    sides
}

/// Returns the reflected objects of the provider, as that cluster has them.
fn reflected(sides: &mut Sides) -> Vec<(Kind, Value)> {
    let mut slice = sides.remote::<ShadowEndpointSlice>("web-1");
    // The provider's manager creates an EndpointSlice with these labels.
    let template = slice["spec"]["template"].take();
    slice["addressType"] = template["addressType"].clone();
    slice["endpoints"] = template["endpoints"].clone();
    vec![
        (Kind::Service, sides.remote::<Service>("web")),
        (Kind::EndpointSlice, slice),
        (Kind::Ingress, sides.remote::<Ingress>("web")),
        (Kind::ConfigMap, sides.remote::<ConfigMap>("web")),
        (Kind::Secret, sides.remote::<Secret>("web")),
        (budgets(), sides.remote::<PodDisruptionBudget>("web")),
    ]
}

fn put(sides: &mut Sides, (kind, mut object): (Kind, Value)) {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|field, _| field == "labels" || field == "annotations");
    match kind {
        Kind::Service => sides.put_in_shop::<Service>("replica", object),
        Kind::EndpointSlice => sides.put_in_shop::<EndpointSlice>("replica", object),
        Kind::Ingress => sides.put_in_shop::<Ingress>("replica", object),
        Kind::ConfigMap => sides.put_in_shop::<ConfigMap>("replica", object),
        Kind::Secret => sides.put_in_shop::<Secret>("replica", object),
        Kind::Other(_) => put_budget(sides, "replica", object),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// In a ring of three clusters, each is a provider of the one before it.
    #[test]
    fn no_kind_is_reflected_from_one_cluster_to_a_third_one(seed: u64, next in "[a-z]{1,12}") {
        prop_assume!(next != "rome");
        let mut settings = settings();
        let mut first = with_ingress(seed);
        put_budget(&mut first, "web", budget(1));
        first.pass();
        let objects = reflected(&mut first);
        let kinds: Vec<_> = objects.iter().map(|(kind, _)| kind).collect();
        prop_assert_eq!(kinds, Vec::from_iter(settings.policies.keys()));

        settings.peering.origin = next;
        let mut second = Sides::new(seed, settings);
        for (kind, object) in objects {
            prop_assert_eq!(&object["metadata"]["labels"][labels::ORIGIN], "rome", "{}", kind);
            put(&mut second, (kind, object));
        }
        second.pass();

        prop_assert_eq!(second.writes(), Vec::<String>::new());
        let events = second.events();
        let disabled = events.iter().filter(|it| it.starts_with("ReflectionDisabled "));
        prop_assert_eq!(disabled.count(), 5, "{:?}", events);
        second.assert_stable();
    }
}

/// A manifest that was copied from the provider has the markers of this cluster itself.
#[test]
fn an_object_with_the_markers_of_this_cluster_is_reflected() {
    let mut first = with_ingress(1);
    put_budget(&mut first, "web", budget(1));
    first.pass();
    let objects = reflected(&mut first);
    let mut again = Sides::new(1, settings());
    for (kind, object) in objects {
        if kind != Kind::EndpointSlice {
            put(&mut again, (kind, object));
        }
    }
    again.pass();

    assert_eq!(again.writes().len(), 5, "{:?}", again.writes());
}
