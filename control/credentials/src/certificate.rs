//! Certificates that a provider's API server has issued.

use crate::identity::Subject;
use crate::pem;
use crate::public_key::PublicKey;
use crate::request::name;
use jiff::Timestamp;
use std::time::Duration;
use x509_cert::certificate::CertificateInner;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::time::Validity;

/// Label of a certificate in PEM.
const LABEL: &str = "CERTIFICATE";

/// Last line of a certificate in PEM.
const END: &[u8] = b"-----END CERTIFICATE-----";

/// Returns the first block of a chain of certificates.
fn first(text: &[u8]) -> &[u8] {
    let mut positions = text.windows(END.len());
    let end = positions.position(|window| window == END);
    end.and_then(|start| text.get(..start + END.len()))
        .unwrap_or(text)
}

/// The shortest time between two renewals, or between issue and renewal.
pub const RENEWAL_MIN: Duration = Duration::from_secs(10);

/// Validity of a client certificate, which decides about its renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Start of its validity. Kubernetes' signer sets it five minutes before the issue.
    pub not_before: Timestamp,
    /// End of its validity.
    pub not_after: Timestamp,
}

/// A certificate is not the one that was requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It is not a certificate in PEM.
    #[error("the certificate is not a PEM block `CERTIFICATE`: {0}")]
    Syntax(String),
    /// It is of another subject or key.
    #[error("the certificate has another {0} than the request")]
    Other(&'static str),
}

impl Certificate {
    /// Parses an issued certificate, and checks that it is of this subject and key.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub fn parse(
        text: &[u8],
        subject: &Subject,
        key: &PublicKey,
    ) -> Result<Self, CertificateError> {
        let syntax = |error: x509_cert::der::Error| CertificateError::Syntax(error.to_string());
        let der = pem::decode(LABEL, first(text)).map_err(CertificateError::Syntax)?;
        let certificate = CertificateInner::<x509_cert::certificate::Rfc5280>::from_der(&der);
        let certificate = certificate.map_err(syntax)?;
        let fields = certificate.tbs_certificate();
        if fields.subject().to_der().map_err(syntax)?
            != name(subject)
                .and_then(|name| name.to_der())
                .map_err(syntax)?
        {
            return Err(CertificateError::Other("subject"));
        }
        if fields.subject_public_key_info().to_der().map_err(syntax)? != key.to_der() {
            return Err(CertificateError::Other("key"));
        }
        Self::of(fields.validity())
    }

    /// Parses the validity of a certificate in DER, of any subject and key.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub fn of_der(der: &[u8]) -> Result<Self, CertificateError> {
        let certificate = CertificateInner::<x509_cert::certificate::Rfc5280>::from_der(der);
        let certificate =
            certificate.map_err(|error| CertificateError::Syntax(error.to_string()))?;

        Self::of(certificate.tbs_certificate().validity())
    }

    fn of(validity: &Validity) -> Result<Self, CertificateError> {
        let time = |time: x509_cert::time::Time| {
            let seconds = time.to_unix_duration().as_secs();
            let seconds = i64::try_from(seconds).ok();
            let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
            time.ok_or_else(|| CertificateError::Syntax("its validity is out of range".to_owned()))
        };

        Ok(Self {
            not_before: time(validity.not_before)?,
            not_after: time(validity.not_after)?,
        })
    }

    /// Checks that the first certificate of a PEM text is of this key. Those of authorities may follow.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub fn check_key(text: &[u8], key: &PublicKey) -> Result<(), CertificateError> {
        let syntax = |error: x509_cert::der::Error| CertificateError::Syntax(error.to_string());
        let der = pem::decode(LABEL, first(text)).map_err(CertificateError::Syntax)?;
        let certificate = CertificateInner::<x509_cert::certificate::Rfc5280>::from_der(&der);
        let certificate = certificate.map_err(syntax)?;
        let found = certificate.tbs_certificate().subject_public_key_info();
        if found.to_der().map_err(syntax)? != key.to_der() {
            return Err(CertificateError::Other("key"));
        }

        Ok(())
    }

    /// Returns when to renew it: after two thirds of its validity, but not within [`RENEWAL_MIN`] of
    /// `last_attempt`, when it was issued or renewal was tried last.
    pub fn renewal(&self, last_attempt: Timestamp) -> Timestamp {
        let validity = self.not_after.duration_since(self.not_before);
        let due = self.not_before.saturating_add(validity * 2 / 3);
        let earliest = last_attempt.saturating_add(RENEWAL_MIN);
        let (due, earliest) = (
            due.unwrap_or(self.not_after),
            earliest.unwrap_or(last_attempt),
        );

        due.max(earliest)
    }

    /// Returns whether two thirds of its validity had passed when it was issued, so that it is always due.
    pub fn is_too_short(&self, issued: Timestamp) -> bool {
        self.renewal(issued) == issued.saturating_add(RENEWAL_MIN).unwrap_or(issued)
    }
}
