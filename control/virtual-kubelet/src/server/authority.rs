//! The authorities of client certificates.

use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;

/// Most authorities that are trusted at a time: the present one, and those that replace it.
const AUTHORITIES_MAX: usize = 64;

/// Returns the provider of cryptography.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The authorities whose client certificates are accepted; none at first. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientAuthority(Arc<RwLock<Option<Arc<dyn ClientCertVerifier>>>>);

impl ClientAuthority {
    /// Replaces the authorities by those of a PEM text, and returns their number.
    ///
    /// # Errors
    ///
    /// Returns an error if there is none; then the former ones stay.
    pub(crate) fn set(&self, pem: &str) -> Result<usize, String> {
        let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).take(AUTHORITIES_MAX);
        let certificates = certificates.collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| error.to_string())?;
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(certificates);
        let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
        let verifier = builder.build().map_err(|error| error.to_string())?;
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *current = Some(verifier);

        Ok(added)
    }

    /// Checks that one of the authorities has issued a certificate for clients, and that it is valid now.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the certificate.
    pub(crate) fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), String> {
        let current = self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let verifier = current.ok_or("the authorities of clients are not known yet")?;
        let (certificate, intermediates) = chain.split_first().ok_or("it is missing")?;
        let verified = verifier.verify_client_cert(certificate, intermediates, now);

        verified.map(drop).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::certificates::{Authority, SERVER};
    use std::time::Duration;

    #[test]
    fn a_certificate_is_judged_by_the_present_authorities() {
        let (old, new) = (Authority::new("old"), Authority::new("new"));
        let of_old = [old.client("admin", &[]).certificate];
        let of_new = [new.client("admin", &[]).certificate];
        let authority = ClientAuthority::default();
        let verify = |chain: &[CertificateDer<'_>]| authority.verify(chain, UnixTime::now());
        assert!(verify(&of_old).is_err());

        assert_eq!(authority.set(&old.pem()), Ok(1));
        assert_eq!((verify(&of_old), verify(&of_new).is_err()), (Ok(()), true));
        assert_eq!(authority.set(&(old.pem() + &new.pem())), Ok(2));
        assert_eq!((verify(&of_old), verify(&of_new)), (Ok(()), Ok(())));
        assert_eq!(authority.set(&new.pem()), Ok(1));
        assert_eq!((verify(&of_old).is_err(), verify(&of_new)), (true, Ok(())));
        for text in ["", "no certificate"] {
            assert!(authority.set(text).is_err());
        }
        assert_eq!(verify(&of_new), Ok(()));
        assert!(verify(&[]).is_err());
    }

    #[test]
    fn a_certificate_of_a_server_or_of_another_time_is_refused() {
        let trusted = Authority::new("ca");
        let authority = ClientAuthority::default();
        authority.set(&trusted.pem()).unwrap();
        let server = [trusted.issue("node", &[], SERVER).certificate];
        let client = [trusted.client("admin", &[]).certificate];

        assert!(authority.verify(&server, UnixTime::now()).is_err());
        let later = UnixTime::since_unix_epoch(Duration::from_secs(1 << 37));
        assert!(authority.verify(&client, later).is_err());
        assert_eq!(authority.verify(&client, UnixTime::now()), Ok(()));
    }
}
