use crate::pod::forge::ApiServerSupport;
use crate::pod::forge::token::{Token, token_secret_name, tokens};
use crate::pod::tests::pod;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn spec() -> Value {
    json!({"volumes": [
        {"name": "data", "emptyDir": {}},
        {"name": "kube-api-access-x", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt"}},
        ]}},
        {"name": "own", "projected": {"sources": [
            {"serviceAccountToken": {"path": "vault", "audience": "vault"}},
            {"serviceAccountToken": {"path": "api", "audience": ""}},
        ]}},
    ]})
}

fn token<'a>(volume: &'a str, path: &'a str, audience: Option<&'a str>, seconds: i64) -> Token<'a> {
    Token {
        volume,
        path,
        audience,
        expiration_seconds: seconds,
    }
}

#[test]
fn every_token_of_every_volume_is_needed() {
    let pod = pod(&spec(), &json!({}));

    assert_eq!(
        tokens(&pod, ApiServerSupport::TokenApi),
        [
            token("kube-api-access-x", "token", None, 3607),
            token("own", "vault", Some("vault"), 3600),
            token("own", "api", None, 3600),
        ]
    );
}

#[test]
fn other_modes_need_no_secret() {
    for (default, annotations) in [
        (ApiServerSupport::Disabled, json!({})),
        (
            ApiServerSupport::TokenApi,
            json!({"liqo.io/api-server-support": "disabled"}),
        ),
        (
            ApiServerSupport::TokenApi,
            json!({"liqo.io/api-server-support": "remote"}),
        ),
    ] {
        assert_eq!(tokens(&pod(&spec(), &annotations), default), []);
    }
}

#[test]
fn keys_differ_by_volume_and_path() {
    let keys = [
        token("a", "token", None, 1).key(),
        token("b", "token", None, 1).key(),
        token("a", "sub/token", None, 1).key(),
    ];

    assert_eq!(keys[0], "a-3c469e");
    assert_eq!(keys[1], "b-3c469e");
    assert_ne!(keys[2], keys[0]);
    assert!(!keys[2].contains('/'), "{}", keys[2]);
}

#[test]
fn the_name_of_the_secret_of_a_pod_with_a_long_name_is_valid_and_its_own() {
    let longest_unchanged = "a".repeat(247);
    assert_eq!(
        token_secret_name(&longest_unchanged),
        format!("{longest_unchanged}-token")
    );

    let first = token_secret_name(&"a".repeat(253));
    let second = token_secret_name(&format!("{}b", "a".repeat(252)));
    assert_ne!(first, second);
    assert_eq!(first, token_secret_name(&"a".repeat(253)));
    for name in [first, second, token_secret_name(&"a.".repeat(126))] {
        assert!(name.len() <= 253, "{name}");
        assert!(name.ends_with(".token"));
        assert!(!name.contains(".-"), "{name}");
    }
}

proptest! {
    /// Names of pods that share all but their last characters, and names that a user has chosen after the name of a Secret.
    #[test]
    fn no_two_pods_share_a_secret(
        head in "[a-z0-9]{230}",
        tails in prop::collection::btree_set("[a-z0-9]([-.]?[a-z0-9]){0,11}", 2..8),
    ) {
        let mut pods: BTreeSet<_> = tails.iter().map(|tail| format!("{head}{tail}")).collect();
        let chosen = pods.iter().map(|pod| token_secret_name(pod));
        let chosen = chosen.filter_map(|it| Some(it.rsplit_once(['-', '.'])?.0.to_owned()));
        pods.extend(Vec::from_iter(chosen));
        let secrets: BTreeSet<_> = pods.iter().map(|pod| token_secret_name(pod)).collect();

        prop_assert_eq!(secrets.len(), pods.len());
        for name in secrets {
            prop_assert!(name.len() <= 253, "{}", name);
            let is_label = |it: &str| {
                let is_alphanumeric = |it: Option<char>| it.is_some_and(|it| it.is_ascii_alphanumeric());
                is_alphanumeric(it.chars().next()) && is_alphanumeric(it.chars().last())
            };
            prop_assert!(name.split('.').all(is_label), "{}", name);
        }
    }
}
