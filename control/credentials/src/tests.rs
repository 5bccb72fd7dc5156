//! Compares with known answers: `known/` has keys, requests and signatures that Go's crypto/x509 made, with which
//! upstream makes its own: `x509.CreateCertificateRequest` with a template that has a subject only, `ed25519.Sign`,
//! `rsa.SignPKCS1v15` and `ecdsa.SignASN1`. The nonce is that of 64 zero bytes. `known/upstream.*` are the public key
//! and the requests of a cluster that ran upstream v1.2; its private key is not known.

use super::*;
use proptest::prelude::*;

struct Known {
    name: &'static str,
    key: &'static str,
    public: &'static str,
    control_plane: &'static str,
    slice: &'static str,
    signature: &'static str,
}

macro_rules! known {
    ($name:literal) => {
        Known {
            name: $name,
            key: include_str!(concat!("../known/", $name, ".key.pem")),
            public: include_str!(concat!("../known/", $name, ".public.pem")),
            control_plane: include_str!(concat!("../known/", $name, ".control-plane.csr.pem")),
            slice: include_str!(concat!("../known/", $name, ".slice.csr.pem")),
            signature: include_str!(concat!("../known/", $name, ".signature.txt")),
        }
    };
}

/// Keys whose signatures depend on key and message only.
const DETERMINISTIC: [Known; 2] = [known!("ed25519"), known!("rsa")];
const RANDOM: [Known; 2] = [known!("ecdsa-p256"), known!("ecdsa-p384")];

impl Known {
    fn public(&self) -> PublicKey {
        PublicKey::from_bytes(self.public.as_bytes()).unwrap()
    }

    fn signature(&self) -> Vec<u8> {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD
            .decode(self.signature.trim())
            .unwrap()
    }
}

fn zero_nonce() -> String {
    nonce([[0; 32]; 2])
}

fn subjects() -> [Subject; 2] {
    [
        Subject::control_plane("rome"),
        Subject::resource_slice("rome", "milan"),
    ]
}

#[test]
fn requests_and_signatures_have_the_bytes_of_upstream() {
    for known in &DETERMINISTIC {
        let key = ClusterKey::from_pem(known.key.as_bytes()).unwrap();
        let [control_plane, slice] = subjects();

        assert_eq!(key.public_key().to_pem(), known.public, "{}", known.name);
        assert_eq!(
            request::create(&key, &control_plane).unwrap(),
            known.control_plane
        );
        assert_eq!(request::create(&key, &slice).unwrap(), known.slice);
        assert_eq!(
            key.sign(zero_nonce().as_bytes()).unwrap(),
            known.signature()
        );
    }
}

#[test]
fn requests_and_signatures_of_upstream_are_accepted() {
    for known in DETERMINISTIC.iter().chain(&RANDOM) {
        let (public, [control_plane, slice]) = (known.public(), subjects());

        assert_eq!(
            public.verify(zero_nonce().as_bytes(), &known.signature()),
            Ok(())
        );
        for (text, subject) in [(known.control_plane, &control_plane), (known.slice, &slice)] {
            assert_eq!(
                request::check(text.as_bytes(), subject, &public),
                Ok(()),
                "{}",
                known.name
            );
        }
    }
}

#[test]
fn requests_of_an_upstream_cluster_are_those_that_we_write_for_its_key() {
    let public = include_str!("../known/upstream.public.pem");
    let public = PublicKey::from_bytes(public.as_bytes()).unwrap();
    let [control_plane, slice] = subjects();

    // The signed part is compared byte for byte.
    for (text, subject) in [
        (
            include_str!("../known/upstream.control-plane.csr.pem"),
            &control_plane,
        ),
        (include_str!("../known/upstream.slice.csr.pem"), &slice),
    ] {
        assert_eq!(request::check(text.as_bytes(), subject, &public), Ok(()));
    }
}

#[test]
fn an_ecdsa_key_signs() {
    let key = ClusterKey::from_pem(RANDOM[0].key.as_bytes()).unwrap();
    let [subject, _] = subjects();
    let request = request::create(&key, &subject).unwrap();

    assert_eq!(
        request::check(request.as_bytes(), &subject, key.public_key()),
        Ok(())
    );
    let signature = key.sign(b"nonce").unwrap();
    assert_eq!(key.public_key().verify(b"nonce", &signature), Ok(()));
    let other = ClusterKey::from_pem(RANDOM[1].key.as_bytes());
    assert_eq!(other.unwrap_err(), KeyError::Type);
}

#[test]
fn generated_keys_depend_on_the_random_bytes_only() {
    for key_type in [KeyType::Ed25519, KeyType::Rsa] {
        let generate = |byte| ClusterKey::generate(key_type, [byte; 32]).unwrap();
        let (key, same, other) = (generate(1), generate(1), generate(2));

        assert_eq!(key.to_pem(), same.to_pem());
        assert_ne!(key.public_key(), other.public_key());
        let signature = key.sign(b"x").unwrap();
        assert_eq!(key.public_key().verify(b"x", &signature), Ok(()));
        assert_eq!(
            other.public_key().verify(b"x", &signature),
            Err(PublicKeyError::Signature)
        );
        assert!(!format!("{key:?}").contains("PRIVATE"));
    }
}

#[test]
fn a_generated_rsa_key_has_upstreams_size() {
    let key = ClusterKey::generate(KeyType::Rsa, [3; 32]).unwrap();

    // The signature is as long as the modulus: 2,048 bits.
    assert_eq!(key.sign(b"x").unwrap().len(), 256);
    let known = DETERMINISTIC[1].public().to_der().len();
    assert_eq!(key.public_key().to_der().len(), known);
}

#[test]
fn a_bare_ed25519_key_is_accepted() {
    let key = ClusterKey::generate(KeyType::Ed25519, [7; 32]).unwrap();
    let der = key.public_key().to_der();

    let bare = PublicKey::from_bytes(&der[der.len() - 32..]).unwrap();

    assert_eq!(bare, *key.public_key());
}

#[test]
fn a_signature_of_another_key_nonce_or_decoded_nonce_is_refused() {
    let [ed25519, rsa] = &DETERMINISTIC;
    let public = ed25519.public();
    let refused = |nonce: &[u8], signature: &[u8]| {
        assert_eq!(
            public.verify(nonce, signature),
            Err(PublicKeyError::Signature)
        );
    };

    refused(&[0; 64], &ed25519.signature());
    refused(nonce([[1; 32]; 2]).as_bytes(), &ed25519.signature());
    refused(zero_nonce().as_bytes(), &rsa.signature());
    refused(zero_nonce().as_bytes(), &[]);
}

#[test]
fn a_request_that_asks_for_anything_else_is_refused() {
    let [ed25519, rsa] = &DETERMINISTIC;
    let public = ed25519.public();
    let subject = Subject::control_plane("rome");
    let check = |text: &str| request::check(text.as_bytes(), &subject, &public);
    let refusal = |text: &str| check(text).unwrap_err();

    assert_eq!(refusal(rsa.control_plane), RequestError::Key);
    let message = refusal(ed25519.slice).to_string();
    assert!(
        message.contains("CN=milan-a8a4c692b93b") && message.contains("CN=rome"),
        "{message}"
    );
    assert!(matches!(refusal(""), RequestError::Syntax(_)));
    assert!(matches!(refusal(ed25519.public), RequestError::Syntax(_)));
    let twice = [ed25519.control_plane, ed25519.control_plane].concat();
    assert!(matches!(refusal(&twice), RequestError::Syntax(_)));
    let more = format!("{}\n", ed25519.control_plane);
    assert!(matches!(refusal(&more), RequestError::Syntax(_)));
    assert_eq!(check(ed25519.control_plane.trim_end()), Ok(()));
}

#[test]
fn a_request_with_names_that_the_signer_may_copy_is_refused() {
    let key = ClusterKey::generate(KeyType::Ed25519, [7; 32]).unwrap();
    let pair = rcgen::KeyPair::from_pem(key.to_pem()).unwrap();
    let request = |extend: fn(&mut rcgen::CertificateParams)| {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (name, value) in [
            (rcgen::DnType::OrganizationName, "liqo.io"),
            (rcgen::DnType::CommonName, "rome"),
        ] {
            let value = rcgen::DnValue::PrintableString(value.try_into().unwrap());
            params.distinguished_name.push(name, value);
        }
        extend(&mut params);
        params.serialize_request(&pair).unwrap().pem().unwrap()
    };
    let check = |text: String| {
        let text = text.replace("\r\n", "\n");
        request::check(
            text.as_bytes(),
            &Subject::control_plane("rome"),
            key.public_key(),
        )
    };

    assert_eq!(check(request(|_| {})), Ok(()));
    let with_name = request(|params| {
        let name = rcgen::SanType::DnsName("kubernetes".try_into().unwrap());
        params.subject_alt_names.push(name);
    });
    assert_eq!(check(with_name), Err(RequestError::Attributes));
    let of_masters = request(|params| {
        let group = rcgen::DnType::CustomDnType(vec![2, 5, 4, 11]);
        params.distinguished_name.push(group, "system:masters");
    });
    assert!(matches!(
        check(of_masters),
        Err(RequestError::Subject { .. })
    ));
}

#[test]
fn names_that_are_not_printable_are_refused() {
    let key = ClusterKey::generate(KeyType::Ed25519, [7; 32]).unwrap();

    let request = request::create(&key, &Subject::control_plane("r*me"));

    assert!(matches!(request, Err(RequestError::Syntax(_))));
}

fn certificate(key: &ClusterKey, subject: &Subject, from: i64, until: i64) -> String {
    let time = |seconds| rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds);
    let pair = rcgen::KeyPair::from_pem(key.to_pem()).unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.not_before = time(u64::try_from(from).unwrap());
    params.not_after = time(u64::try_from(until).unwrap());
    params.distinguished_name = rcgen::DistinguishedName::new();
    for (name, value) in [
        (rcgen::DnType::OrganizationName, &subject.organization),
        (rcgen::DnType::CommonName, &subject.common_name),
    ] {
        let value = rcgen::DnValue::PrintableString(value.as_str().try_into().unwrap());
        params.distinguished_name.push(name, value);
    }
    params
        .self_signed(&pair)
        .unwrap()
        .pem()
        .replace("\r\n", "\n")
}

#[test]
fn a_certificate_of_another_subject_or_key_is_refused() {
    let key = ClusterKey::generate(KeyType::Ed25519, [7; 32]).unwrap();
    let other = ClusterKey::generate(KeyType::Ed25519, [8; 32]).unwrap();
    let [rome, slice] = subjects();
    let text = certificate(&key, &rome, 1_000, 2_000);
    let parse =
        |subject, key: &ClusterKey| Certificate::parse(text.as_bytes(), subject, key.public_key());

    let parsed = parse(&rome, &key).unwrap();

    assert_eq!(parsed.not_before.as_second(), 1_000);
    assert_eq!(parsed.not_after.as_second(), 2_000);
    assert_eq!(parse(&slice, &key), Err(CertificateError::Other("subject")));
    assert_eq!(parse(&rome, &other), Err(CertificateError::Other("key")));
}

#[test]
fn renewal_is_at_two_thirds_but_not_at_once() {
    let second = |seconds| jiff::Timestamp::from_second(seconds).unwrap();
    let certificate = |from, until| Certificate {
        not_before: second(from),
        not_after: second(until),
    };

    // Valid for a year.
    assert_eq!(certificate(0, 3_000).renewal(second(300)), second(2_000));
    // The signer sets the start 300 s before the issue, so two thirds of 540 s are 60 s after it.
    assert_eq!(certificate(0, 540).renewal(second(300)), second(360));
    assert!(!certificate(0, 540).is_too_short(second(300)));
    // Two thirds are before the issue: renewal would always be due.
    assert_eq!(certificate(0, 420).renewal(second(300)), second(310));
    assert!(certificate(0, 420).is_too_short(second(300)));
    // After a failed attempt it waits.
    assert_eq!(certificate(0, 3_000).renewal(second(2_500)), second(2_510));
}

#[test]
fn a_kubeconfig_has_the_fields_of_upstream() {
    let access = Access {
        cluster: "milan",
        user: "controlplane-milan",
        server: "https://172.18.2.2:6443",
        certificate_authority: Some(b"ca"),
        proxy_url: None,
        namespace: Some("liqo-tenant-rome"),
        // As long as a certificate, so that a writer of YAML may want to fold it.
        client: Some((&[0; 300], b"key")),
    };

    let text = kubeconfig(&access).unwrap();

    let certificate = "A".repeat(400);
    assert_eq!(
        text,
        format!(
            "apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: Y2E=
    server: https://172.18.2.2:6443
  name: milan
contexts:
- context:
    cluster: milan
    namespace: liqo-tenant-rome
    user: controlplane-milan
  name: default-context
current-context: default-context
kind: Config
users:
- name: controlplane-milan
  user:
    client-certificate-data: {certificate}
    client-key-data: a2V5
"
        )
    );
    let through_proxy = Access {
        proxy_url: Some("http://10.71.0.2:8118"),
        certificate_authority: None,
        namespace: None,
        ..access
    };
    let text = kubeconfig(&through_proxy).unwrap();
    assert!(
        text.contains("    proxy-url: http://10.71.0.2:8118\n"),
        "{text}"
    );
    assert!(!text.contains("certificate-authority-data") && !text.contains("namespace"));
    let without_certificate = Access {
        client: None,
        ..access
    };
    let text = kubeconfig(&without_certificate).unwrap();
    assert!(text.ends_with("  user: {}\n"), "{text}");
}

proptest! {
    #[test]
    fn no_bytes_of_a_peer_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let known = &DETERMINISTIC[0];
        let (public, subject) = (known.public(), Subject::control_plane("rome"));
        let label = |label: &str| {
            x509_cert::der::pem::encode_string(label, x509_cert::der::pem::LineEnding::LF, &bytes)
        };

        for text in [bytes.clone(), label("CERTIFICATE REQUEST").unwrap().into_bytes()] {
            prop_assert!(request::check(&text, &subject, &public).is_err());
        }
        let _ = PublicKey::from_bytes(&bytes);
        let _ = PublicKey::from_der(&bytes);
        let text = label("CERTIFICATE").unwrap();
        prop_assert!(Certificate::parse(text.as_bytes(), &subject, &public).is_err());
        let _ = ClusterKey::from_pem(label("PRIVATE KEY").unwrap().as_bytes());
    }

    /// No single changed byte of a request is accepted.
    #[test]
    fn no_changed_request_is_accepted(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        use x509_cert::der::pem;
        let known = &DETERMINISTIC[0];
        let (label, mut der) = pem::decode_vec(known.control_plane.as_bytes()).unwrap();
        let at = at.index(der.len());
        der[at] ^= 1 << bit;
        let text = pem::encode_string(label, pem::LineEnding::LF, &der).unwrap();

        let subject = Subject::control_plane("rome");
        prop_assert!(request::check(text.as_bytes(), &subject, &known.public()).is_err());
    }
}
