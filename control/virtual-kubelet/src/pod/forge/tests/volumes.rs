use super::forged_with;
use crate::pod::forge::{ApiServerSupport, Context, reflected_config_map_name};
use crate::pod::tests::context;
use control_api::offloading::virtual_node::OffloadingPatch;
use serde_json::{Value, json};

fn token(path: &str) -> Value {
    json!({"serviceAccountToken": {"path": path, "audience": "vault"}})
}

fn root_ca(name: &str) -> Value {
    json!({"configMap": {"name": name, "items": [{"key": "ca.crt", "path": "ca.crt"}]}})
}

fn namespace() -> Value {
    json!({"downwardAPI": {"items": [
        {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}},
    ]}})
}

fn secret(name: &str, key: &str, path: &str) -> Value {
    json!({"secret": {"name": name, "items": [{"key": key, "path": path}]}})
}

fn projected(name: &str, path: &str) -> Value {
    json!({"name": name, "projected": {
        "defaultMode": 420,
        "sources": [token(path), root_ca("kube-root-ca.crt"), namespace()],
    }})
}

fn local() -> Value {
    json!({"volumes": [
        projected("kube-api-access-x", "token"),
        projected("own", "sub/vault-token"),
    ]})
}

/// Returns the sources of each volume.
fn sources(mode: ApiServerSupport, spec: &Value) -> Vec<Vec<Value>> {
    let patch = OffloadingPatch::default();
    let context = Context {
        api_server_support: mode,
        ..context(&patch)
    };
    let spec = forged_with(&context, spec, &json!({}));
    let volumes = spec["volumes"].as_array().unwrap().iter();
    volumes
        .map(|it| it["projected"]["sources"].as_array().unwrap().clone())
        .collect()
}

#[test]
fn tokens_come_from_the_secret_of_the_pod() {
    let sources = sources(ApiServerSupport::TokenApi, &local());

    let ca = root_ca("kube-root-ca.crt.rome");
    let digest = "kube-api-access-x-3c469e";
    assert_eq!(
        sources[0],
        [
            secret("web-token", digest, "token"),
            ca.clone(),
            namespace()
        ]
    );
    let key = sources[1][0]["secret"]["items"][0]["key"].as_str().unwrap();
    assert_eq!(
        sources[1],
        [secret("web-token", key, "sub/vault-token"), ca, namespace()]
    );
    assert!(
        key.starts_with("own-") && key.len() == "own-".len() + 6,
        "{key}"
    );
}

#[test]
fn the_owner_of_a_tokens_file_is_kept() {
    let token = json!({"serviceAccountToken": {"path": "token", "user": 1000}});
    let volume = json!({"name": "own", "projected": {"sources": [token]}});

    let sources = sources(ApiServerSupport::TokenApi, &json!({"volumes": [volume]}));

    assert_eq!(sources[0][0]["secret"]["items"][0]["user"], 1000);
}

#[test]
fn disabled_pods_get_no_token_and_still_the_root_ca() {
    let sources = sources(ApiServerSupport::Disabled, &local());

    for sources in sources {
        assert_eq!(sources, [root_ca("kube-root-ca.crt.rome"), namespace()]);
    }
}

#[test]
fn remote_pods_keep_their_volumes() {
    let sources = sources(ApiServerSupport::Remote, &local());

    assert_eq!(
        sources[0],
        [token("token"), root_ca("kube-root-ca.crt"), namespace()]
    );
}

#[test]
fn other_volumes_and_other_config_maps_are_copied() {
    let volumes = json!([
        {"name": "a", "configMap": {"name": "kube-root-ca.crt"}},
        {"name": "b", "hostPath": {"path": "/data"}},
        {"name": "c", "projected": {"sources": [root_ca("own"), secret("s", "k", "p")]}},
    ]);
    let patch = OffloadingPatch::default();

    let spec = forged_with(&context(&patch), &json!({"volumes": volumes}), &json!({}));

    assert_eq!(spec["volumes"], volumes);
}

#[test]
fn the_root_ca_of_a_cluster_has_a_valid_name_of_its_own() {
    for (id, expected) in [
        ("rome", "kube-root-ca.crt.rome"),
        ("milano", "kube-root-ca.crt.milan"),
        ("east-1", "kube-root-ca.crt.east-a"),
        ("", "kube-root-ca.crt.a"),
    ] {
        assert_eq!(reflected_config_map_name("kube-root-ca.crt", id), expected);
        assert_eq!(reflected_config_map_name("web", id), "web");
    }
}
