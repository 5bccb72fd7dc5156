//! Objects by which a consumer, its provider or a peering user would gain more than they may.

use super::side::{MOMENT, Side, tenant_namespace};
use super::slices::{condition, provider, put, slice, slice_key};
use super::{HOUR, ed25519, proof};
use control_api::{Identity, ResourceSlice, Tenant};
use control_credentials::Subject;
use control_runtime::Key;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use serde_json::json;

/// Cluster IDs whose SHA-256 digests have the same first 48 bits.
const COLLIDING: [&str; 2] = ["c6007198", "c8086181"];

/// A hostile provider could get a signature of a certificate signing request or of a handshake otherwise.
#[test]
fn only_base64_is_signed_as_a_nonce() {
    for (nonce, is_signed) in [
        (b"0123456789+/abcXYZ==".to_vec(), true),
        (vec![b'a'; 256], true),
        (vec![b'a'; 257], false),
        (b"TLS 1.3, client CertificateVerify".to_vec(), false),
        (vec![0x30, 0x82, 1, 2], false),
        (Vec::new(), false),
    ] {
        let mut rome = Side::new("rome");
        rome.put_peer("milan");
        rome.put_signed_nonce("milan", &nonce);
        rome.run(MOMENT);

        let signature = rome.secret("milan", "liqo-signed-nonce", "signedNonce");
        let signature = signature.filter(|it| !it.is_empty());
        assert_eq!(signature.is_some(), is_signed, "{nonce:?}");
        assert_eq!(rome.reasons().contains(&"InvalidNonce"), !is_signed);
    }
}

#[test]
fn a_tenant_in_the_namespace_of_another_consumer_displaces_none() {
    let (mut milan, nonce) = super::milan();
    milan.put_peer("turin");
    // It is older than the Tenant of `rome`.
    let key = Key::new(tenant_namespace("turin"), "rome");
    let spec = proof(&ed25519(2), &nonce);
    milan.put::<Tenant>(json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "Tenant",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": spec,
    }));
    milan.run(MOMENT);
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(2 * MOMENT);
    milan.sign(HOUR);
    milan.run(MOMENT);
    assert!(super::certificate(&mut milan).is_some());
    assert_eq!(milan.count::<ClusterRoleBinding>(), 1);
    let binding = milan.only::<ClusterRoleBinding>()["metadata"]["uid"].clone();

    // Its deletion leaves the rights of the consumer.
    milan.remove::<Tenant>(&key);
    milan.run(2 * MOMENT);
    assert!(milan.object::<Tenant>(&key).is_none());
    assert_eq!(
        milan.only::<ClusterRoleBinding>()["metadata"]["uid"],
        binding
    );
}

#[test]
fn two_consumers_never_have_the_same_user() {
    let [first, second] = COLLIDING;
    let users = COLLIDING.map(|id| Subject::resource_slice(id, "shop").common_name);
    assert_eq!(users[0], users[1]);
    let (mut milan, _) = provider();
    for id in COLLIDING {
        milan.put_peer(id);
        let mut spec = json!({"clusterID": id, "authzPolicy": "TolerateNoHandshake"});
        spec["publicKey"] = proof(&ed25519(1), b"")["publicKey"].clone();
        milan.put_tenant(id, &spec);
        milan.run(MOMENT);
        let mut replica = slice("shop", &ed25519(1), &json!({}));
        replica["metadata"]["namespace"] = json!(tenant_namespace(id));
        for label in ["liqo.io/originID", "liqo.io/remote-cluster-id"] {
            replica["metadata"]["labels"][label] = json!(id);
        }
        let csr =
            control_credentials::request::create(&ed25519(1), &Subject::resource_slice(id, "shop"));
        replica["spec"]["csr"] = json!(k8s_openapi::ByteString(csr.unwrap().into_bytes()));
        replica["spec"]["consumerClusterID"] = json!(id);
        put(&mut milan, &replica);
    }

    let mut verdict = |id: &str| {
        let key = Key::new(tenant_namespace(id), "shop");
        let status = milan.object::<ResourceSlice>(&key).unwrap()["status"].clone();
        condition(&status, "Authentication").0
    };
    assert_eq!(verdict(first), "Accepted");
    assert_eq!(verdict(second), "Denied");
    assert!(milan.reasons().contains(&"UserInUse"));
    // The name is free once the other ResourceSlice is gone.
    milan.remove::<ResourceSlice>(&Key::new(tenant_namespace(first), "shop"));
    milan.run(2 * MOMENT);
    milan.sign(HOUR);
    milan.run(2 * MOMENT);
    let key = Key::new(tenant_namespace(second), "shop");
    let status = milan.object::<ResourceSlice>(&key).unwrap()["status"].clone();
    assert_eq!(condition(&status, "Authentication").0, "Accepted");
}

#[test]
fn the_key_of_the_cluster_is_not_written_where_a_peering_user_reads_it() {
    let mut rome = Side::new("rome");
    rome.put_peer("milan");
    let mut binding = json!({
        "metadata": {"name": "user", "namespace": tenant_namespace("milan")},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "liqo-peering-user-tenant-ns",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "user"}],
    });
    rome.put::<RoleBinding>(binding.clone());
    rome.put_identity("milan", "certificate");
    rome.run(MOMENT);
    let kubeconfig =
        |rome: &mut Side| rome.secret("milan", "kubeconfig-controlplane-milan", "kubeconfig");
    assert_eq!(kubeconfig(&mut rome), None);
    assert!(rome.reasons().contains(&"ClusterKeyReadable"));
    let conditions = |rome: &mut Side| rome.only::<Identity>()["status"]["conditions"].clone();
    assert_eq!(conditions(&mut rome)[0]["reason"], "ClusterKeyReadable");

    binding["metadata"]["annotations"] = json!({"liqo.io/allow-reverse-peering": "true"});
    rome.put::<RoleBinding>(binding);
    rome.run(MOMENT);
    assert!(kubeconfig(&mut rome).is_some());
    assert!(conditions(&mut rome).is_null());
}

#[test]
fn a_deleted_slice_leaves_no_certificate() {
    let (mut milan, _) = provider();
    let before = milan.count::<Secret>();
    for name in ["a", "b"] {
        put(&mut milan, &slice(name, &ed25519(1), &json!({})));
        assert_eq!(milan.count::<Secret>(), before + 1, "{name}");
        milan.remove::<ResourceSlice>(&slice_key(name));
        milan.run(MOMENT);
        assert_eq!(milan.count::<Secret>(), before, "{name}");
    }
    // The signer may take longer than the consumer.
    milan.put::<ResourceSlice>(slice("c", &ed25519(1), &json!({})));
    milan.run(MOMENT);
    assert_eq!(milan.count::<CertificateSigningRequest>(), 1);
    milan.remove::<ResourceSlice>(&slice_key("c"));
    milan.run(MOMENT);
    assert_eq!(milan.count::<CertificateSigningRequest>(), 0);
    assert_eq!(milan.count::<Secret>(), before);
}
