//! The certificate that the agent serves, and the certificates of its clients.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};

/// Time between two reads of the files. The kubelet updates them some minutes after the Secret, which the controller
/// manager renews months before the certificate expires.
const PERIOD: Duration = Duration::from_secs(10);

/// Files with the certificate and the key of the agent, in PEM.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate, which may be followed by those of authorities.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The certificate in the files.
pub(super) struct ServingCertificate {
    files: CertificateFiles,
    last: Mutex<Option<Loaded>>,
}

/// A certificate with the content of the files that it was parsed from.
struct Loaded {
    content: (Vec<u8>, Vec<u8>),
    /// The last valid one.
    key: Option<Arc<CertifiedKey>>,
}

impl ServingCertificate {
    pub(super) fn new(files: CertificateFiles) -> Self {
        Self {
            files,
            last: Mutex::default(),
        }
    }

    /// Returns the certificate; `None` if there was no valid one yet.
    pub(super) fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.lock().as_ref()?.key.clone()
    }

    /// Follows the files without end.
    pub(super) async fn follow(&self) {
        let mut last_error = None;
        loop {
            let error = self.load().await.err().map(|it| it.kind());
            if error != last_error {
                let path = self.files.certificate.display();
                match error {
                    Some(kind) => tracing::warn!(%path, %kind, "failed to read the certificate"),
                    None => tracing::info!(%path, "the certificate is readable again"),
                }
            }
            last_error = error;
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Reads the files. Content that is no certificate with its key leaves the last one in use, because the two files
    /// are not replaced at the same time.
    pub(super) async fn load(&self) -> io::Result<()> {
        let certificate = tokio::fs::read(&self.files.certificate).await?;
        let key = tokio::fs::read(&self.files.key).await?;
        let content = (certificate, key);
        let mut last = self.lock();
        if last.as_ref().is_some_and(|it| it.content == content) {
            return Ok(());
        }
        let before = last.take().and_then(|it| it.key);
        let key = certified(&content.0, &content.1);
        match key {
            Some(_) => tracing::info!("serving with a new certificate"),
            None => tracing::warn!("the certificate and its key are invalid: keeping the last one"),
        }
        let key = key.map(Arc::new).or(before);
        *last = Some(Loaded { content, key });

        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Loaded>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key.
        f.debug_struct("ServingCertificate")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

/// Returns an acceptor with a certificate. It requests certificates of clients.
///
/// # Errors
///
/// Returns an error if the TLS library has no cipher suites.
pub(super) fn acceptor(certificate: Arc<ServingCertificate>) -> Result<TlsAcceptor, Error> {
    let provider = Arc::new(ring::default_provider());
    let tls = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let tls = tls.with_safe_default_protocol_versions()?;
    let tls = tls.with_client_cert_verifier(Arc::new(AnyClient { provider }));
    let mut tls = tls.with_cert_resolver(certificate);
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A resumed session would not show the certificate again.
    tls.session_storage = Arc::new(tokio_rustls::rustls::server::NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;

    Ok(TlsAcceptor::from(Arc::new(tls)))
}

fn certified(chain: &[u8], key: &[u8]) -> Option<CertifiedKey> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let key = PrivateKeyDer::from_pem_slice(key).ok()?;

    CertifiedKey::from_der(chain.ok()?, key, &ring::default_provider()).ok()
}

/// Has each client prove that it holds the key of the certificate that it presents, whatever the certificate is.
///
/// Each request then verifies the certificate itself: the authority may change while a connection is open, and a
/// client with another certificate gets a response with the reason.
#[derive(Debug)]
struct AnyClient {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Clients in Go present no certificate if its authority is not among the hints.
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
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
