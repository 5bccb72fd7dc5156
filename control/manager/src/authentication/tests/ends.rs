//! The end of a peering at the provider, and Tenants that are drained.

use super::side::{MOMENT, tenant_namespace};
use super::slices::{condition, provider, put, put_condition, slice, status};
use super::{HOUR, ed25519, proof};
use control_api::{NamespaceMap, ResourceSlice, Tenant};
use control_runtime::Key;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use serde_json::json;

#[test]
fn the_rights_of_a_consumer_end_with_its_tenant_and_while_it_is_drained() {
    let (mut milan, nonce) = super::milan();
    let spec = proof(&ed25519(1), &nonce);
    milan.put_tenant("rome", &spec);
    milan.run(2 * MOMENT);
    milan.sign(HOUR);
    milan.run(MOMENT);
    assert_eq!(
        (
            milan.count::<RoleBinding>(),
            milan.count::<ClusterRoleBinding>()
        ),
        (1, 1)
    );

    let mut drained = spec.clone();
    drained["tenantCondition"] = json!("Drained");
    milan.put_tenant("rome", &drained);
    milan.run(MOMENT);
    assert_eq!(
        (
            milan.count::<RoleBinding>(),
            milan.count::<ClusterRoleBinding>()
        ),
        (0, 0)
    );
    // `liqoctl peer` of the consumer omits the condition, and so does not change the provider's decision.
    milan.put_tenant("rome", &spec);
    milan.run(MOMENT);
    assert_eq!(milan.only::<Tenant>()["spec"]["tenantCondition"], "Drained");
    assert_eq!(milan.count::<RoleBinding>(), 0);
    let mut active = spec.clone();
    active["tenantCondition"] = json!("Active");
    milan.put_tenant("rome", &active);
    milan.run(MOMENT);
    assert_eq!(
        (
            milan.count::<RoleBinding>(),
            milan.count::<ClusterRoleBinding>()
        ),
        (1, 1)
    );

    milan.delete_tenant("rome");
    milan.run(MOMENT);
    assert_eq!(
        (
            milan.count::<RoleBinding>(),
            milan.count::<ClusterRoleBinding>()
        ),
        (0, 0)
    );
    assert_eq!(
        milan.count::<control_api::Tenant>(),
        0,
        "the finalizer is removed"
    );
}

/// A manager that starts again knows the Tenant before the Secrets of the tenant namespace.
#[test]
fn a_manager_that_is_killed_while_a_tenant_ends_leaves_no_secret() {
    for seed in 0..20 {
        let (mut milan, nonce) = super::milan_with_seed(seed);
        milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
        milan.run(2 * MOMENT);
        milan.sign(HOUR);
        milan.run(MOMENT);
        assert!(milan.secret("rome", "liqo-nonce", "nonce").is_some());

        milan.delete_tenant("rome");
        milan.run_with_faults();
        assert_eq!(milan.count::<Tenant>(), 0, "seed {seed}");
        for name in ["liqo-nonce", "liqo-remote-certificate"] {
            let left = milan.object::<Secret>(&Key::new(tenant_namespace("rome"), name));
            assert_eq!(left, None, "seed {seed}");
        }
    }
}

/// The certificate that the consumer has requested may never be signed.
#[test]
fn a_tenant_that_ends_before_its_certificate_is_signed_leaves_no_request() {
    let (mut milan, nonce) = super::milan();
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(2 * MOMENT);
    assert_eq!(milan.count::<CertificateSigningRequest>(), 1);
    milan.delete_tenant("rome");
    milan.run(MOMENT);
    assert_eq!(milan.count::<Tenant>(), 0);
    assert_eq!(milan.count::<CertificateSigningRequest>(), 0);
}

#[test]
fn a_drained_tenant_loses_its_rights_and_objects_and_a_deleted_one_its_certificates() {
    let (mut milan, spec) = provider();
    let map = json!({
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "NamespaceMap",
        "metadata": {
            "name": "rome",
            "namespace": tenant_namespace("rome"),
            "labels": {"liqo.io/originID": "rome", "liqo.io/replicated": "true"},
        },
    });
    put(&mut milan, &slice("milan", &ed25519(1), &json!({})));
    milan.put::<NamespaceMap>(map);
    let mut own = slice("own", &ed25519(1), &json!({}));
    own["metadata"]["labels"] = json!({"liqo.io/replication": "true", "liqo.io/remoteID": "rome"});
    milan.put::<ResourceSlice>(own);
    put_condition(&mut milan, &spec, "Drained");
    assert_eq!(
        milan.count::<RoleBinding>() + milan.count::<ClusterRoleBinding>(),
        0
    );
    assert_eq!(milan.count::<NamespaceMap>(), 0);
    assert_eq!(milan.only::<ResourceSlice>()["metadata"]["name"], "own");

    put_condition(&mut milan, &spec, "Active");
    assert_eq!(milan.count::<RoleBinding>(), 1);
    put(&mut milan, &slice("milan", &ed25519(1), &json!({})));
    assert_eq!(
        condition(&status(&mut milan, "milan"), "Resources").0,
        "Accepted"
    );
    milan.delete_tenant("rome");
    milan.run(2 * MOMENT);
    assert_eq!(milan.count::<Tenant>(), 0);
    assert_eq!(milan.count::<CertificateSigningRequest>(), 0);
    assert_eq!(milan.only::<ResourceSlice>()["metadata"]["name"], "own");
    let names: Vec<_> = milan
        .objects::<Secret>()
        .iter()
        .map(|it| it["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["authentication-keys"]);
}

#[test]
fn a_tenant_ends_although_its_namespace_is_emptied_and_the_secrets_are_not_readable_any_more() {
    let (mut milan, _) = provider();
    let role = Key::new(tenant_namespace("rome"), "liqo-controller-manager-tenant");
    milan.remove::<RoleBinding>(&role);
    milan.run(MOMENT);
    milan.delete_tenant("rome");
    milan.run(MOMENT);

    assert_eq!(milan.count::<Tenant>(), 0);
    assert_eq!(milan.count::<ClusterRoleBinding>(), 0);
}
