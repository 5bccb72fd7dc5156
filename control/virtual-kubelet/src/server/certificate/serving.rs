//! The certificate of each TLS handshake.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

/// The certificate that is served now; none at first. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Serving(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

impl Serving {
    /// Serves this certificate from the next handshake on.
    pub(crate) fn set(&self, key: CertifiedKey) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::new(key));
    }

    /// Returns the certificate.
    pub(crate) fn current(&self) -> Option<Arc<CertifiedKey>> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}
