//! The certificate that the agent serves, and the certificates of its clients.

use https_server::AnyClient;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, ServerConfig};

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

/// Returns the configuration of TLS with a certificate. It requests certificates of clients.
///
/// # Errors
///
/// Returns an error if the TLS library has no cipher suites.
pub(super) fn tls(certificate: Arc<ServingCertificate>) -> Result<ServerConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let tls = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let tls = tls.with_safe_default_protocol_versions()?;
    let tls = tls.with_client_cert_verifier(AnyClient::new(&provider));
    let mut tls = tls.with_cert_resolver(certificate);
    // A resumed session would not show the certificate again.
    tls.session_storage = Arc::new(tokio_rustls::rustls::server::NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;

    Ok(tls)
}

fn certified(chain: &[u8], key: &[u8]) -> Option<CertifiedKey> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let key = PrivateKeyDer::from_pem_slice(key).ok()?;

    CertifiedKey::from_der(chain.ok()?, key, &ring::default_provider()).ok()
}
