//! A provider on Amazon's EKS, where upstream issues credentials of an IAM user instead of a certificate.

use super::identities;
use super::peering::{MOMENT, Peering, local};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use control_api::Identity;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The Identity of the control plane, with the credentials that upstream's provider issues.
fn identity(peering: &mut Peering, authority: &str, aws: &Value) -> Value {
    let mut identity = identities(peering)("first");
    // Amazon's API returns the authority in Base64, and upstream encodes that once more.
    let ca = ByteString(STANDARD.encode(authority).into_bytes());
    identity["spec"]["authParams"] = json!({
        "apiServer": "https://192.0.2.1",
        "ca": ca,
        "awsConfig": aws,
    });
    identity
}

fn secret(peering: &mut Peering) -> BTreeMap<String, String> {
    let key = local("kubeconfig-controlplane-milan");
    let secret = peering.simulation.local().get::<Secret>(&key).unwrap();
    let data: BTreeMap<String, ByteString> =
        serde_json::from_value(secret["data"].clone()).unwrap();
    let text = |value: ByteString| String::from_utf8(value.0).unwrap();

    data.into_iter()
        .map(|(name, value)| (name, text(value)))
        .collect()
}

#[test]
fn the_secret_has_the_credentials_of_the_iam_user_and_not_the_key_of_this_cluster() {
    let mut peering = Peering::new(31);
    peering.run(MOMENT);
    let authority = CertificateParams::default()
        .self_signed(&KeyPair::generate().unwrap())
        .unwrap()
        .pem();
    let mut aws = json!({
        "awsAccessKeyID": "AKIDEXAMPLE",
        "awsSecretAccessKey": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        "awsRegion": "eu-west-1",
        "awsClusterName": "milan",
        "awsUserArn": "arn:aws:iam::123456789012:user/rome",
    });
    let identity = self::identity(&mut peering, &authority, &aws);
    peering.simulation.local().put::<Identity>(identity);
    peering.run(MOMENT);

    let mut data = secret(&mut peering);
    let kubeconfig = data.remove("kubeconfig").unwrap();
    assert!(kubeconfig.ends_with("  user: {}\n"), "{kubeconfig}");
    assert!(
        kubeconfig.contains(&STANDARD.encode(&authority)),
        "{kubeconfig}"
    );
    let expected = [
        ("awsAccessKeyID", "AKIDEXAMPLE"),
        ("awsEksClusterID", "milan"),
        ("awsIamUserArn", "arn:aws:iam::123456789012:user/rome"),
        ("awsRegion", "eu-west-1"),
        (
            "awsSecretAccessKey",
            "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        ),
    ];
    assert!(
        data.iter()
            .map(|(name, value)| (&**name, &**value))
            .eq(expected)
    );
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    assert!(peering.replica("milan").is_some());

    // Fields that could change the host of the URL are refused, and the Secret stays.
    aws["awsRegion"] = json!("example.org/");
    let identity = self::identity(&mut peering, &authority, &aws);
    peering.simulation.local().put::<Identity>(identity);
    peering.run(MOMENT);
    assert_eq!(secret(&mut peering)["awsRegion"], "eu-west-1");
    let events = peering.simulation.events(0);
    let event = events.iter().find(|it| it.reason == "InvalidIdentity");
    let note = &event.unwrap().note;
    assert!(
        note.contains("spec.authParams.awsConfig: awsRegion is invalid"),
        "{note}"
    );
    assert!(!events.iter().any(|it| it.note.contains("wJalr")));
}
