//! Creates keys, requests for certificates, and self-signed certificates. The key generator and the signatures read the
//! randomness of the operating system.

use crate::server::authority::provider;
use k8s_openapi::jiff::Timestamp;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use std::net::IpAddr;
use std::time::Duration;
use time::OffsetDateTime;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;

/// Validity of a self-signed certificate.
pub(crate) const SELF_SIGNED_VALIDITY: Duration = Duration::from_secs(365 * 86_400);

/// The difference between the clocks of this pod and of a client that certificates tolerate.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// Group of Nodes, the organization of their certificates.
const NODES: &str = "system:nodes";

/// Most certificates of a chain.
const CHAIN_LEN_MAX: usize = 8;

/// Subject of a serving certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Name of the Node.
    pub(crate) node: String,
    /// Address at which clients connect.
    pub(crate) address: IpAddr,
}

/// A private key, with a request for a certificate. The key is only in memory.
pub(crate) struct Request {
    /// The request (PKCS #10) in PEM.
    pub(crate) pem: String,
    key: KeyPair,
}

/// A certificate or a request cannot be created or used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueError {
    /// The generator, the name or the address is invalid.
    #[error("failed to create a certificate: {0}")]
    Create(#[from] rcgen::Error),
    /// The validity is not representable.
    #[error("failed to create a certificate: the clock of the node is out of range")]
    Clock,
    /// The signer has issued something else.
    #[error("the signer has issued no certificate in PEM")]
    Syntax,
    /// The certificate is of another time.
    #[error(
        "the signer has issued a certificate that has expired: compare the clocks of the nodes"
    )]
    Expired,
    /// The certificate has another key than the request.
    #[error("the signer has issued a certificate for another key: {0}")]
    Key(#[from] rustls::Error),
}

impl Request {
    /// Creates a key (ECDSA, P-256) and the request.
    ///
    /// # Errors
    ///
    /// Returns [`IssueError`] if the generator fails.
    pub(crate) fn new(server: &Server) -> Result<Self, IssueError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let pem = params(server).serialize_request(&key)?.pem()?;

        Ok(Self { pem, key })
    }

    /// Returns the key with the certificates that a signer has issued.
    ///
    /// # Errors
    ///
    /// Returns [`IssueError`] if they are of another key.
    pub(crate) fn certified(&self, pem: &[u8]) -> Result<CertifiedKey, IssueError> {
        let chain = CertificateDer::pem_slice_iter(pem).take(CHAIN_LEN_MAX);
        let chain = chain.collect::<Result<Vec<_>, _>>();
        let chain = chain.ok().filter(|it| !it.is_empty());

        certified(chain.ok_or(IssueError::Syntax)?, &self.key)
    }
}

/// Returns a new key with a certificate that it signs itself.
///
/// # Errors
///
/// Returns [`IssueError`] if the generator fails, or if the clock is out of range.
pub(crate) fn self_signed(server: &Server, now: Timestamp) -> Result<CertifiedKey, IssueError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = params(server);
    let time = |time: Result<Timestamp, _>| {
        let time: Timestamp = time.map_err(|_: k8s_openapi::jiff::Error| IssueError::Clock)?;
        let seconds = time.as_second().max(0);
        OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| IssueError::Clock)
    };
    params.not_before = time(now.checked_sub(CLOCK_SKEW))?;
    params.not_after = time(now.checked_add(SELF_SIGNED_VALIDITY))?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.self_signed(&key)?;

    certified(vec![certificate.der().clone()], &key)
}

/// Returns what certificate and request have in common. The manager approves a request that contains nothing else: its
/// usages are those of the CertificateSigningRequest.
fn params(server: &Server) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, NODES);
    let name = format!("system:node:{}", server.node);
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = vec![SanType::IpAddress(server.address)];

    params
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: &KeyPair,
) -> Result<CertifiedKey, IssueError> {
    let der = PrivateKeyDer::try_from(key.serialize_der());
    let der = der.map_err(|_| IssueError::Syntax)?;

    Ok(CertifiedKey::from_der(chain, der, &provider())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_credentials::ServingRequest;
    use rcgen::CertificateSigningRequestParams;

    fn server() -> Server {
        Server {
            node: "milan".to_owned(),
            address: [10, 244, 0, 5].into(),
        }
    }

    #[test]
    fn a_request_is_for_the_node_and_the_address_of_its_pod() {
        let request = Request::new(&server()).unwrap();

        let parsed = CertificateSigningRequestParams::from_pem(&request.pem).unwrap();
        let mut subject = DistinguishedName::new();
        subject.push(DnType::OrganizationName, NODES);
        subject.push(DnType::CommonName, "system:node:milan");
        assert_eq!(parsed.params.distinguished_name, subject);
        let address = SanType::IpAddress([10, 244, 0, 5].into());
        assert_eq!(parsed.params.subject_alt_names, [address]);
    }

    /// The manager compares whole requests.
    #[test]
    fn the_manager_approves_the_request() {
        let request = Request::new(&server()).unwrap();
        let request = ServingRequest::parse(request.pem.as_bytes()).unwrap();

        assert!(request.is_of_node("milan"));
        assert!(request.is_at([10, 244, 0, 5].into()));
    }

    #[test]
    fn a_certificate_of_another_key_is_refused() {
        let (request, other) = (Request::new(&server()), Request::new(&server()));
        let (request, other) = (request.unwrap(), other.unwrap());
        let certificate = params(&server()).self_signed(&other.key).unwrap().pem();

        assert!(other.certified(certificate.as_bytes()).is_ok());
        assert!(request.certified(certificate.as_bytes()).is_err());
        assert!(request.certified(b"").is_err());
        assert!(request.certified(b"no certificate").is_err());
    }
}
