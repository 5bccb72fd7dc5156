//! Keys of gateways: creation, checks, publication, repair.

use super::*;
use crate::network::write::Action;
use k8s_openapi::ByteString;
use serde_json::from_value;

fn bytes(value: &Value) -> Vec<u8> {
    from_value::<ByteString>(value.clone()).unwrap().0
}

fn gateway_keys(rome: &Cluster) -> &Value {
    &rome.get(Kind::GatewayKeys, &Key::new("liqo", "liqo-gateway-keys"))["data"]
}

#[test]
fn deleted_keys_and_services_are_restored() {
    let mut rome = rome();
    with_milan(&mut rome);
    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort"})),
    );
    rome.settle();

    rome.delete(Kind::Secret, &key("gw-milan"));
    rome.delete(Kind::Service, &Key::new("liqo", "liqo-gateway"));
    rome.delete(Kind::GatewayKeys, &Key::new("liqo", "liqo-gateway-keys"));
    rome.settle();

    let secret = &rome.get(Kind::Secret, &key("gw-milan"))["data"]["privateKey"];
    assert_eq!(gateway_keys(&rome), &json!({"milan": secret}));
    assert!(
        !rome
            .get(Kind::Service, &Key::new("liqo", "liqo-gateway"))
            .is_null()
    );
}

#[test]
fn a_secret_of_the_user_is_checked_labelled_and_used() {
    let mut rome = rome();
    with_milan(&mut rome);
    let mut server = server("milan", &json!({"serviceType": "NodePort"}));
    server["spec"]["secretRef"] = json!({"name": "mine"});
    rome.put(Kind::GatewayServer, server);
    rome.settle();
    let missing = ready(&rome, Kind::GatewayServer, "milan");
    let private = [5_u8; 32];
    let public =
        x25519_dalek::PublicKey::from(&x25519_dalek::StaticSecret::from(private)).to_bytes();
    let secret = |public: &[u8]| {
        json!({
            "metadata": {"name": "mine", "namespace": TENANT},
            "data": {"privateKey": ByteString(private.to_vec()), "publicKey": ByteString(public.to_vec())},
        })
    };

    rome.put(Kind::Secret, secret(&[1; 32]));
    rome.edit(
        Kind::GatewayServer,
        &key("milan"),
        json!({"spec": {"mtu": 1300}}),
    );
    rome.settle();
    let wrong = ready(&rome, Kind::GatewayServer, "milan");
    rome.put(Kind::Secret, secret(&public));
    rome.edit(
        Kind::GatewayServer,
        &key("milan"),
        json!({"spec": {"mtu": 1301}}),
    );
    rome.settle();

    assert!(missing.contains("KeysMissing"), "{missing}");
    assert!(
        wrong.contains("does not belong to its privateKey"),
        "{wrong}"
    );
    let labels = &rome.get(Kind::Secret, &key("mine"))["metadata"]["labels"];
    assert_eq!(labels["liqo.io/remote-cluster-id"], "milan");
    assert_eq!(bytes(&gateway_keys(&rome)["milan"]), private);
    assert!(rome.get(Kind::Secret, &key("gw-milan")).is_null());

    rome.edit(
        Kind::Secret,
        &key("mine"),
        json!({"metadata": {"labels": {"liqo.io/remote-cluster-id": "naples"}}}),
    );
    rome.edit(
        Kind::GatewayServer,
        &key("milan"),
        json!({"spec": {"mtu": 1302}}),
    );
    rome.settle();
    assert!(ready(&rome, Kind::GatewayServer, "milan").contains("KeysOfAnotherPeer"));
}

#[test]
fn an_edited_public_key_is_corrected_and_a_missing_private_key_is_reported() {
    let mut rome = rome();
    with_milan(&mut rome);
    rome.put(Kind::GatewayClient, client("milan"));
    rome.settle();
    let before = rome.get(Kind::Secret, &key("gw-milan"))["data"].clone();

    rome.edit(
        Kind::Secret,
        &key("gw-milan"),
        json!({"data": {"publicKey": "AAAA"}}),
    );
    rome.settle();
    let corrected = rome.get(Kind::Secret, &key("gw-milan"))["data"].clone();
    rome.edit(
        Kind::Secret,
        &key("gw-milan"),
        json!({"data": {"privateKey": "AAAA"}}),
    );
    rome.settle();

    assert_eq!(corrected, before);
    let reported = ready(&rome, Kind::GatewayClient, "milan");
    assert!(
        reported.contains("InvalidKeys") && reported.contains("delete the Secret"),
        "{reported}"
    );
}

#[test]
fn invalid_shared_and_own_keys_are_refused() {
    let mut rome = rome();
    rome.put(Kind::PublicKey, public_key("naples", 9));
    with_milan(&mut rome);
    rome.put(Kind::GatewayClient, client("milan"));
    rome.settle();
    let own = rome.get(Kind::Secret, &key("gw-milan"))["data"]["publicKey"].clone();
    let reported = |rome: &mut Cluster, object: Value| {
        rome.put(Kind::PublicKey, object);
        rome.settle();
        ready(rome, Kind::GatewayClient, "milan")
    };

    let of_another = reported(&mut rome, public_key("milan", 9));
    let of_own = reported(
        &mut rome,
        of_peer("milan", "milan", &json!({"publicKey": own})),
    );
    let short = reported(
        &mut rome,
        of_peer("milan", "milan", &json!({"publicKey": "AAAA"})),
    );
    let right = reported(&mut rome, public_key("milan", 8));
    let second = reported(
        &mut rome,
        of_peer(
            "milan",
            "zwei",
            &json!({"publicKey": ByteString(vec![7; 32])}),
        ),
    );

    assert!(
        of_another.contains("KeyConflict") && of_another.contains("liqo-tenant-naples/naples"),
        "{of_another}"
    );
    assert!(of_own.contains("this cluster's own key"), "{of_own}");
    assert!(short.contains("does not hold 32 bytes"), "{short}");
    assert!(right.starts_with("True"), "{right}");
    assert!(second.contains("TwoPublicKeys"), "{second}");
}

#[test]
fn private_keys_are_written_to_secrets_only() {
    let mut rome = rome();
    with_milan(&mut rome);
    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort"})),
    );
    let writes = rome.settle();

    let private = rome.get(Kind::Secret, &key("gw-milan"))["data"]["privateKey"].clone();
    for write in writes {
        let (Action::Create(value)
        | Action::Apply(value)
        | Action::Merge(value)
        | Action::Status(value)) = &write.action
        else {
            continue;
        };
        let is_secret = matches!(write.kind, Kind::Secret | Kind::GatewayKeys);
        assert!(
            is_secret || !value.to_string().contains(private.as_str().unwrap()),
            "{}",
            write.kind
        );
    }
}

fn ready(rome: &Cluster, kind: Kind, name: &str) -> String {
    condition(rome.get(kind, &key(name)), "Ready")
}
