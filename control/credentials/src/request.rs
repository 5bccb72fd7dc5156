//! Certificate signing requests (PKCS #10, RFC 2986).

use crate::identity::Subject;
use crate::key::{ClusterKey, KeyError};
use crate::pem;
use crate::public_key::{PublicKey, PublicKeyError};
use x509_cert::attr::{AttributeTypeAndValue, Attributes};
use x509_cert::der::asn1::{Any, BitString, PrintableStringRef, SetOfVec};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{self, Decode as _, Encode as _};
use x509_cert::name::{Name, RdnSequence, RelativeDistinguishedName};
use x509_cert::request::{CertReq, CertReqInfo, Version};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

/// Label of a request in PEM.
pub(crate) const LABEL: &str = "CERTIFICATE REQUEST";

const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Creates the request of a client certificate: the subject, the public key and nothing else.
///
/// Requests of Ed25519 and RSA keys depend on key and subject only, and have the bytes of upstream's.
///
/// # Errors
///
/// Returns an error if a name is no PrintableString (RFC 5280, appendix A), or the library fails to sign.
pub fn create(key: &ClusterKey, subject: &Subject) -> Result<String, RequestError> {
    sign(key, info(subject, key.public_key())?)
}

/// Returns the request with its signature, in PEM.
pub(crate) fn sign(key: &ClusterKey, info: CertReqInfo) -> Result<String, RequestError> {
    let signature = key.sign(&info.to_der()?)?;
    let request = CertReq {
        info,
        algorithm: key.public_key().signature_identifier(),
        signature: BitString::from_bytes(&signature)?,
    };

    Ok(pem::encode(LABEL, &request.to_der()?))
}

/// Checks that the request of a peer asks for exactly this subject and key, and is signed with the key.
///
/// A request with another name, attribute or extension is refused, because a certificate authority may copy
/// any of them into the certificate.
///
/// # Errors
///
/// Returns the first difference.
pub fn check(text: &[u8], subject: &Subject, key: &PublicKey) -> Result<(), RequestError> {
    let der = pem::decode(LABEL, text).map_err(RequestError::Syntax)?;
    let request = CertReq::from_der(&der)?;
    if request.info.public_key.to_der()? != key.to_der() {
        return Err(RequestError::Key);
    }
    let expected = info(subject, key)?;
    if request.info.subject != expected.subject {
        return Err(RequestError::Subject {
            subject: request.info.subject.to_string(),
            expected: expected.subject.to_string(),
        });
    }
    let info = request.info.to_der()?;
    if info != expected.to_der()? {
        return Err(RequestError::Attributes);
    }
    let signature = request.signature.as_bytes();
    let signature = signature.ok_or(PublicKeyError::Signature)?;
    key.verify_request(&request.algorithm, &info, signature)?;

    Ok(())
}

/// Returns the public key of a request, for a consumer whose key is not known otherwise.
///
/// # Errors
///
/// Returns what is wrong with the request.
pub fn public_key(text: &[u8]) -> Result<PublicKey, RequestError> {
    let der = pem::decode(LABEL, text).map_err(RequestError::Syntax)?;
    let request = CertReq::from_der(&der)?;

    Ok(PublicKey::from_der(&request.info.public_key.to_der()?)?)
}

/// A request cannot be made, or is not the one that is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It is not one PEM block with a request.
    #[error("it is not a single PEM block `CERTIFICATE REQUEST`: {0}")]
    Syntax(String),
    /// It asks for another subject.
    #[error("its subject is `{subject}`, not `{expected}`")]
    Subject {
        /// Subject of the request.
        subject: String,
        /// Subject that is expected.
        expected: String,
    },
    /// It has another key.
    #[error("its key is not the public key of the cluster")]
    Key,
    /// It asks for more than a subject.
    #[error("it contains attributes or extensions: request none")]
    Attributes,
    /// Its signature is invalid.
    #[error("its signature is not by its key")]
    Signature(#[from] PublicKeyError),
    /// It cannot be signed.
    #[error(transparent)]
    Sign(#[from] KeyError),
}

impl From<der::Error> for RequestError {
    fn from(error: der::Error) -> Self {
        Self::Syntax(error.to_string())
    }
}

/// Returns the signed part of a request without attributes.
pub(crate) fn info(subject: &Subject, key: &PublicKey) -> Result<CertReqInfo, der::Error> {
    Ok(CertReqInfo {
        version: Version::V1,
        subject: name(subject)?,
        public_key: SubjectPublicKeyInfoOwned::from_der(key.to_der())?,
        attributes: Attributes::default(),
    })
}

/// Returns the name: organization, then common name, each a PrintableString.
pub(crate) fn name(subject: &Subject) -> Result<Name, der::Error> {
    let printable = |text: &str| Any::encode_from(&PrintableStringRef::new(text)?);

    name_of(subject, printable, false)
}

/// Returns the name: organization, then common name, or in the other order if it `is_reversed`. `encode` returns the value of
/// each.
pub(crate) fn name_of(
    subject: &Subject,
    encode: impl Fn(&str) -> Result<Any, der::Error>,
    is_reversed: bool,
) -> Result<Name, der::Error> {
    let mut parts = [
        (ORGANIZATION, &subject.organization),
        (COMMON_NAME, &subject.common_name),
    ];
    if is_reversed {
        parts.reverse();
    }
    let mut names = RdnSequence::default();
    for (oid, text) in parts {
        let value = encode(text)?;
        let attributes = SetOfVec::try_from(vec![AttributeTypeAndValue { oid, value }])?;
        names.push(RelativeDistinguishedName::from(attributes));
    }

    Ok(Name::hazmat_from_rdn_sequence(names))
}
