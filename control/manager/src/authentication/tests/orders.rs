//! Plain manifests of a provider, applied in any order.

use super::side::{MOMENT, Side, tenant_namespace};
use super::slices::{condition, slice, slice_key};
use super::{HOUR, ed25519, proof};
use control_api::{Renew, ResourceSlice};
use control_runtime::Key;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use proptest::prelude::*;
use serde_json::json;
use std::time::Duration;

/// An object of the peering. The namespace precedes them, because the API server refuses objects without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manifest {
    /// That of the manager, which the networking controller creates.
    ManagerBinding,
    Node,
    /// A nonce that the user has chosen.
    Nonce,
    Tenant,
    Slice,
    Renew,
}

const MANIFESTS: [Manifest; 6] = [
    Manifest::ManagerBinding,
    Manifest::Node,
    Manifest::Nonce,
    Manifest::Tenant,
    Manifest::Slice,
    Manifest::Renew,
];

const NONCE: &[u8] = b"a nonce that the user has chosen, of any length";

fn apply(milan: &mut Side, manifest: Manifest) {
    match manifest {
        Manifest::ManagerBinding => milan.put_manager_binding("rome"),
        Manifest::Node => milan.put_control_plane(),
        Manifest::Nonce => {
            let data = json!({"nonce": ByteString(NONCE.to_vec())});
            milan.put_nonce_with("rome", &data);
        }
        Manifest::Tenant => milan.put_tenant("rome", &proof(&ed25519(1), NONCE)),
        Manifest::Slice => {
            let slice = slice("milan", &ed25519(1), &json!({"cpu": "2"}));
            milan.put::<ResourceSlice>(slice);
        }
        Manifest::Renew => milan.put::<Renew>(json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "Renew",
            "metadata": {
                "name": "controlplane-milan",
                "namespace": tenant_namespace("rome"),
                "labels": {"liqo.io/originID": "rome", "liqo.io/replicated": "true"},
            },
            "spec": {"consumerClusterID": "rome", "identityType": "ControlPlane"},
        })),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn manifests_of_a_provider_have_the_same_effect_in_any_order(
        seed in any::<u64>(),
        order in Just(MANIFESTS.to_vec()).prop_shuffle(),
        pauses in prop::collection::vec(0_u64..3000, MANIFESTS.len()),
        signs in prop::collection::vec(any::<bool>(), MANIFESTS.len()),
    ) {
        let mut milan = Side::with_seed("milan", seed);
        milan.remove_control_plane();
        milan.put_namespace("rome");
        for ((manifest, pause), signs) in order.iter().zip(pauses).zip(signs) {
            apply(&mut milan, *manifest);
            milan.run(Duration::from_millis(pause));
            if signs {
                milan.sign(HOUR);
            }
        }
        for _ in 0..3 {
            milan.run(2 * MOMENT);
            milan.sign(HOUR);
        }
        milan.run(2 * MOMENT);

        let status = milan.status("rome");
        prop_assert_eq!(&status["tenantNamespace"], "liqo-tenant-rome");
        prop_assert!(status["authParams"]["signedCRT"].is_string(), "{:?}: {}", milan.reasons(), status);
        prop_assert_eq!(milan.count::<RoleBinding>(), 1);
        prop_assert_eq!(milan.count::<ClusterRoleBinding>(), 1);
        let slice = milan.object::<ResourceSlice>(&slice_key("milan")).unwrap();
        for type_ in ["Authentication", "Resources"] {
            prop_assert_eq!(condition(&slice["status"], type_).0, "Accepted", "{}", slice);
        }
        let renew = Key::new(tenant_namespace("rome"), "controlplane-milan");
        let renew = milan.object::<Renew>(&renew).unwrap();
        prop_assert_eq!(&renew["status"]["authParams"], &status["authParams"]);
        prop_assert_eq!(milan.count::<CertificateSigningRequest>(), 0);
        prop_assert_eq!(milan.creations::<CertificateSigningRequest>(), 2);
    }
}
