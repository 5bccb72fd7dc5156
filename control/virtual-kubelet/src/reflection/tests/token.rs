use super::peering;
use crate::reflection::token::{
    Token, TokenKey, TokenSecret, TokenSpec, TokenState, remote, until_refresh,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

fn pod() -> Pod {
    let pod = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u"}, "spec": {"containers": []}});
    serde_json::from_value(pod).unwrap()
}

fn spec(audience: Option<&str>, expiration_seconds: i64) -> TokenSpec {
    TokenSpec {
        audience: audience.map(str::to_owned),
        expiration_seconds,
    }
}

fn desired(tokens: &[(&str, TokenSpec)]) -> TokenSecret {
    let tokens = tokens.iter().map(|(key, token)| TokenKey {
        key: (*key).to_owned(),
        token: token.clone(),
    });
    TokenSecret {
        name: "web-token".to_owned(),
        tokens: tokens.collect(),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn a_token_is_bound_to_its_pod() {
    let request = spec(Some("vault"), 600).request(&pod());

    assert_eq!(
        request["spec"],
        json!({
            "audiences": ["vault"],
            "expirationSeconds": 600,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u"},
        })
    );
    assert_eq!(
        spec(None, 600).request(&pod())["spec"]["audiences"],
        json!([])
    );
}

#[test]
fn a_secret_has_all_tokens_and_the_first_expiration() {
    let (api, vault) = (spec(None, 3607), spec(Some("vault"), 600));
    let desired = desired(&[
        ("a", api.clone()),
        ("b", vault.clone()),
        ("c", vault.clone()),
    ]);
    let token = |value: &str, second| Token {
        value: value.to_owned(),
        expiration: at(second),
    };
    let mut tokens = BTreeMap::from([(api, token("x", 3607))]);
    let peering = peering();
    assert!(remote(&pod(), &desired, &tokens, (&peering, "milan")).is_none());

    tokens.insert(vault, token("y", 600));
    let secret = remote(&pod(), &desired, &tokens, (&peering, "milan")).unwrap();
    let data = secret.data.as_ref().unwrap();
    let value = |key: &str| String::from_utf8_lossy(&data[key].0).into_owned();
    assert_eq!(["a", "b", "c"].map(value), ["x", "y", "y"]);
    let state = TokenState::of(&secret).unwrap();
    assert_eq!(state.expiration, Some(at(600)));
    assert!(state.is_complete(&pod(), &desired));
    let mut other = pod();
    other.metadata.uid = Some("v".to_owned());
    assert!(!state.is_complete(&other, &desired));
}

#[test]
fn tokens_are_refreshed_after_four_fifths_of_their_lifetime_and_at_most_30_seconds() {
    let desired = desired(&[("a", spec(None, 3600)), ("b", spec(Some("vault"), 1000))]);
    let mut delays = std::collections::BTreeSet::new();
    for uid in 0..100 {
        let delay = until_refresh(at(5000), &desired, None, (&uid.to_string(), at(4000)));
        assert!((800..=830).contains(&delay.as_secs()), "{delay:?}");
        delays.insert(delay);
    }
    assert!(delays.len() > 10);
    let late = until_refresh(at(5000), &desired, None, ("u", at(4900)));
    assert_eq!(late, Duration::ZERO);
}

#[test]
fn a_lifetime_below_the_requested_one_causes_no_refresh_at_once() {
    let desired = desired(&[("a", spec(None, 31_536_000))]);
    let granted = Some(Duration::from_secs(3600));

    let delay = until_refresh(at(3600), &desired, granted, ("u", at(0)));

    assert!((2880..=2910).contains(&delay.as_secs()), "{delay:?}");
}

#[test]
fn a_response_without_token_or_with_an_invalid_time_is_no_token() {
    let response = |token: serde_json::Value, time: &str| json!({"status": {"token": token, "expirationTimestamp": time}});
    assert!(Token::parse(&response(json!("x"), "2026-11-21T09:29:35Z")).is_some());
    assert!(Token::parse(&response(json!("x"), "tomorrow")).is_none());
    assert!(Token::parse(&response(json!(7), "2026-11-21T09:29:35Z")).is_none());
    assert!(Token::parse(&json!({})).is_none());
}
