//! TLS of the kubelet's API.

use super::authority::provider;
use super::certificate::Serving;
use std::sync::Arc;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    self, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
};

/// Returns the configuration: TLS 1.2 or later, HTTP/1.1, and client certificates that are requested, not required.
///
/// # Errors
///
/// Returns an error if the TLS library has no cipher suites.
pub(crate) fn config(serving: Serving) -> Result<ServerConfig, rustls::Error> {
    let provider = provider();
    let requested = Arc::new(Requested {
        algorithms: provider.signature_verification_algorithms,
    });
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions()?;
    let config = config.with_client_cert_verifier(requested);
    let mut config = config.with_cert_resolver(Arc::new(serving));
    // Requests that switch to another protocol need HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];

    Ok(config)
}

/// Requests a client certificate, and checks that the client has its key.
///
/// The authority is checked for each request, as by a kubelet. So a client whose certificate is not accepted gets the
/// status 401, or is authenticated by its token, and authorities that are replaced count at once.
#[derive(Debug)]
struct Requested {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Requested {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
