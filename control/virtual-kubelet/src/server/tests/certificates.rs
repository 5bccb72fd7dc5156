//! Authorities, and the certificates that they issue.

use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::time::Duration;
use time::OffsetDateTime;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) const CLIENT: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ClientAuth;
pub(crate) const SERVER: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ServerAuth;

/// An authority that signs itself.
pub(crate) struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub(crate) struct Issued {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
}

fn params(name: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    for group in groups {
        params
            .distinguished_name
            .push(DnType::OrganizationName, *group);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        Self {
            certificate: params.self_signed(&key).unwrap(),
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Signs a request, from a time on.
    pub(crate) fn sign(&self, request: &str, start: Timestamp, validity: Duration) -> String {
        let mut request = CertificateSigningRequestParams::from_pem(request).unwrap();
        let time = |time: Timestamp| OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap();
        request.params.not_before = time(start);
        request.params.not_after = time(start + validity);
        request.signed_by(&self.issuer).unwrap().pem()
    }

    pub(crate) fn client(&self, name: &str, groups: &[&str]) -> Issued {
        self.issue(name, groups, CLIENT)
    }

    pub(crate) fn issue(
        &self,
        name: &str,
        groups: &[&str],
        usage: ExtendedKeyUsagePurpose,
    ) -> Issued {
        let mut params = params(name, groups);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        }
    }
}

/// Encodes a certificate (RFC 7468).
pub(crate) fn pem(certificate: &CertificateDer<'_>) -> String {
    // The quotes of JSON surround Base64.
    let encoded = serde_json::json!(k8s_openapi::ByteString(certificate.to_vec())).to_string();
    let encoded = encoded.trim_matches('"');
    format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n")
}
