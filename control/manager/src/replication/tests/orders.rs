//! Plain manifests of a consumer, applied in any order.

use super::peering::{LOCAL, MOMENT, Peering, kubeconfig_of, local, milan};
use control_api::{Identity, ResourceSlice};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

/// An object of the peering. The namespace precedes them, because the API server refuses objects without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manifest {
    /// That of the manager, which the networking controller creates.
    ManagerBinding,
    /// The user's kubeconfig Secret, without Identity.
    Kubeconfig,
    /// The nonce of the provider, to be signed.
    SignedNonce,
    Slice,
    /// Another slice at the same provider.
    OtherSlice,
}

const MANIFESTS: [Manifest; 5] = [
    Manifest::ManagerBinding,
    Manifest::Kubeconfig,
    Manifest::SignedNonce,
    Manifest::Slice,
    Manifest::OtherSlice,
];

fn apply(peering: &mut Peering, manifest: Manifest) {
    match manifest {
        Manifest::ManagerBinding => peering.put_rights(),
        Manifest::Kubeconfig => peering.put_credentials(&kubeconfig_of("https://192.0.2.1:6443")),
        Manifest::SignedNonce => peering.simulation.local().put::<Secret>(json!({
            "metadata": {
                "name": "liqo-signed-nonce",
                "namespace": LOCAL,
                "labels": {"liqo.io/remote-cluster-id": "milan", "liqo.io/signed-nonce": "true"},
            },
            "data": {"nonce": ByteString(b"nonce".to_vec())},
        })),
        Manifest::Slice => peering.put_slice("milan", "2"),
        Manifest::OtherSlice => peering.put_slice("more", "1"),
    }
}

/// Grants a slice with a certificate, as a provider does.
fn grant(peering: &mut Peering, name: &str) {
    peering.grant(name);
    let key = super::remote(name);
    let issued = super::identities(peering)(name);
    let server = peering.simulation.cluster(&milan());
    let mut replica = server.get::<ResourceSlice>(&key).unwrap().clone();
    replica["status"]["authParams"] = issued["spec"]["authParams"].clone();
    server.put::<ResourceSlice>(replica);
}

fn own(peering: &mut Peering, secret: &str) -> Option<Value> {
    peering
        .simulation
        .local()
        .get::<Secret>(&local(secret))
        .cloned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn manifests_of_a_consumer_have_the_same_effect_in_any_order(
        seed in any::<u64>(),
        order in Just(MANIFESTS.to_vec()).prop_shuffle(),
        pauses in prop::collection::vec(0_u64..3000, MANIFESTS.len()),
        crash in 0..MANIFESTS.len(),
    ) {
        let mut peering = Peering::without_rights(seed);
        for (step, (manifest, pause)) in order.iter().zip(pauses).enumerate() {
            apply(&mut peering, *manifest);
            peering.run(Duration::from_millis(pause));
            if step == crash {
                peering.simulation.crash(0);
            }
        }
        peering.run(5 * MOMENT);

        for name in ["milan", "more"] {
            let slice = peering.slice(name).unwrap();
            let replica = peering.replica(name);
            prop_assert!(replica.is_some(), "{}", slice);
            prop_assert!(slice["spec"]["csr"].is_string());
            prop_assert_eq!(&replica.unwrap()["spec"], &slice["spec"]);
            grant(&mut peering, name);
        }
        peering.run(MOMENT);
        for (name, cpu) in [("milan", "2"), ("more", "1")] {
            let slice = peering.slice(name).unwrap();
            prop_assert_eq!(&slice["status"]["resources"]["cpu"], cpu);
            let identity = local(&format!("resourceslice-{name}"));
            let identity = peering.simulation.local().get::<Identity>(&identity).cloned();
            prop_assert!(identity.is_some(), "{}", slice);
            let secret = own(&mut peering, &format!("kubeconfig-resourceslice-{name}"));
            prop_assert!(secret.unwrap()["data"]["kubeconfig"].is_string());
        }
        let signed = own(&mut peering, "liqo-signed-nonce").unwrap();
        prop_assert!(signed["data"]["signedNonce"].is_string());
    }

    /// Nothing works before the cluster ID is known, and everything after.
    #[test]
    fn the_cluster_id_may_come_last(seed in any::<u64>()) {
        let mut peering = Peering::without_rights(seed);
        let id = control_runtime::Key::new("liqo", "id");
        let map = peering.simulation.local().get::<ConfigMap>(&id).unwrap().clone();
        peering.simulation.local().remove::<ConfigMap>(&id);
        for manifest in MANIFESTS {
            apply(&mut peering, manifest);
        }
        peering.run(MOMENT);
        prop_assert!(peering.replica("milan").is_none());
        peering.simulation.local().put::<ConfigMap>(map);
        peering.run(5 * MOMENT);
        prop_assert!(peering.replica("milan").is_some());
    }
}
