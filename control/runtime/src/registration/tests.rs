use super::*;
use crate::cache::{Cache, CacheLimits};
use crate::digest::Digested;
use control_client::object::Cluster;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use std::collections::BTreeMap;

fn without_data(mut map: ConfigMap) -> ConfigMap {
    map.data = None;
    map
}

fn keys(map: &ConfigMap) -> Vec<String> {
    let data = map.data.iter().flatten();
    data.map(|(key, _)| key.clone()).collect()
}

fn name(map: &ConfigMap) -> Vec<String> {
    map.metadata.name.iter().cloned().collect()
}

/// Returns a cache with these registrations and one object.
fn cache(registrations: &[Registration]) -> Result<Cache, RegistrationError> {
    let mut cache = Cache::default();
    cache.add_cluster(Cluster::Local, CacheLimits::LOCAL);
    for registration in registrations {
        cache.register(registration)?;
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
        "metadata": {"name": "x", "namespace": "a", "uid": "u", "resourceVersion": "1"}});
    let resource = &registrations[0].resource;
    let form = cache.form(resource).unwrap();
    let entry = form.decode(&object.to_string(), &Cluster::Local).unwrap();
    let id = registrations[0].watch_id().unwrap();
    cache.add_watch(id.clone());
    cache.put_watched(&id, entry, false).unwrap();

    Ok(cache)
}

fn found(cache: &Cache, index: &'static str, value: &str) -> usize {
    let objects = cache.objects::<ConfigMap>(&Cluster::Local);
    objects.indexed(index, value).count()
}

#[test]
fn registrations_with_one_function_share_a_form_with_all_indexes() {
    let pruned = || Registration::of(Scope::All, without_data);
    let (by_name, by_key) = (pruned().index("name", name), pruned().index("keys", keys));

    for registrations in [
        [by_name.clone(), by_key.clone()],
        [by_key, by_name.index("keys", keys)],
    ] {
        let cache = cache(&registrations).unwrap();
        assert_eq!(found(&cache, "name", "x"), 1);
        assert_eq!(found(&cache, "keys", "k"), 0);
    }
}

#[test]
fn whole_objects_take_precedence_in_either_order() {
    let pruned = Registration::of(Scope::All, without_data).index("name", name);
    let whole = Registration::whole::<ConfigMap>(Scope::All).index("keys", keys);

    for registrations in [[pruned.clone(), whole.clone()], [whole, pruned]] {
        let cache = cache(&registrations).unwrap();
        assert_eq!(found(&cache, "name", "x"), 1);
        assert_eq!(found(&cache, "keys", "k"), 1);
    }
}

#[test]
fn two_functions_two_types_or_two_indexes_of_one_name_are_refused() {
    #[derive(PartialEq)]
    struct Name(String);
    impl Kept for Name {
        fn resource() -> Resource {
            Resource::of::<ConfigMap>()
        }
    }
    let pruned = || Registration::of(Scope::All, without_data);
    let other = Registration::of(Scope::All, |map: ConfigMap| map);
    let names = Registration::of(Scope::All, |map: ConfigMap| {
        Name(map.metadata.name.unwrap_or_default())
    });
    let refused = |second| cache(&[pruned().index("i", name), second]).err();

    let fields = refused(other);
    assert!(matches!(fields, Some(RegistrationError::Fields { .. })));
    let types = refused(names);
    assert!(matches!(types, Some(RegistrationError::Types { .. })));
    let indexes = refused(pruned().index("i", keys));
    assert!(matches!(indexes, Some(RegistrationError::Indexes { .. })));
}

#[test]
#[should_panic(expected = "another type")]
fn an_index_of_another_type_is_refused() {
    let pruned = Registration::of(Scope::All, without_data);
    drop(pruned.index("i", |_: &String| Vec::new()));
}

#[test]
fn a_resource_that_is_named_at_run_time_is_kept_as_json_or_digest() {
    let resource = Resource {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        plural: String::from("widgets").into(),
    };
    let json = Registration::dynamic(Scope::All, resource.clone(), |object: DynamicObject| object);
    let digest = Registration::dynamic(Scope::All, resource.clone(), |object: DynamicObject| {
        Digested::new(object.metadata, &object.data["data"])
    });
    let key = control_client::object::Key::new("a", "x");

    let kept = cache(std::slice::from_ref(&json)).unwrap();
    let objects = kept.dynamic::<DynamicObject>(&Cluster::Local, &resource);
    assert_eq!(objects.get(&key).unwrap().data["data"]["k"], "v");

    let kept = cache(std::slice::from_ref(&digest)).unwrap();
    let objects = kept.dynamic::<Digested>(&Cluster::Local, &resource);
    let expected = crate::digest::Digest::of(&json!({"k": "v"}));
    assert_eq!(objects.get(&key).unwrap().digest, expected);
    assert!(
        kept.dynamic::<DynamicObject>(&Cluster::Local, &resource)
            .get(&key)
            .is_none()
    );

    let rules = crate::rights::rules([&json]);
    let rule = &rules[&Scope::All][0];
    assert_eq!(rule.api_groups, Some(vec!["example.com".to_owned()]));
    assert!(cache(&[json, digest]).is_err());
}

#[test]
fn label_selectors_select_by_value_presence_and_absence() {
    let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
    let selects = |selector: &str| {
        let labels_selector = Selector {
            labels: selector.into(),
            ..Selector::default()
        };
        labels_selector.selects(&labels)
    };

    assert!(selects("") && selects("a") && selects("a=1") && selects("a==1,!b"));
    assert!(!selects("b") && !selects("a=2") && !selects("!a") && !selects("a=1,b"));
}
