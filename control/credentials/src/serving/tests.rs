//! Requests of hostile kubelets, and those of other programs.

use super::*;
use crate::key::KeyType;
use proptest::prelude::*;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{BitString, Ia5String, SetOfVec, TeletexStringRef};
use x509_cert::name::{Name, RdnSequence, RelativeDistinguishedName};
use x509_cert::request::CertReqInfo;

const ADDRESS: [u8; 4] = [10, 244, 0, 5];

const ORGANIZATION: &str = "2.5.4.10";
const ORGANIZATIONAL_UNIT: &str = "2.5.4.11";
const COMMON_NAME: &str = "2.5.4.3";
const BASIC_CONSTRAINTS: &str = "2.5.29.19";

/// A request of upstream's virtual kubelet v1.2 for the Node `milan`.
const UPSTREAM: &str = include_str!("../../known/upstream.serving.csr.pem");

fn key() -> ClusterKey {
    ClusterKey::generate(KeyType::Ed25519, [7; 32]).unwrap()
}

fn address() -> IpAddr {
    ADDRESS.into()
}

fn parsed(text: &str) -> ServingRequest {
    ServingRequest::parse(text.as_bytes()).unwrap()
}

/// Returns a request after a change of its signed part.
fn request(change: impl FnOnce(&mut CertReqInfo)) -> ServingRequest {
    let mut info = info(&subject("milan"), key().public_key()).unwrap();
    info.attributes = attributes(address()).unwrap();
    change(&mut info);

    parsed(&sign(&key(), info).unwrap())
}

/// Returns a request whose name has these attributes, those of each list in one relative name.
fn named(parts: &[&[(&str, &str)]]) -> ServingRequest {
    request(|info| {
        let mut names = RdnSequence::default();
        for part in parts {
            let attributes = part.iter().map(|(oid, text)| AttributeTypeAndValue {
                oid: ObjectIdentifier::new_unwrap(oid),
                value: Any::encode_from(&Utf8StringRef::new(text).unwrap()).unwrap(),
            });
            let set = SetOfVec::try_from(Vec::from_iter(attributes)).unwrap();
            names.push(RelativeDistinguishedName::from(set));
        }
        info.subject = Name::hazmat_from_rdn_sequence(names);
    })
}

fn extension(oid: ObjectIdentifier, value: &[u8]) -> Extension {
    Extension {
        extn_id: oid,
        critical: false,
        extn_value: OctetString::new(value).unwrap(),
    }
}

fn alternative_names(names: GeneralNames) -> Extension {
    extension(ALTERNATIVE_NAMES, &names.to_der().unwrap())
}

fn extensions(extensions: Vec<Extension>) -> Attribute {
    Attribute {
        oid: EXTENSION_REQUEST,
        values: vec![Any::encode_from(&extensions).unwrap()]
            .try_into()
            .unwrap(),
    }
}

fn with_attributes(attributes: Vec<Attribute>) -> ServingRequest {
    request(|info| info.attributes = Attributes::try_from(attributes).unwrap())
}

#[test]
fn our_request_is_of_its_node_and_address_only() {
    for address in [address(), "2001:db8::7".parse().unwrap()] {
        let request = parsed(&create(&key(), "milan", address).unwrap());

        assert!(request.is_of_node("milan") && request.is_at(address));
        assert!(!request.is_rsa());
        assert!(!request.is_of_node("naples") && !request.is_of_node(""));
        assert!(!request.is_at("10.244.0.6".parse().unwrap()));
        assert!(!request.is_at("::ffff:10.244.0.5".parse().unwrap()));
    }
}

#[test]
fn upstreams_request_is_of_its_node_and_address() {
    let request = parsed(UPSTREAM);

    assert!(request.is_of_node("milan") && request.is_at(address()));
    assert!(!request.is_rsa());
}

#[test]
fn the_request_of_rcgen_is_of_its_node_and_address() {
    let pair = rcgen::KeyPair::generate().unwrap();
    for is_reversed in [false, true] {
        let mut parts = [
            (rcgen::DnType::OrganizationName, "system:nodes"),
            (rcgen::DnType::CommonName, "system:node:milan"),
        ];
        if is_reversed {
            parts.reverse();
        }
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (name, value) in parts {
            params.distinguished_name.push(name, value);
        }
        let name = rcgen::SanType::IpAddress(address());
        params.subject_alt_names.push(name);
        let request = params.serialize_request(&pair).unwrap();

        let request = parsed(&request.pem().unwrap());

        assert!(request.is_of_node("milan") && request.is_at(address()));
    }
}

#[test]
fn an_rsa_key_is_known_as_such() {
    let key = include_str!("../../known/rsa.key.pem");
    let key = ClusterKey::from_pem(key.as_bytes()).unwrap();

    assert!(parsed(&create(&key, "milan", address()).unwrap()).is_rsa());
}

#[test]
fn a_subject_with_anything_else_is_of_no_node() {
    let group = (ORGANIZATION, "system:nodes");
    let user = (COMMON_NAME, "system:node:milan");
    let unit = (ORGANIZATIONAL_UNIT, "system:masters");
    assert!(named(&[&[group], &[user]]).is_of_node("milan"));

    for parts in [
        vec![&[group][..], &[user], &[unit]],
        vec![&[group], &[user], &[unit], &[(ORGANIZATIONAL_UNIT, "x")]],
        vec![&[group, unit], &[user]],
        vec![&[group, user]],
        vec![&[group], &[(ORGANIZATION, "system:masters")], &[user]],
        vec![&[(ORGANIZATION, "system:masters"), group], &[user]],
        vec![&[(ORGANIZATION, "system:masters")], &[user]],
        vec![&[(ORGANIZATION, "System:Nodes")], &[user]],
        vec![&[group], &[user], &[(COMMON_NAME, "system:node:naples")]],
        vec![&[group], &[user], &[user]],
        vec![&[group], &[(COMMON_NAME, "system:node:milan\0.naples")]],
        vec![&[group], &[(COMMON_NAME, "system:node:milan\0")]],
        vec![&[group], &[(COMMON_NAME, "system:node:milan ")]],
        vec![&[group], &[(COMMON_NAME, "milan")]],
        vec![&[group], &[(COMMON_NAME, "system:node:")]],
        vec![&[user]],
        vec![&[group]],
        vec![],
    ] {
        let request = named(&parts);
        assert!(!request.is_of_node("milan"), "{parts:?}");
    }
    let teletex = request(|info| {
        let value = |text: &str| Any::encode_from(&TeletexStringRef::new(text)?);
        info.subject = name_of(&subject("milan"), value, false).unwrap();
    });
    assert!(!teletex.is_of_node("milan"));
}

#[test]
fn further_alternative_names_are_noticed() {
    let own = || GeneralName::from(address());
    let text = |text: &str| Ia5String::new(text).unwrap();
    let uri = "https://kubernetes.default";
    for names in [
        vec![],
        vec![own(), own()],
        vec![own(), GeneralName::from(IpAddr::from([10, 0, 0, 1]))],
        vec![GeneralName::from(IpAddr::from([10, 0, 0, 1]))],
        vec![own(), GeneralName::DnsName(text("kubernetes"))],
        vec![GeneralName::DnsName(text("10.244.0.5"))],
        vec![own(), GeneralName::Rfc822Name(text("a@b"))],
        vec![own(), GeneralName::UniformResourceIdentifier(text(uri))],
        vec![own(), GeneralName::RegisteredId(EXTENSION_REQUEST)],
        vec![own(), GeneralName::DirectoryName(Name::default())],
        vec![GeneralName::IpAddress(
            OctetString::new(&ADDRESS[..3]).unwrap(),
        )],
        vec![GeneralName::IpAddress(
            OctetString::new([10, 244, 0, 5, 255, 255, 255, 255]).unwrap(),
        )],
    ] {
        let request = with_attributes(vec![extensions(vec![alternative_names(names.clone())])]);
        assert!(!request.is_at(address()), "{names:?}");
    }
}

#[test]
fn duplicate_and_further_extensions_and_attributes_are_noticed() {
    let own = || alternative_names(vec![GeneralName::from(address())]);
    let other = || alternative_names(vec![GeneralName::from(IpAddr::from([10, 0, 0, 1]))]);
    let authority = extension(
        ObjectIdentifier::new_unwrap(BASIC_CONSTRAINTS),
        &[0x30, 3, 1, 1, 255],
    );
    assert!(with_attributes(vec![extensions(vec![own()])]).is_at(address()));

    let mut two_values = extensions(vec![own()]);
    let second = Any::encode_from(&vec![other()]).unwrap();
    two_values.values.insert(second).unwrap();
    let challenge = Attribute {
        oid: ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.7"),
        values: vec![Any::encode_from(&Utf8StringRef::new("x").unwrap()).unwrap()]
            .try_into()
            .unwrap(),
    };
    let garbage = extension(ALTERNATIVE_NAMES, &[0xff; 7]);
    for attributes in [
        vec![],
        vec![extensions(vec![])],
        vec![extensions(vec![own(), own()])],
        vec![extensions(vec![own(), other()])],
        vec![extensions(vec![other(), own()])],
        vec![extensions(vec![own(), authority])],
        vec![extensions(vec![garbage])],
        vec![extensions(vec![own()]), extensions(vec![other()])],
        vec![extensions(vec![own()]), challenge],
        vec![two_values],
    ] {
        let request = with_attributes(attributes.clone());
        assert!(!request.is_at(address()), "{attributes:?}");
    }
}

#[test]
fn a_text_that_is_not_one_signed_request_is_refused() {
    let text = create(&key(), "milan", address()).unwrap();
    let refusal = |text: &str| ServingRequest::parse(text.as_bytes()).unwrap_err();
    let is_syntax = |text: &str| matches!(refusal(text), RequestError::Syntax(_));

    assert!(is_syntax(""));
    assert!(is_syntax(&format!("{text}{text}")));
    assert!(is_syntax(&format!("x\n{text}")));
    assert!(is_syntax(&text.replace("REQUEST", "REQUESTS")));
    assert!(is_syntax(
        &text.replace("-----\n", "-----\nProc-Type: 4\n\n")
    ));
    assert!(is_syntax(
        &text.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST")
    ));
    let label = "CERTIFICATE REQUEST";
    assert!(is_syntax(&pem::encode(label, &[0x30; 300])));
    let oversized = pem::encode(label, &vec![0; 1 << 20]);
    assert!(
        refusal(&oversized)
            .to_string()
            .contains("longer than 64 KiB")
    );
    let der = pem::decode(LABEL, text.as_bytes()).unwrap();
    let trailing = [&der[..], &[5, 0]].concat();
    assert!(is_syntax(&pem::encode(label, &trailing)));

    let swapped = with_swapped_attributes();
    assert_eq!(
        refusal(&swapped).to_string(),
        refusal_of("it is not in DER")
    );

    let signed = CertReq::from_der(&der).unwrap();
    for signature in [&[0; 64][..], &[]] {
        let mut unsigned = signed.clone();
        unsigned.signature = BitString::from_bytes(signature).unwrap();
        let text = pem::encode(label, &unsigned.to_der().unwrap());
        let refused = RequestError::Signature(PublicKeyError::Signature);
        assert_eq!(refusal(&text), refused);
    }
}

/// Returns a request whose attributes are not sorted as DER prescribes, although the signature is of the sorted ones.
fn with_swapped_attributes() -> String {
    let attribute = |oid| Attribute {
        oid: ObjectIdentifier::new_unwrap(oid),
        values: vec![Any::null()].try_into().unwrap(),
    };
    let pair = ["1.2.3.4", "1.2.3.5"].map(attribute);
    let encoded = pair.clone().map(|it| it.to_der().unwrap());
    let request = with_attributes(pair.to_vec()).request.to_der().unwrap();
    let sorted = encoded.concat();
    let at = request.windows(sorted.len()).position(|it| it == sorted);
    let (at, mut request) = (at.unwrap(), request);
    let swapped = [&encoded[1][..], &encoded[0]].concat();
    request[at..at + sorted.len()].copy_from_slice(&swapped);

    pem::encode(LABEL, &request)
}

fn refusal_of(reason: &str) -> String {
    RequestError::Syntax(reason.to_owned()).to_string()
}

proptest! {
    /// No single changed bit of a request is accepted.
    #[test]
    fn no_changed_request_is_accepted(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut der = pem::decode(LABEL, UPSTREAM.as_bytes()).unwrap();
        let at = at.index(der.len());
        der[at] ^= 1 << bit;

        let changed = ServingRequest::parse(pem::encode(LABEL, &der).as_bytes());

        prop_assert!(changed.is_err());
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(ServingRequest::parse(&bytes).is_err());
        prop_assert!(ServingRequest::parse(pem::encode(LABEL, &bytes).as_bytes()).is_err());
    }
}
