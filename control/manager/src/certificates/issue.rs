//! Creates keys and certificates. The key generator and the signatures read the randomness of the operating system.

use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use std::time::Duration;
use time::OffsetDateTime;

/// Validity of an authority, as upstream's.
pub(super) const AUTHORITY_VALIDITY: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Validity of a serving certificate.
pub(super) const SERVING_VALIDITY: Duration = Duration::from_secs(365 * 86_400);

/// The difference between the clocks of this pod and of an API server that certificates tolerate.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// A certificate to issue.
pub(crate) enum Order<'a> {
    /// A new authority, which signs itself.
    Authority {
        /// DNS name of the server that it is for.
        name: &'a str,
    },
    /// A certificate of a server.
    Serving {
        /// Signs the certificate.
        authority: &'a Pair,
        /// DNS names of the server.
        names: &'a [String],
    },
}

/// Issues a certificate that is valid from a time on. Controllers get it as a value.
pub(crate) type Issue = fn(&Order<'_>, Timestamp) -> Result<Pair, IssueError>;

/// A certificate cannot be issued.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueError {
    /// The generator, the authority or a name is invalid.
    #[error("failed to issue a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The end of the validity is not representable.
    #[error("failed to issue a certificate: the clock of the node is out of range")]
    Clock,
}

/// Issues a certificate with a new key (ECDSA, P-256).
///
/// # Errors
///
/// Returns [`IssueError`] if the authority is invalid, or if the clock is out of range.
pub(crate) fn issue(order: &Order<'_>, now: Timestamp) -> Result<Pair, IssueError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let names: Vec<String> = match order {
        Order::Authority { .. } => Vec::new(),
        Order::Serving { names, .. } => names.to_vec(),
    };
    let mut params = CertificateParams::new(names.clone())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let subject = &mut params.distinguished_name;
    subject.push(DnType::OrganizationName, "liqo.io");
    let certificate = match order {
        Order::Authority { name } => {
            // Authorities with different names are distinguishable in a bundle.
            let service = name.split('.').next().unwrap_or_default();
            subject.push(DnType::CommonName, format!("{service} {}", now.as_second()));
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            set_validity(&mut params, now, AUTHORITY_VALIDITY)?;
            params.self_signed(&key)?
        }
        Order::Serving { authority, .. } => {
            if let Some(name) = names.first() {
                subject.push(DnType::CommonName, name.as_str());
            }
            params.use_authority_key_identifier_extension = true;
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            set_validity(&mut params, now, SERVING_VALIDITY)?;
            let signer = KeyPair::from_pem(&authority.key)?;
            let issuer = Issuer::from_ca_cert_pem(&authority.certificate, signer)?;
            params.signed_by(&key, &issuer)?
        }
    };

    Ok(Pair {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn set_validity(
    params: &mut CertificateParams,
    now: Timestamp,
    validity: Duration,
) -> Result<(), IssueError> {
    let time = |time: Timestamp| {
        // X.509 has times before 1970, and TLS libraries refuse them.
        let seconds = time.as_second().max(0);
        OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| IssueError::Clock)
    };
    let (start, end) = (now.checked_sub(CLOCK_SKEW), now.checked_add(validity));
    params.not_before = time(start.map_err(|_| IssueError::Clock)?)?;
    params.not_after = time(end.map_err(|_| IssueError::Clock)?)?;

    Ok(())
}
