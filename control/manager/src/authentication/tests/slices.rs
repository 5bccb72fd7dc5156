//! ResourceSlices and Renews of a consumer, at the provider.

use super::side::{MOMENT, Side, tenant_namespace};
use super::{HOUR, ed25519, proof};
use control_api::{Identity, Renew, ResourceSlice, Tenant};
use control_credentials::{ClusterKey, Subject, request};
use control_runtime::Key;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};
use std::time::Duration;

pub(super) fn slice_key(name: &str) -> Key {
    Key::new(tenant_namespace("rome"), name)
}

/// Returns the replica of a ResourceSlice that `rome` requests with this key.
pub(super) fn slice(name: &str, key: &ClusterKey, resources: &Value) -> Value {
    let subject = Subject::resource_slice("rome", name);
    let csr = request::create(key, &subject).unwrap();
    json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": name,
            "namespace": tenant_namespace("rome"),
            "labels": {
                "liqo.io/originID": "rome",
                "liqo.io/remote-cluster-id": "rome",
                "liqo.io/remoteID": "milan",
                "liqo.io/replicated": "true",
                "liqo.io/replication": "false",
            },
        },
        "spec": {
            "class": "default",
            "consumerClusterID": "rome",
            "providerClusterID": "milan",
            "csr": ByteString(csr.into_bytes()),
            "resources": resources,
        },
    })
}

/// Returns `milan` with the Tenant of `rome`, whose certificate is issued.
pub(super) fn provider() -> (Side, Value) {
    let (mut milan, nonce) = super::milan();
    let spec = proof(&ed25519(1), &nonce);
    milan.put_tenant("rome", &spec);
    milan.run(2 * MOMENT);
    milan.sign(HOUR);
    milan.run(MOMENT);
    assert_eq!(milan.count::<RoleBinding>(), 1);

    (milan, spec)
}

pub(super) fn put_condition(milan: &mut Side, spec: &Value, condition: &str) {
    let mut spec = spec.clone();
    spec["tenantCondition"] = json!(condition);
    milan.put_tenant("rome", &spec);
    milan.run(MOMENT);
}

pub(super) fn put(milan: &mut Side, slice: &Value) {
    milan.put::<ResourceSlice>(slice.clone());
    milan.run(2 * MOMENT);
    milan.sign(HOUR);
    milan.run(2 * MOMENT);
}

pub(super) fn status(milan: &mut Side, name: &str) -> Value {
    milan.object::<ResourceSlice>(&slice_key(name)).unwrap()["status"].clone()
}

/// Returns status and reason of a condition.
pub(super) fn condition(status: &Value, type_: &str) -> (String, String) {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions
        .into_iter()
        .find(|it| it["type"] == type_)
        .unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn a_slice_gets_certificate_and_resources_in_one_status() {
    let (mut milan, _) = provider();
    milan.put::<StorageClass>(json!({
        "metadata": {
            "name": "standard",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
    }));
    let requested = slice(
        "milan",
        &ed25519(1),
        &json!({"cpu": "20", "nvidia.com/gpu": "1"}),
    );
    milan.put::<ResourceSlice>(requested);
    milan.run(2 * MOMENT);
    assert!(
        status(&mut milan, "milan").is_null(),
        "before the certificate is signed"
    );
    milan.sign(HOUR);
    milan.run(MOMENT);

    let status = status(&mut milan, "milan");
    assert_eq!(
        condition(&status, "Authentication"),
        pair("Accepted", "ResourceSliceAuthenticationAccepted")
    );
    assert_eq!(
        condition(&status, "Resources"),
        pair("Accepted", "ResourceSliceResourcesAccepted")
    );
    assert_eq!(
        status["resources"],
        json!({"cpu": "20", "memory": "8Gi", "nvidia.com/gpu": "1"})
    );
    assert_eq!(status["nodeLabels"], json!({"region": "B"}));
    assert_eq!(
        status["storageClasses"],
        json!([{"default": true, "storageClassName": "standard"}])
    );
    assert_eq!(status["authParams"]["apiServer"], "https://192.0.2.1:6443");
    let stored = milan.secret("rome", "liqo-remote-certificate-milan", "certificate");
    let issued: ByteString =
        serde_json::from_value(status["authParams"]["signedCRT"].clone()).unwrap();
    assert_eq!(stored, Some(issued.0));
    assert_eq!(milan.count::<CertificateSigningRequest>(), 0);
    assert!(milan.redundant().is_empty(), "{:?}", milan.redundant());
}

#[test]
fn a_slice_of_another_key_name_or_user_gets_no_certificate() {
    let (mut milan, _) = provider();
    put(&mut milan, &slice("other-key", &ed25519(2), &json!({})));
    let mut renamed = slice("name", &ed25519(1), &json!({}));
    renamed["metadata"]["name"] = json!("other-name");
    put(&mut milan, &renamed);
    let user = Subject::resource_slice("rome", "admin").common_name;
    milan.put_binding("admins", &user);
    put(&mut milan, &slice("admin", &ed25519(1), &json!({})));

    // No message for the consumer has a name of this cluster's objects.
    let parts = ["spec.csr: ", "spec.csr: ", "UserInUse, see the Events"];
    for (name, part) in ["other-key", "other-name", "admin"].into_iter().zip(parts) {
        let status = status(&mut milan, name);
        let message = status["conditions"][0]["message"].as_str().unwrap();
        assert!(message.contains(&format!("denied: {part}")), "{message}");
        assert_eq!(
            condition(&status, "Authentication"),
            pair("Denied", "ResourceSliceAuthenticationDenied"),
            "{name}"
        );
        assert!(status["authParams"].is_null());
    }
    assert_eq!(
        milan.creations::<CertificateSigningRequest>(),
        1,
        "that of the Tenant"
    );

    // A peer whose cluster ID is the user of a slice would have that slice's rights.
    put(&mut milan, &slice("milan", &ed25519(1), &json!({})));
    let user = Subject::resource_slice("rome", "milan").common_name;
    milan.put_peer(&user);
    milan.put_tenant(
        &user,
        &json!({"clusterID": user, "authzPolicy": "TolerateNoHandshake"}),
    );
    milan.run(MOMENT);
    assert!(milan.status(&user)["tenantNamespace"].is_null());
}

#[test]
fn slices_of_a_namespace_without_verified_tenant_or_of_another_consumer_are_left_alone() {
    let (mut milan, _) = provider();
    milan.put_peer("turin");
    let mut foreign = slice("milan", &ed25519(1), &json!({}));
    foreign["metadata"]["namespace"] = json!(tenant_namespace("turin"));
    milan.put::<ResourceSlice>(foreign);
    let mut other = slice("other", &ed25519(1), &json!({}));
    other["metadata"]["labels"]["liqo.io/originID"] = json!("turin");
    put(&mut milan, &other);

    assert!(status(&mut milan, "other").is_null());
    let key = Key::new(tenant_namespace("turin"), "milan");
    assert!(milan.object::<ResourceSlice>(&key).unwrap()["status"].is_null());
}

#[test]
fn requests_that_are_absurd_or_of_a_class_without_controller_are_denied() {
    let (mut milan, _) = provider();
    put(
        &mut milan,
        &slice("negative", &ed25519(1), &json!({"cpu": "-4"})),
    );
    let status_of = status(&mut milan, "negative");
    assert_eq!(
        condition(&status_of, "Resources"),
        pair("Denied", "ResourceSliceResourcesDenied")
    );
    assert!(status_of["resources"].is_null());
    assert!(status_of["authParams"]["signedCRT"].is_string());

    let mut gold = slice("gold", &ed25519(1), &json!({"cpu": "4"}));
    gold["spec"]["class"] = json!("gold");
    put(&mut milan, &gold);
    let first = status(&mut milan, "gold");
    assert_eq!(condition(&first, "Authentication").0, "Accepted");
    milan.run(Duration::from_secs(60));
    let denied = status(&mut milan, "gold");
    assert_eq!(condition(&denied, "Resources").0, "Denied");

    // The controller of the class decides after all.
    let mut decided = milan.object::<ResourceSlice>(&slice_key("gold")).unwrap();
    decided["status"]["resources"] = json!({"cpu": "1"});
    decided["status"]["conditions"][1]["status"] = json!("Accepted");
    decided["status"]["conditions"][1]["message"] = json!("granted by hand");
    milan.put::<ResourceSlice>(decided);
    milan.run(HOUR / 2);
    let status = status(&mut milan, "gold");
    assert_eq!(condition(&status, "Resources").0, "Accepted");
    assert_eq!(status["resources"], json!({"cpu": "1"}));
}

#[test]
fn a_cordoned_tenant_keeps_its_resources_and_gets_no_more() {
    let (mut milan, spec) = provider();
    put(&mut milan, &slice("old", &ed25519(1), &json!({"cpu": "4"})));
    put_condition(&mut milan, &spec, "Cordoned");
    let old = milan.object::<ResourceSlice>(&slice_key("old")).unwrap();
    assert_eq!(
        old["metadata"]["annotations"]["liqo.io/cordon-tenant"],
        "true"
    );

    put(
        &mut milan,
        &slice("old", &ed25519(1), &json!({"cpu": "400"})),
    );
    put(&mut milan, &slice("new", &ed25519(1), &json!({"cpu": "4"})));
    let (old, new) = (status(&mut milan, "old"), status(&mut milan, "new"));
    assert_eq!(condition(&old, "Resources").0, "Accepted");
    assert_eq!(old["resources"]["cpu"], "4");
    assert_eq!(condition(&new, "Resources").0, "Denied");
    assert_eq!(condition(&new, "Authentication").0, "Accepted");

    // Neither the Tenant that is applied again nor slices that are created again change the decision.
    milan.delete_tenant("rome");
    milan.run(MOMENT);
    milan.put_tenant(
        "rome",
        &json!({"clusterID": "rome", "authzPolicy": "TolerateNoHandshake"}),
    );
    milan.run(MOMENT);
    assert_eq!(
        milan.only::<Tenant>()["spec"]["tenantCondition"],
        "Cordoned"
    );
    put_condition(
        &mut milan,
        &json!({"clusterID": "rome", "authzPolicy": "TolerateNoHandshake"}),
        "Active",
    );
    put(&mut milan, &slice("new", &ed25519(1), &json!({"cpu": "4"})));
    assert_eq!(
        condition(&status(&mut milan, "new"), "Resources").0,
        "Accepted"
    );
    let new = milan.object::<ResourceSlice>(&slice_key("new")).unwrap();
    assert!(new["metadata"]["annotations"]["liqo.io/cordon-tenant"].is_null());
}

#[test]
fn the_cordon_of_a_slice_outlives_the_slice() {
    let (mut milan, _) = provider();
    put(&mut milan, &slice("milan", &ed25519(1), &json!({})));
    let mut cordoned = milan.object::<ResourceSlice>(&slice_key("milan")).unwrap();
    cordoned["metadata"]["annotations"] = json!({"liqo.io/cordon": "true"});
    milan.put::<ResourceSlice>(cordoned);
    milan.run(MOMENT);
    milan.remove::<ResourceSlice>(&slice_key("milan"));
    milan.run(MOMENT);
    put(&mut milan, &slice("milan", &ed25519(1), &json!({})));
    let again = milan.object::<ResourceSlice>(&slice_key("milan")).unwrap();
    assert_eq!(again["metadata"]["annotations"]["liqo.io/cordon"], "true");

    let mut uncordoned = again;
    uncordoned["metadata"]["annotations"] = json!({});
    milan.put::<ResourceSlice>(uncordoned);
    milan.run(MOMENT);
    let slice_now = milan.object::<ResourceSlice>(&slice_key("milan")).unwrap();
    assert!(slice_now["metadata"]["annotations"]["liqo.io/cordon"].is_null());
    let namespace = milan
        .object::<Namespace>(&Key::cluster(tenant_namespace("rome")))
        .unwrap();
    assert!(namespace["metadata"]["annotations"]["liqo.io/cordoned-resourceslices"].is_null());
}

#[test]
fn a_renew_has_the_credentials_of_the_tenant() {
    let (mut milan, _) = provider();
    let renew = |namespace: &str| {
        json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "Renew",
            "metadata": {
                "name": "controlplane-milan",
                "namespace": namespace,
                "labels": {"liqo.io/originID": "rome", "liqo.io/replicated": "true"},
            },
            "spec": {"consumerClusterID": "rome", "identityType": "ControlPlane"},
        })
    };
    milan.put_peer("turin");
    milan.put::<Renew>(renew(&tenant_namespace("rome")));
    milan.put::<Renew>(renew(&tenant_namespace("turin")));
    milan.run(MOMENT);
    let first = milan.status("rome")["authParams"].clone();
    let key = Key::new(tenant_namespace("rome"), "controlplane-milan");
    assert_eq!(
        milan.object::<Renew>(&key).unwrap()["status"]["authParams"],
        first
    );
    let other = Key::new(tenant_namespace("turin"), "controlplane-milan");
    assert!(milan.object::<Renew>(&other).unwrap()["status"].is_null());

    milan.run(HOUR);
    milan.sign(HOUR);
    milan.run(MOMENT);
    let renewed = milan.object::<Renew>(&key).unwrap()["status"]["authParams"].clone();
    assert_ne!(renewed, first);
    assert_eq!(renewed, milan.status("rome")["authParams"]);
}

#[test]
fn an_own_slice_is_completed_and_keeps_an_identity() {
    let mut rome = Side::new("rome");
    rome.put_peer("milan");
    let namespace = tenant_namespace("milan");
    rome.put::<ResourceSlice>(json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": "milan",
            "namespace": namespace,
            "labels": {"liqo.io/remote-cluster-id": "milan", "liqo.io/replication": "true"},
        },
        "spec": {"class": "default"},
    }));
    rome.run(MOMENT);
    let key = Key::new(namespace, "milan");
    let mut own = rome.object::<ResourceSlice>(&key).unwrap();
    let csr = own["spec"]["csr"].clone();
    assert!(csr.is_string());
    assert_eq!(own["spec"]["consumerClusterID"], "rome");
    assert_eq!(own["spec"]["providerClusterID"], "milan");

    // `liqoctl` writes the specification again, and the request is the same.
    own["spec"] = json!({"class": "default"});
    rome.put::<ResourceSlice>(own);
    rome.run(MOMENT);
    let mut own = rome.object::<ResourceSlice>(&key).unwrap();
    assert_eq!(own["spec"]["csr"], csr);
    own["spec"]["csr"] = json!(ByteString(b"of another key".to_vec()));
    let signed = rome.certificate("slice");
    own["status"] =
        json!({"authParams": {"apiServer": "https://192.0.2.2:6443", "signedCRT": signed}});
    rome.put::<ResourceSlice>(own);
    rome.run(2 * MOMENT);
    assert_eq!(
        rome.object::<ResourceSlice>(&key).unwrap()["spec"]["csr"],
        csr
    );

    let identity = rome.only::<Identity>();
    assert_eq!(identity["metadata"]["name"], "resourceslice-milan");
    assert_eq!(
        identity["metadata"]["labels"]["liqo.io/resourceslice-name"],
        "milan"
    );
    assert_eq!(identity["spec"]["authParams"]["signedCRT"], json!(signed));
    assert_eq!(identity["spec"]["type"], "ResourceSlice");
    assert_eq!(
        rome.count::<Renew>(),
        0,
        "its status returns the credentials"
    );
    assert!(
        rome.secret("milan", "kubeconfig-resourceslice-milan", "kubeconfig")
            .is_some()
    );

    // Without garbage collection, which a finalizer would delay.
    let mut own = rome.object::<ResourceSlice>(&key).unwrap();
    own["metadata"]["finalizers"] = json!(["liqo.io/test"]);
    rome.put::<ResourceSlice>(own);
    rome.remove::<ResourceSlice>(&key);
    rome.run(MOMENT);
    assert_eq!(rome.count::<Identity>(), 0);
    let secret = "kubeconfig-resourceslice-milan";
    assert!(rome.secret("milan", secret, "kubeconfig").is_none());
}

#[test]
fn certificates_of_so_short_a_lifetime_that_each_is_renewed_at_once_are_reported() {
    let (mut milan, nonce) = super::milan();
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));
    milan.run(2 * MOMENT);
    milan.sign(HOUR);
    milan.run(MOMENT);
    assert!(!milan.reasons().contains(&"ShortCertificateLifetime"));

    put(&mut milan, &slice("milan", &ed25519(1), &json!({})));
    assert!(!milan.reasons().contains(&"ShortCertificateLifetime"));
    milan.put::<ResourceSlice>(slice("short", &ed25519(1), &json!({})));
    milan.run(2 * MOMENT);
    milan.sign(Duration::from_secs(60));
    milan.run(MOMENT);
    assert!(milan.reasons().contains(&"ShortCertificateLifetime"));
    let requests = milan.creations::<CertificateSigningRequest>();
    milan.run(Duration::from_secs(60));
    assert!(
        milan.creations::<CertificateSigningRequest>() - requests <= 6,
        "no loop"
    );

    let short = |milan: &mut Side| milan.status("rome")["conditions"][0]["reason"].clone();
    assert!(short(&mut milan).is_null());
    milan.run(HOUR * 3 / 4);
    milan.sign(Duration::from_secs(60));
    milan.run(MOMENT);
    assert_eq!(short(&mut milan), "ShortCertificateLifetime");
}

#[test]
fn each_refusal_is_an_event() {
    let (mut milan, _) = provider();
    put(&mut milan, &slice("other-key", &ed25519(2), &json!({})));
    put(
        &mut milan,
        &slice("negative", &ed25519(1), &json!({"cpu": "-4"})),
    );
    let user = Subject::resource_slice("rome", "admin").common_name;
    milan.put_binding("admins", &user);
    put(&mut milan, &slice("admin", &ed25519(1), &json!({})));
    let reasons = milan.reasons();
    for reason in ["InvalidCSR", "ResourceSliceResourcesDenied", "UserInUse"] {
        assert!(reasons.contains(&reason), "{reason}: {reasons:?}");
    }
}

#[test]
fn the_renew_of_an_earlier_identity_is_replaced_and_its_credentials_are_not_used() {
    let mut rome = Side::new("rome");
    rome.put_peer("milan");
    let key = Key::new(tenant_namespace("milan"), "controlplane-milan");
    rome.put::<Renew>(json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "Renew",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "ownerReferences": [{
                "apiVersion": "authentication.liqo.io/v1beta1",
                "kind": "Identity",
                "name": key.name,
                "uid": "that of an earlier one",
            }],
        },
        "status": {"authParams": {"apiServer": "https://192.0.2.9:6443", "signedCRT": "b2xk"}},
    }));
    rome.put_identity("milan", "certificate");
    rome.run(2 * MOMENT);

    let identity = rome.object::<Identity>(&key).unwrap();
    assert_eq!(
        identity["spec"]["authParams"]["apiServer"],
        "https://192.0.2.2:6443"
    );
    let renew = rome.object::<Renew>(&key).unwrap();
    assert_eq!(
        renew["metadata"]["ownerReferences"][0]["uid"],
        identity["metadata"]["uid"]
    );
    assert!(renew["status"].is_null());
}
