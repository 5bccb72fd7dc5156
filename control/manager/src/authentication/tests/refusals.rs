//! Conditions of Tenants that are refused, and labels that users leave out.

use super::side::{MOMENT, Side, tenant_namespace};
use super::slices::{self, provider, put, slice};
use super::{HOUR, ed25519, milan, proof};
use control_api::{Identity, ResourceSlice, Tenant};
use control_runtime::Key;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use serde_json::{Value, json};
use std::time::Duration;

/// Returns status, reason and message of the only condition of the Tenant of a peer.
fn condition(side: &mut Side, peer: &str) -> (String, String, String) {
    let conditions = side.status(peer)["conditions"].clone();
    let conditions = conditions.as_array().cloned().unwrap_or_default();
    assert_eq!(conditions.len(), 1, "{conditions:?}");
    assert_eq!(conditions[0]["type"], "Ready");
    let text = |field: &str| conditions[0][field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

#[test]
fn a_signer_that_does_not_sign_within_30_s_is_a_condition_that_names_the_alternative() {
    let (mut milan, nonce) = milan();
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(MOMENT);
    // The API server in memory does not date objects.
    let mut csr = milan.only::<CertificateSigningRequest>();
    csr["metadata"]["creationTimestamp"] = json!(milan.time());
    milan.put::<CertificateSigningRequest>(csr);
    milan.run(Duration::from_secs(20));
    assert!(milan.status("rome").is_null());
    milan.run(Duration::from_secs(15));

    let (status, reason, message) = condition(&mut milan, "rome");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "SignerTimeout")
    );
    for part in [
        "kubernetes.io/kube-apiserver-client",
        "30 s",
        "TolerateNoHandshake",
        "kubeconfig",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(milan.reasons().contains(&"SignerTimeout"));
    assert!(milan.status("rome")["tenantNamespace"].is_null());
    assert!(milan.redundant().is_empty(), "{:?}", milan.redundant());

    milan.sign(HOUR);
    milan.run(MOMENT);
    let status = milan.status("rome");
    assert!(
        status["conditions"].is_null() && status["authParams"].is_object(),
        "{status}"
    );
}

#[test]
fn a_refused_tenant_keeps_what_it_has_and_its_condition_ends_with_the_cause() {
    let (mut milan, spec) = provider();
    let before = milan.status("rome");
    let mut other = spec.clone();
    other["csr"] = proof(&ed25519(2), b"")["csr"].clone();
    milan.put_tenant("rome", &other);
    milan.run(MOMENT);
    assert_eq!(condition(&mut milan, "rome").1, "InvalidCSR");
    let mut refused = milan.status("rome");
    refused.as_object_mut().unwrap().remove("conditions");
    assert_eq!(refused, before);

    milan.put_tenant("rome", &spec);
    milan.run(MOMENT);
    assert_eq!(milan.status("rome"), before);
}

/// `liqoctl cordon tenant` selects a Tenant by its name only.
#[test]
fn one_tenant_has_a_name_and_one_a_consumer() {
    let (mut milan, _) = provider();
    milan.put_peer("turin");
    let spec = json!({"clusterID": "turin", "authzPolicy": "TolerateNoHandshake"});
    milan.put::<Tenant>(json!({
        "metadata": {"name": "rome", "namespace": tenant_namespace("turin")},
        "spec": spec,
    }));
    milan.run(MOMENT);
    let key = Key::new(tenant_namespace("turin"), "rome");
    let younger = milan.object::<Tenant>(&key).unwrap();
    assert_eq!(
        younger["status"]["conditions"][0]["reason"],
        "DuplicateTenant"
    );
    assert_eq!(milan.count::<ClusterRoleBinding>(), 1);

    // The condition ends with the older Tenant.
    milan.delete_tenant("rome");
    milan.run(2 * MOMENT);
    let younger = milan.object::<Tenant>(&key).unwrap();
    assert_eq!(
        younger["status"],
        json!({"tenantNamespace": tenant_namespace("turin")})
    );
}

#[test]
fn a_renewal_that_is_not_signed_is_a_condition_and_the_certificate_stays() {
    let (mut milan, nonce) = milan();
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(2 * MOMENT);
    milan.sign(HOUR);
    milan.run(MOMENT);
    let issued = milan.status("rome");
    assert!(issued["authParams"]["signedCRT"].is_string(), "{issued}");
    assert!(issued["conditions"].is_null(), "{issued}");

    milan.run(HOUR * 3 / 4);
    assert_eq!(milan.count::<CertificateSigningRequest>(), 1);
    let status = milan.status("rome");
    assert_eq!(status["authParams"], issued["authParams"]);
    let condition = &status["conditions"][0];
    assert_eq!(condition["type"], "CertificateRenewal");
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "SignerTimeout");
    assert!(milan.reasons().contains(&"SignerTimeout"));

    milan.sign(HOUR);
    milan.run(MOMENT);
    let status = milan.status("rome");
    assert_ne!(status["authParams"], issued["authParams"]);
    assert!(status["conditions"].is_null(), "{status}");
}

/// The certificate of a ResourceSlice names the group of the consumer, too.
#[test]
fn certificates_are_not_renewed_for_a_cluster_id_that_has_other_rights() {
    let (mut milan, _) = provider();
    put(&mut milan, &slice("milan", &ed25519(1), &json!({})));
    let before = milan.creations::<CertificateSigningRequest>();
    milan.put_binding("others", "rome");
    milan.run(HOUR * 3 / 4);
    assert_eq!(milan.creations::<CertificateSigningRequest>(), before);
    assert!(milan.reasons().contains(&"ClusterIDInUse"));
    let key = Key::new(tenant_namespace("rome"), "milan");
    let slice = milan.object::<ResourceSlice>(&key).unwrap();
    assert!(slice["status"]["authParams"]["signedCRT"].is_string());
}

/// The namespaces of the consumer have RoleBindings for it.
#[test]
fn a_consumer_with_namespaces_gets_further_slices_and_its_certificates_are_renewed() {
    let role = "liqo-virtual-kubelet-remote";
    for (name, kind, role, is_accepted) in [
        ("liqo-tenant-rome", "ClusterRole", role, true),
        ("liqo-tenant-rome", "ClusterRole", "admin", false),
        ("liqo-tenant-rome", "Role", role, false),
        ("others", "ClusterRole", role, false),
    ] {
        let (mut milan, _) = provider();
        put(&mut milan, &slice("milan", &ed25519(1), &json!({})));
        milan.put::<RoleBinding>(json!({
            "metadata": {
                "name": name,
                "namespace": "shop-rome",
                "labels": {"app.kubernetes.io/managed-by": "liqo", "liqo.io/remote-cluster-id": "rome"},
            },
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "rome"}],
        }));

        put(&mut milan, &slice("further", &ed25519(1), &json!({})));

        let further = slices::status(&mut milan, "further");
        let (further, _) = slices::condition(&further, "Authentication");
        assert_eq!(
            further == "Accepted",
            is_accepted,
            "{name}, {kind} {role}: {further}"
        );
        let before = milan.creations::<CertificateSigningRequest>();
        milan.run(HOUR * 3 / 4);
        let renewals = milan.creations::<CertificateSigningRequest>() - before;
        assert_eq!(
            renewals > 0,
            is_accepted,
            "{name}, {kind} {role}: {renewals}"
        );
        assert_eq!(milan.reasons().contains(&"ClusterIDInUse"), !is_accepted);
    }
}

/// Kinds that an administrator grants to one consumer, and those that the chart grants to all.
#[test]
fn further_rights_in_the_namespaces_of_the_consumer_do_not_refuse_its_certificates() {
    let remote = "liqo-virtual-kubelet-remote";
    for (namespace, name, kind, is_accepted) in [
        (
            "shop-rome",
            "liqo-virtual-kubelet-remote-extra",
            "ClusterRole",
            true,
        ),
        ("shop-rome", "certificates-of-rome", "Role", true),
        ("shop", "certificates-of-rome", "Role", false),
    ] {
        let (mut milan, _) = provider();
        let binding = |namespace: &str, name: &str, kind: &str, role: &str| {
            json!({
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": {"app.kubernetes.io/managed-by": "liqo", "liqo.io/remote-cluster-id": "rome"},
                },
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "rome"}],
            })
        };
        let own = binding("shop-rome", "liqo-tenant-rome", "ClusterRole", remote);
        milan.put::<RoleBinding>(own);
        milan.put::<RoleBinding>(binding(namespace, name, kind, name));

        put(&mut milan, &slice("milan", &ed25519(1), &json!({})));

        let status = slices::status(&mut milan, "milan");
        let (authentication, _) = slices::condition(&status, "Authentication");
        assert_eq!(
            authentication == "Accepted",
            is_accepted,
            "{namespace}/{name}: {status}"
        );
    }
}

#[test]
fn a_nonce_that_only_a_refused_tenant_names_expires() {
    let (mut milan, nonce) = milan();
    let mut spec = proof(&ed25519(1), &nonce);
    spec["signature"] = json!("AAAA");
    milan.put_tenant("rome", &spec);
    milan.run(HOUR);
    assert!(milan.secret("rome", "liqo-nonce", "nonce").is_some());
    milan.run(7 * HOUR);
    assert!(milan.secret("rome", "liqo-nonce", "nonce").is_none());
    assert!(milan.reasons().contains(&"NonceExpired"));
}

#[test]
fn missing_labels_of_the_peer_are_added() {
    let (mut milan, _) = provider();
    let label = |object: &Value| object["metadata"]["labels"]["liqo.io/remote-cluster-id"].clone();
    assert_eq!(label(&milan.only::<Tenant>()), "rome");

    let mut rome = Side::new("rome");
    rome.put_peer("milan");
    rome.put_identity("milan", "certificate");
    rome.put::<ResourceSlice>(json!({
        "metadata": {"name": "milan", "namespace": tenant_namespace("milan")},
        "spec": {"class": "default"},
    }));
    rome.run(2 * MOMENT);
    assert_eq!(label(&rome.only::<Identity>()), "milan");
    assert_eq!(label(&rome.only::<ResourceSlice>()), "milan");
    assert!(rome.redundant().is_empty(), "{:?}", rome.redundant());
}
