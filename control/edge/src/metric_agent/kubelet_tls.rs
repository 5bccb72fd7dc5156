//! TLS to kubelets: which of their certificates are accepted.

use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// Which certificates of kubelets are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletCertificates {
    /// Certificates of the cluster's authority, for the address or the name of the node.
    Verified,
    /// All certificates, because kubelets have self-signed certificates. A process between the agent and a kubelet can then read the
    /// agent's token.
    Any,
}

/// The certificates of the cluster's authority cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the file contains no certificates in PEM: check --kubelet-certificate-authority")]
pub(super) struct AuthorityError;

/// Makes connectors to kubelets.
#[derive(Clone, Debug)]
pub(super) struct KubeletTls {
    /// `None` accepts all certificates.
    verifier: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl KubeletTls {
    /// Creates connectors that accept these certificates. `authority` is that of the cluster, in PEM.
    ///
    /// # Errors
    ///
    /// Returns [`AuthorityError`] if no certificate of the authority can be read.
    pub(super) fn new(
        certificates: KubeletCertificates,
        authority: &[u8],
    ) -> Result<Self, AuthorityError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = match certificates {
            KubeletCertificates::Any => None,
            KubeletCertificates::Verified => {
                let mut roots = RootCertStore::empty();
                let certificates = CertificateDer::pem_slice_iter(authority);
                roots.add_parsable_certificates(certificates.filter_map(Result::ok));
                let provider = Arc::clone(&provider);
                let builder = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
                Some(builder.build().map_err(|_| AuthorityError)?)
            }
        };

        Ok(Self { verifier, provider })
    }

    /// Returns a connector to the kubelet of a node.
    ///
    /// # Errors
    ///
    /// Returns an error if the TLS library has no cipher suites.
    pub(super) fn connector(&self, node: &str) -> Result<TlsConnector, Error> {
        let verifier = KubeletVerifier {
            verifier: self.verifier.clone(),
            provider: Arc::clone(&self.provider),
            node: ServerName::try_from(node.to_owned()).ok(),
        };
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider));
        let config = config.with_safe_default_protocol_versions()?.dangerous();
        let config = config.with_custom_certificate_verifier(Arc::new(verifier));

        Ok(TlsConnector::from(Arc::new(config.with_no_client_auth())))
    }
}

/// Verifies the certificate of one kubelet.
#[derive(Debug)]
struct KubeletVerifier {
    verifier: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
    /// Name of the node, which is in certificates without addresses.
    node: Option<ServerName<'static>>,
}

impl ServerCertVerifier for KubeletVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        address: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(verifier) = &self.verifier else {
            return Ok(ServerCertVerified::assertion());
        };
        let by_address = verifier.verify_server_cert(certificate, rest, address, ocsp, now);
        match (&self.node, by_address) {
            (Some(node), Err(error)) => {
                let by_name = verifier.verify_server_cert(certificate, rest, node, ocsp, now);
                by_name.map_err(|_| error)
            }
            (_, by_address) => by_address,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
