use super::*;
use control_credentials::{ClusterKey, KeyType, Subject, request};
use control_runtime::Key;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use side::{MOMENT, Side, tenant_namespace};
use std::time::Duration;

mod ends;
mod hostile;
mod offline;
mod orders;
mod policies;
mod refusals;
mod side;
mod skew;
mod slices;
mod tolerated;

const HOUR: Duration = Duration::from_secs(3600);

/// Returns what `rome` writes into its Tenant at `milan`.
fn proof(key: &ClusterKey, nonce: &[u8]) -> Value {
    let subject = Subject::control_plane("rome");
    let csr = request::create(key, &subject).unwrap();
    json!({
        "clusterID": "rome",
        "publicKey": ByteString(key.public_key().to_pem().into_bytes()),
        "csr": ByteString(csr.into_bytes()),
        "signature": ByteString(key.sign(nonce).unwrap()),
    })
}

fn ed25519(seed: u8) -> ClusterKey {
    ClusterKey::generate(KeyType::Ed25519, [seed; 32]).unwrap()
}

/// Returns `milan` with a nonce for `rome`, and the nonce.
fn milan() -> (Side, Vec<u8>) {
    milan_with_seed(1)
}

fn milan_with_seed(seed: u64) -> (Side, Vec<u8>) {
    let mut milan = Side::with_seed("milan", seed);
    milan.put_peer("rome");
    milan.put_nonce("rome");
    milan.run(MOMENT);
    let nonce = milan.secret("rome", "liqo-nonce", "nonce").unwrap();

    (milan, nonce)
}

fn certificate(milan: &mut Side) -> Option<Vec<u8>> {
    milan.secret("rome", "liqo-remote-certificate", "certificate")
}

#[test]
fn the_key_of_the_cluster_is_created_once() {
    let mut rome = Side::new("rome");
    rome.run(MOMENT);
    let key = rome
        .secret_in("liqo", "authentication-keys", "privateKey")
        .unwrap();
    let public = rome
        .secret_in("liqo", "authentication-keys", "publicKey")
        .unwrap();

    let parsed = ClusterKey::from_pem(&key).unwrap();
    assert_eq!(parsed.public_key().to_pem().as_bytes(), public);
    rome.hand_over();
    rome.run(HOUR);
    assert_eq!(
        rome.secret_in("liqo", "authentication-keys", "privateKey"),
        Some(key)
    );
    assert_eq!(rome.writes::<Secret>(), 1);
}

#[test]
fn an_empty_nonce_is_filled_and_expires_unless_a_tenant_uses_it() {
    let (mut milan, nonce) = milan();
    assert_eq!(nonce.len(), 88);

    milan.run(HOUR);
    assert!(
        milan.secret("rome", "liqo-nonce", "nonce").is_some(),
        "it expires after 7 hours"
    );
    milan.run(7 * HOUR);
    assert_eq!(milan.secret("rome", "liqo-nonce", "nonce"), None);

    let (mut milan, nonce) = self::milan();
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(8 * HOUR);
    assert!(milan.secret("rome", "liqo-nonce", "nonce").is_some());
}

#[test]
fn a_signed_nonce_lasts_until_the_credentials_have_arrived() {
    let mut rome = Side::new("rome");
    rome.put_peer("milan");
    rome.put_signed_nonce("milan", b"nonceOfMilan");
    rome.run(MOMENT);
    let signature = rome
        .secret("milan", "liqo-signed-nonce", "signedNonce")
        .unwrap();
    let key = rome
        .secret_in("liqo", "authentication-keys", "privateKey")
        .unwrap();
    let key = ClusterKey::from_pem(&key).unwrap();
    assert!(key.public_key().verify(b"nonceOfMilan", &signature).is_ok());

    rome.run(HOUR);
    assert!(
        rome.secret("milan", "liqo-signed-nonce", "signedNonce")
            .is_some()
    );
    rome.put_identity("milan", "certificate");
    rome.run(MOMENT);
    rome.run(HOUR);
    assert_eq!(
        rome.secret("milan", "liqo-signed-nonce", "signedNonce"),
        None
    );

    // If the peering ends within two minutes, garbage collection deletes it with the Identity.
    rome.put_signed_nonce("milan", b"anotherNonce");
    rome.run(MOMENT);
    let key = Key::new(tenant_namespace("milan"), "liqo-signed-nonce");
    let secret = rome.object::<Secret>(&key).unwrap();
    assert_eq!(
        secret["metadata"]["ownerReferences"][0]["name"],
        "controlplane-milan"
    );
    assert!(!secret["data"]["signedNonce"].is_null());
}

#[test]
fn a_verified_consumer_gets_a_certificate_and_its_rights() {
    let (mut milan, nonce) = milan();
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(2 * MOMENT);

    assert_eq!(
        milan.status("rome")["authParams"],
        Value::Null,
        "the signer has not signed"
    );
    assert_eq!(milan.count::<RoleBinding>(), 0);
    let csr = milan.only::<CertificateSigningRequest>();
    assert_eq!(
        csr["spec"]["signerName"],
        "kubernetes.io/kube-apiserver-client"
    );
    assert_eq!(csr["status"]["conditions"][0]["type"], "Approved");
    assert_eq!(
        csr["status"]["conditions"][0]["reason"],
        "IdentityManagerApproval"
    );

    milan.sign(10 * HOUR);
    milan.run(MOMENT);
    let status = milan.status("rome");
    assert_eq!(status["tenantNamespace"], "liqo-tenant-rome");
    assert_eq!(status["authParams"]["apiServer"], "https://192.0.2.1:6443");
    let signed = ByteString(certificate(&mut milan).unwrap());
    assert_eq!(status["authParams"]["signedCRT"], json!(signed));
    assert_eq!(milan.only::<RoleBinding>()["subjects"][0]["name"], "rome");
    assert_eq!(milan.only::<RoleBinding>()["subjects"][0]["kind"], "User");
    assert_eq!(
        milan.only::<ClusterRoleBinding>()["subjects"][0]["kind"],
        "Group"
    );
    assert_eq!(
        milan.count::<CertificateSigningRequest>(),
        0,
        "the Secret has the certificate"
    );
    assert!(milan.redundant().is_empty(), "{:?}", milan.redundant());
}

/// A consumer that reads its credentials has its rights.
#[test]
fn the_rights_of_a_consumer_are_written_before_its_credentials() {
    for seed in 0..20 {
        let mut milan = Side::with_seed("milan", seed);
        milan.put_peer("rome");
        milan.put_nonce("rome");
        milan.run(MOMENT);
        let nonce = milan.secret("rome", "liqo-nonce", "nonce").unwrap();
        milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
        milan.run(2 * MOMENT);
        milan.sign(HOUR);
        milan.run(MOMENT);

        let status = milan
            .position::<control_api::Tenant>(Some("status"))
            .unwrap();
        assert!(
            milan.position::<RoleBinding>(None).unwrap() < status,
            "seed {seed}"
        );
        assert!(
            milan.position::<ClusterRoleBinding>(None).unwrap() < status,
            "seed {seed}"
        );
    }
}

#[test]
fn this_cluster_is_no_consumer_of_itself() {
    let mut milan = Side::new("milan");
    milan.put_peer("milan");
    let spec = json!({"clusterID": "milan", "authzPolicy": "TolerateNoHandshake"});
    milan.put_tenant("milan", &spec);
    milan.run(MOMENT);

    let status = milan.status("milan");
    assert_eq!(status["tenantNamespace"], Value::Null);
    assert_eq!(status["conditions"][0]["reason"], "OwnClusterID");
    assert_eq!(milan.count::<ClusterRoleBinding>(), 0);
}

/// Nodes of a managed control plane are not listed.
#[test]
fn a_consumer_gets_no_credentials_without_an_address() {
    let (mut milan, nonce) = milan();
    milan.remove_control_plane();
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(2 * MOMENT);
    milan.sign(HOUR);
    milan.run(MOMENT);
    let status = milan.status("rome");
    assert_eq!(status["authParams"], Value::Null);
    assert_eq!(status["conditions"][0]["reason"], "NoAPIServerAddress");

    milan.put_control_plane();
    milan.run(MOMENT);
    let parameters = &milan.status("rome")["authParams"];
    assert_eq!(parameters["apiServer"], "https://192.0.2.1:6443");
}

#[test]
fn a_certificate_is_renewed_after_two_thirds_of_its_lifetime() {
    let (mut milan, nonce) = milan();
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(2 * MOMENT);
    milan.sign(9 * HOUR);
    milan.run(MOMENT);
    let first = certificate(&mut milan).unwrap();

    milan.run(5 * HOUR);
    assert_eq!(milan.count::<CertificateSigningRequest>(), 0);
    milan.run(2 * HOUR);
    milan.sign(9 * HOUR);
    milan.run(MOMENT);

    let second = certificate(&mut milan).unwrap();
    assert_ne!(second, first);
    assert_eq!(
        milan.status("rome")["authParams"]["signedCRT"],
        json!(ByteString(second))
    );
}

#[test]
fn a_lifetime_that_is_always_due_causes_no_loop() {
    let (mut milan, nonce) = milan();
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(MOMENT);
    for _ in 0..5 {
        milan.sign(Duration::from_secs(1));
        milan.run(Duration::from_secs(1));
    }

    let requests = milan.creations::<CertificateSigningRequest>();
    assert_eq!(
        requests, 1,
        "the next request follows 10 s after the certificate"
    );
}

#[test]
fn a_nonce_is_bound_to_the_first_key() {
    let (mut milan, nonce) = milan();
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(MOMENT);

    milan.put_tenant("rome", &proof(&ed25519(2), &nonce));
    milan.run(MOMENT);
    assert_eq!(milan.creations::<CertificateSigningRequest>(), 1);

    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(2 * MOMENT);
    milan.sign(HOUR);
    milan.run(MOMENT);
    assert!(
        certificate(&mut milan).is_some(),
        "the same key may present the nonce again"
    );
}

#[test]
fn invalid_tenants_are_refused() {
    let nonce = |milan: &mut Side| milan.secret("rome", "liqo-nonce", "nonce").unwrap();
    type Change = fn(&mut Side, &mut Value);
    let changes: [(&str, Change); 7] = [
        ("a signature by another key", |milan, spec| {
            let nonce = milan.secret("rome", "liqo-nonce", "nonce").unwrap();
            spec["signature"] = json!(ByteString(ed25519(2).sign(&nonce).unwrap()));
        }),
        ("a request by another key", |_, spec| {
            spec["csr"] = proof(&ed25519(2), b"")["csr"].clone();
        }),
        ("a request by a key of another type", |_, spec| {
            let key = ClusterKey::generate(KeyType::Rsa, [3; 32]).unwrap();
            spec["csr"] = proof(&key, b"")["csr"].clone();
        }),
        ("a request for another subject", |_, spec| {
            let csr = request::create(&ed25519(1), &Subject::control_plane("turin")).unwrap();
            spec["csr"] = json!(ByteString(csr.into_bytes()));
        }),
        ("no nonce", |milan, _| {
            milan.remove_secret("rome", "liqo-nonce")
        }),
        ("a user of another binding", |milan, _| {
            milan.put_binding("administrators", "rome");
        }),
        ("an older Tenant in the namespace", |milan, spec| {
            let spec = spec.clone();
            milan.put_tenant_named("rome", "a", &spec);
        }),
    ];
    for (what, change) in changes {
        let (mut milan, _) = self::milan();
        let mut spec = proof(&ed25519(1), &nonce(&mut milan));
        change(&mut milan, &mut spec);
        let before = milan.creations::<CertificateSigningRequest>();
        milan.run(MOMENT);
        let older = milan.creations::<CertificateSigningRequest>() - before;
        milan.put_tenant("rome", &spec);
        milan.run(MOMENT);

        let requests = milan.creations::<CertificateSigningRequest>();
        assert_eq!(requests - older, 0, "{what}");
        let status = milan.status("rome");
        assert_eq!(status["authParams"], Value::Null, "{what}");
        assert_eq!(status["tenantNamespace"], Value::Null, "{what}");
        assert_eq!(status["conditions"][0]["status"], "False", "{what}");
        assert_eq!(
            milan.count::<ClusterRoleBinding>(),
            usize::from(what.contains("binding")),
            "{what}"
        );
    }
}

#[test]
fn a_request_by_another_user_is_not_approved() {
    let (mut milan, nonce) = milan();
    milan.set_request_defaults(|csr| csr["spec"]["username"] = json!("mallory"));
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(3 * MOMENT);

    let csr = milan.only::<CertificateSigningRequest>();
    assert_eq!(csr["status"]["conditions"], Value::Null);
}

#[test]
fn a_binding_with_another_subject_is_replaced() {
    let (mut milan, nonce) = milan();
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(2 * MOMENT);
    milan.sign(HOUR);
    milan.run(MOMENT);

    milan.edit_bindings(|binding| binding["subjects"][0]["name"] = json!("mallory"));
    milan.run(MOMENT);

    assert_eq!(milan.only::<RoleBinding>()["subjects"][0]["name"], "rome");
}

/// An administrator may have labelled a binding of its own as the manager does.
#[test]
fn a_binding_of_another_name_is_of_another_owner_and_one_of_another_role_is_replaced() {
    let binding = |name: &str| {
        json!({
            "metadata": {
                "name": name,
                "labels": {"app.kubernetes.io/managed-by": "liqo", "liqo.io/remote-cluster-id": "rome"},
            },
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "rome"}],
        })
    };
    let ours = "liqo-binding-liqo-virtual-kubelet-remote-clusterwide-rome";
    for (name, is_refused) in [("others", true), (ours, false)] {
        let (mut milan, nonce) = milan();
        milan.put::<ClusterRoleBinding>(binding(name));
        milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
        milan.run(2 * MOMENT);
        milan.sign(HOUR);
        milan.run(MOMENT);
        assert_eq!(milan.reasons().contains(&"ClusterIDInUse"), is_refused);
        let role = &milan.only::<ClusterRoleBinding>()["roleRef"]["name"];
        assert_eq!(role == "admin", is_refused, "{role}");
    }
}

#[test]
fn a_tenant_without_key_exchange_gets_no_certificate() {
    let (mut milan, _) = milan();
    let spec = json!({"clusterID": "rome", "authzPolicy": "TolerateNoHandshake"});
    milan.put_tenant("rome", &spec);
    milan.run(MOMENT);

    assert_eq!(
        milan.status("rome"),
        json!({"tenantNamespace": "liqo-tenant-rome"})
    );
    assert_eq!(milan.count::<CertificateSigningRequest>(), 0);
    assert_eq!(
        (
            milan.count::<RoleBinding>(),
            milan.count::<ClusterRoleBinding>()
        ),
        (0, 1)
    );
}

#[test]
fn an_identity_gets_a_kubeconfig_with_the_key_of_the_cluster() {
    let mut rome = Side::new("rome");
    rome.put_peer("milan");
    rome.put_identity("milan", "certificate");
    rome.run(MOMENT);

    let name = "kubeconfig-controlplane-milan";
    let text = rome.secret("milan", name, "kubeconfig").unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("https://192.0.2.2:6443"), "{text}");
    assert!(text.contains("namespace: liqo-tenant-rome"), "{text}");
    let secret = rome
        .object::<Secret>(&Key::new(tenant_namespace("milan"), name))
        .unwrap();
    assert_eq!(
        secret["metadata"]["labels"]["liqo.io/identity-type"],
        "ControlPlane"
    );
    let annotation = "liqo.io/remote-tenant-namespace";
    assert_eq!(
        secret["metadata"]["annotations"][annotation],
        "liqo-tenant-rome"
    );
    let identity = Key::new(tenant_namespace("milan"), "controlplane-milan");
    let identity = rome.object::<control_api::Identity>(&identity).unwrap();
    assert_eq!(identity["status"]["kubeconfigSecretRef"]["name"], name);
    assert!(rome.redundant().is_empty(), "{:?}", rome.redundant());
}

/// The leader may end at any step, and requests may be lost.
#[test]
fn authentication_converges_after_any_faults() {
    for seed in 0..20 {
        let mut milan = Side::with_seed("milan", seed);
        milan.put_peer("rome");
        milan.put_nonce("rome");
        milan.run_with_faults();
        let nonce = milan.secret("rome", "liqo-nonce", "nonce").unwrap();
        milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
        milan.run_with_faults();
        milan.sign(100 * HOUR);
        milan.run_with_faults();

        let signed = ByteString(certificate(&mut milan).unwrap());
        assert_eq!(
            milan.status("rome")["authParams"]["signedCRT"],
            json!(signed),
            "seed {seed}"
        );
        assert_eq!(milan.only::<RoleBinding>()["subjects"][0]["name"], "rome");
        assert_eq!(milan.count::<ClusterRoleBinding>(), 1);
        assert_eq!(milan.count::<CertificateSigningRequest>(), 0, "seed {seed}");

        milan.delete_tenant("rome");
        milan.run_with_faults();
        assert_eq!(
            (
                milan.count::<RoleBinding>(),
                milan.count::<ClusterRoleBinding>()
            ),
            (0, 0)
        );
        assert_eq!(milan.count::<control_api::Tenant>(), 0, "seed {seed}");
    }
}
