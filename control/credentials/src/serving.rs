//! Certificate signing requests of kubelets that serve their API: organization `system:nodes`, common name
//! `system:node:NAME`, and the addresses of the kubelet as subject alternative names.
//!
//! Requests are compared byte for byte with the one that is expected, so no part of a request has a meaning here that it
//! lacks for the signer.

use crate::identity::Subject;
use crate::key::ClusterKey;
use crate::pem;
use crate::public_key::{Algorithm, PublicKey, PublicKeyError};
use crate::request::{LABEL, RequestError, info, name_of, sign};
use std::net::IpAddr;
use x509_cert::attr::{Attribute, Attributes};
use x509_cert::der::asn1::{Any, OctetString, PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{self, Decode as _, Encode as _};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::{GeneralName, GeneralNames};
use x509_cert::request::CertReq;

/// Group of nodes.
const GROUP: &str = "system:nodes";

/// Prefix of the users that nodes are.
const USER_PREFIX: &str = "system:node:";

/// Attribute with the extensions of a request (RFC 2985, section 5.4.2).
const EXTENSION_REQUEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");

/// Extension with subject alternative names (RFC 5280, section 4.2.1.6).
const ALTERNATIVE_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");

/// First line of a request in PEM.
const FIRST_LINE: &[u8] = b"-----BEGIN CERTIFICATE REQUEST-----";

/// A request whose signature is by its own key.
#[derive(Debug)]
pub struct ServingRequest {
    request: CertReq,
    is_rsa: bool,
}

/// Returns the subject of the serving certificate of a Node.
fn subject(node: &str) -> Subject {
    Subject {
        organization: GROUP.to_owned(),
        common_name: format!("{USER_PREFIX}{node}"),
    }
}

/// Creates the request of a Node's kubelet at an address.
///
/// # Errors
///
/// Returns an error if the name is no PrintableString (RFC 5280, appendix A), or the library fails to sign.
pub fn create(key: &ClusterKey, node: &str, address: IpAddr) -> Result<String, RequestError> {
    let mut info = info(&subject(node), key.public_key())?;
    info.attributes = attributes(address)?;

    sign(key, info)
}

impl ServingRequest {
    /// Parses a request and verifies its signature.
    ///
    /// # Errors
    ///
    /// Returns an error if it is not one PEM block with a request in DER of limited length, or if its key has not signed
    /// it.
    pub fn parse(text: &[u8]) -> Result<Self, RequestError> {
        // Parsers of PEM differ in which of several blocks they read.
        if !text.starts_with(FIRST_LINE) {
            return Err(RequestError::Syntax("it begins with other text".to_owned()));
        }
        let der = pem::decode(LABEL, text).map_err(RequestError::Syntax)?;
        let request = CertReq::from_der(&der)?;
        if request.to_der()? != der {
            return Err(RequestError::Syntax("it is not in DER".to_owned()));
        }
        let key = PublicKey::from_der(&request.info.public_key.to_der()?)?;
        let signature = request.signature.as_bytes();
        let signature = signature.ok_or(PublicKeyError::Signature)?;
        key.verify_request(&request.algorithm, &request.info.to_der()?, signature)?;

        Ok(Self {
            request,
            is_rsa: key.algorithm() == Algorithm::Rsa,
        })
    }

    /// Returns whether its subject is that of the serving certificate of a Node, and nothing else. Organization and common
    /// name may be in either order, and PrintableString or UTF8String.
    pub fn is_of_node(&self, node: &str) -> bool {
        let subject = subject(node);
        let printable = |text: &str| Any::encode_from(&PrintableStringRef::new(text)?);
        let utf8 = |text: &str| Any::encode_from(&Utf8StringRef::new(text)?);
        let names = [
            name_of(&subject, printable, false),
            name_of(&subject, printable, true),
            name_of(&subject, utf8, false),
            name_of(&subject, utf8, true),
        ];
        let own = self.request.info.subject.to_der();
        let mut names = names
            .into_iter()
            .filter_map(|name| name.and_then(|name| name.to_der()).ok());

        own.is_ok_and(|own| names.any(|name| name == own))
    }

    /// Returns whether it asks for this address as its only subject alternative name, and has no other attribute and
    /// extension.
    pub fn is_at(&self, address: IpAddr) -> bool {
        let own = self.request.info.attributes.to_der();
        let expected = attributes(address).and_then(|expected| expected.to_der());

        own.is_ok_and(|own| expected == Ok(own))
    }

    /// Returns whether its key is an RSA key, which can also encipher keys.
    pub fn is_rsa(&self) -> bool {
        self.is_rsa
    }
}

/// Returns the attributes of a request whose only subject alternative name is an address.
fn attributes(address: IpAddr) -> Result<Attributes, der::Error> {
    let names: GeneralNames = vec![GeneralName::from(address)];
    let extensions = vec![Extension {
        extn_id: ALTERNATIVE_NAMES,
        critical: false,
        extn_value: OctetString::new(names.to_der()?)?,
    }];
    let attribute = Attribute {
        oid: EXTENSION_REQUEST,
        values: vec![Any::encode_from(&extensions)?].try_into()?,
    };

    Attributes::try_from(vec![attribute])
}

#[cfg(test)]
mod tests;
