use super::{pod_key, rome};
use crate::side::{Side, kubeconfig};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use control_api::ShadowPod;
use control_runtime::Key;
use k8s_openapi::api::core::v1::Pod;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

#[test]
fn labels_follow_and_the_label_of_the_creator_stays() {
    let mut rome = rome(8);
    let key = Key::new("shop-rome", "web");
    let mut shadow = rome.shadow("web");
    shadow["metadata"]["labels"]["liqo.io/creator-user"] = json!("milan-a8");
    rome.provider().put::<ShadowPod>(shadow);
    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["metadata"]["labels"]["version"] = json!("2");
        pod["metadata"]["labels"]
            .as_object_mut()
            .unwrap()
            .remove("app");
        pod["metadata"]["annotations"] = json!({"note": "x"});
    });

    let metadata = rome.provider().get::<ShadowPod>(&key).unwrap()["metadata"].clone();
    assert_eq!(metadata["labels"]["version"], "2");
    assert_eq!(metadata["labels"]["app"], Value::Null);
    assert_eq!(metadata["labels"]["liqo.io/creator-user"], "milan-a8");
    assert_eq!(metadata["annotations"]["note"], "x");
}

#[test]
fn the_user_of_the_certificate_is_the_creator_of_shadow_pods() {
    let mut rome = Side::new(10);
    rome.content.set(Ok(with_certificate("milan-a8")));
    rome.simulation.replay();
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.pass();

    let mut shadow = rome.shadow("web");
    let labels = shadow["metadata"]["labels"].as_object_mut().unwrap();
    assert_eq!(
        labels.remove("liqo.io/creator-user"),
        Some(json!("milan-a8"))
    );

    // The provider has removed the label, because it enforces no resources.
    rome.provider().put::<ShadowPod>(shadow.clone());
    rome.pass();
    rome.simulation.replay();
    rome.pass();
    assert_eq!(
        rome.shadow("web")["metadata"]["labels"],
        shadow["metadata"]["labels"]
    );
}

/// Returns the kubeconfig of the provider with a client certificate of a user.
fn with_certificate(user: &str) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    let certificate = params.self_signed(&key).unwrap();
    let mut config: Value = serde_json::from_str(&kubeconfig("192.0.2.1")).unwrap();
    config["users"][0]["user"] = json!({
        "client-certificate-data": STANDARD.encode(certificate.pem()),
        "client-key-data": STANDARD.encode(key.serialize_pem()),
    });
    config.to_string()
}
