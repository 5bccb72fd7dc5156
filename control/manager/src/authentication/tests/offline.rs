//! A peering whose clusters never reach each other: users carry nonce, Tenant and Identity, and take days for it.

use super::side::{MOMENT, Side, tenant_namespace};
use super::slices::condition;
use super::{HOUR, proof};
use control_api::{Identity, ResourceSlice};
use control_credentials::ClusterKey;
use control_runtime::Key;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Lifetime of an unused nonce, as by default.
const NONCE_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The consumer `rome` and the provider `milan`, between which no request is sent.
struct Pair {
    rome: Side,
    milan: Side,
    days: usize,
}

impl Pair {
    fn new() -> Self {
        let mut rome = Side::with_nonce_ttl("rome", 3, NONCE_TTL);
        let mut milan = Side::with_nonce_ttl("milan", 4, NONCE_TTL);
        rome.put_peer("milan");
        milan.put_peer("rome");
        Self {
            rome,
            milan,
            days: 0,
        }
    }

    /// A day passes, in which another replica of both managers becomes the leader.
    fn pass_day(&mut self) {
        self.days += 1;
        for side in [&mut self.rome, &mut self.milan] {
            side.run(DAY / 2);
            side.lead(self.days % 2);
            side.run(DAY / 2);
        }
    }

    /// Returns the nonce, as `liqoctl get nonce` does.
    fn nonce(&mut self) -> Option<Vec<u8>> {
        self.milan.secret("rome", "liqo-nonce", "nonce")
    }

    /// Returns the Tenant, as `liqoctl generate tenant` does.
    fn tenant(&mut self, nonce: &[u8]) -> Value {
        let key = self
            .rome
            .secret_in("liqo", "authentication-keys", "privateKey");
        let key = ClusterKey::from_pem(&key.unwrap()).unwrap();
        proof(&key, nonce)
    }

    /// Issues the certificates that were requested.
    fn sign(&mut self) {
        self.milan.run(MOMENT);
        self.milan.sign(YEAR);
        self.milan.run(2 * MOMENT);
    }

    /// Carries a ResourceSlice of `rome` to `milan`.
    fn carry_slice(&mut self) {
        let own = Key::new(tenant_namespace("milan"), "milan");
        let own = self.rome.object::<ResourceSlice>(&own).unwrap();
        let mut replica = own.clone();
        replica["metadata"] = json!({
            "name": "milan",
            "namespace": tenant_namespace("rome"),
            "labels": {"liqo.io/originID": "rome", "liqo.io/remote-cluster-id": "rome", "liqo.io/replicated": "true"},
        });
        self.milan.put::<ResourceSlice>(replica);
    }
}

#[test]
fn a_day_may_pass_between_each_two_steps_of_a_peering_by_files() {
    let mut pair = Pair::new();
    pair.milan.put_nonce("rome");
    pair.pass_day();
    let nonce = pair.nonce().unwrap();
    pair.pass_day();
    let tenant = pair.tenant(&nonce);
    pair.pass_day();
    pair.milan.put_tenant("rome", &tenant);
    pair.sign();
    pair.pass_day();
    let status = pair.milan.status("rome");
    let certificate: ByteString =
        serde_json::from_value(status["authParams"]["signedCRT"].clone()).unwrap();
    pair.pass_day();
    pair.rome.put_issued("milan", &certificate);
    pair.pass_day();
    let secret = "kubeconfig-controlplane-milan";
    assert!(pair.rome.secret("milan", secret, "kubeconfig").is_some());

    pair.rome.put::<ResourceSlice>(json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {"name": "milan", "namespace": tenant_namespace("milan")},
        "spec": {"class": "default"},
    }));
    pair.pass_day();
    pair.carry_slice();
    pair.sign();
    pair.pass_day();
    let replica = Key::new(tenant_namespace("rome"), "milan");
    let replica = pair.milan.object::<ResourceSlice>(&replica).unwrap();
    for type_ in ["Authentication", "Resources"] {
        assert_eq!(condition(&replica["status"], type_).0, "Accepted");
    }
    let own = Key::new(tenant_namespace("milan"), "milan");
    let mut own = pair.rome.object::<ResourceSlice>(&own).unwrap();
    own["status"] = replica["status"].clone();
    pair.rome.put::<ResourceSlice>(own);
    pair.pass_day();
    let secret = "kubeconfig-resourceslice-milan";
    assert!(pair.rome.secret("milan", secret, "kubeconfig").is_some());
    let identity = Key::new(tenant_namespace("milan"), "resourceslice-milan");
    assert!(pair.rome.object::<Identity>(&identity).is_some());

    // The nonce that a Tenant has used does not expire, and the same Tenant may be applied again.
    for _ in 0..8 {
        pair.pass_day();
    }
    pair.milan.put_tenant("rome", &tenant);
    pair.milan.run(MOMENT);
    assert_eq!(pair.milan.status("rome"), status);
}

#[test]
fn a_nonce_that_has_expired_on_the_way_is_replaced_by_another_one() {
    let mut pair = Pair::new();
    pair.milan.put_nonce("rome");
    pair.pass_day();
    let nonce = pair.nonce().unwrap();
    let late = pair.tenant(&nonce);
    for _ in 0..7 {
        pair.pass_day();
    }
    assert_eq!(pair.nonce(), None);
    assert!(pair.milan.reasons().contains(&"NonceExpired"));
    pair.milan.put_tenant("rome", &late);
    pair.sign();
    assert!(pair.milan.reasons().contains(&"NonceNotFound"));
    assert_eq!(pair.milan.status("rome")["authParams"], Value::Null);

    // The Tenant waits for a nonce, and its signature is of the earlier one.
    pair.milan.put_nonce("rome");
    pair.sign();
    assert!(
        pair.milan
            .reasons()
            .contains(&"SignatureVerificationFailed")
    );
    assert_eq!(pair.milan.status("rome")["authParams"], Value::Null);
    let nonce = pair.nonce().unwrap();
    let tenant = pair.tenant(&nonce);
    pair.milan.put_tenant("rome", &tenant);
    pair.sign();
    assert!(pair.milan.status("rome")["authParams"]["signedCRT"].is_string());
}

/// Upstream's `liqoctl` stores the nonce at the consumer, and its user applies the Identity later.
#[test]
fn a_signed_nonce_waits_for_the_identity_for_any_time() {
    let mut pair = Pair::new();
    pair.rome.put_signed_nonce("milan", b"nonce");
    for _ in 0..9 {
        pair.pass_day();
    }
    let signature = pair
        .rome
        .secret("milan", "liqo-signed-nonce", "signedNonce");
    assert!(signature.is_some());
    pair.rome.put_identity("milan", "certificate");
    pair.rome.run(HOUR);
    let key = Key::new(tenant_namespace("milan"), "liqo-signed-nonce");
    assert!(pair.rome.object::<Secret>(&key).is_none());
}
