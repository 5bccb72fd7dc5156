//! The CertificateSigningRequest, and its state.

use super::issue::{IssueError, Request};
use crate::server::review::Fingerprint;
use control_credentials::Certificate;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use k8s_openapi::jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use tokio_rustls::rustls::sign::CertifiedKey;

/// Longest part of a name that is the Node's, so that the name of a request is a valid one.
const NODE_LEN_MAX: usize = 200;

/// The shortest time from the issue of a certificate to its renewal.
const RENEWAL_MIN: Duration = Duration::from_secs(60);

/// Usages of a serving certificate with an ECDSA key.
const USAGES: [&str; 2] = ["digital signature", "server auth"];

/// Origin of the serving certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CertificateType {
    /// The signer of kubelets.
    Kubelet,
    /// The signer of kubelets on EKS.
    Aws,
    /// The virtual kubelet, without a signer.
    SelfSigned,
}

impl CertificateType {
    /// Returns the signer; `None` without one.
    pub(super) fn signer(self) -> Option<&'static str> {
        match self {
            Self::Kubelet => Some("kubernetes.io/kubelet-serving"),
            Self::Aws => Some("beta.eks.amazonaws.com/app-serving"),
            Self::SelfSigned => None,
        }
    }
}

/// A certificate with its key, and when to replace it.
pub(super) struct Signed {
    pub(super) key: CertifiedKey,
    pub(super) validity: Validity,
}

/// When a certificate is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    /// After four fifths of its validity.
    pub(super) renewal: Timestamp,
    /// End of the validity.
    pub(super) end: Timestamp,
}

/// The state of a request.
pub(super) enum Outcome {
    /// Neither approved nor denied, or not signed yet.
    Pending,
    /// There is a certificate.
    Signed(Box<Signed>),
    /// There will be none, with the reason.
    Failed(String),
}

/// Returns the name of a request, which only the holder of the key can have chosen.
pub(super) fn name(node: &str, request: &Request) -> String {
    let digest: Fingerprint = Sha256::digest(&request.pem).into();
    let digits = digest.iter().take(8).map(|byte| format!("{byte:02x}"));
    let node = &node[..node.floor_char_boundary(NODE_LEN_MAX)];

    format!("{node}-{}", digits.collect::<String>())
}

/// Returns the object of a request.
pub(super) fn object(request: &Request, signer: &str) -> CertificateSigningRequest {
    CertificateSigningRequest {
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.pem.clone().into_bytes()),
            signer_name: signer.to_owned(),
            usages: Some(USAGES.map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    }
}

/// Returns the state of a request.
pub(super) fn outcome(
    request: &Request,
    present: &CertificateSigningRequest,
    now: Timestamp,
) -> Outcome {
    if present.spec.request.0 != request.pem.as_bytes() {
        return Outcome::Failed("it was replaced by another request".to_owned());
    }
    let status = present.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let ended = conditions
        .iter()
        .find(|it| matches!(it.type_.as_str(), "Denied" | "Failed"));
    if let Some(ended) = ended {
        let message = ended.message.as_deref().unwrap_or_default();
        return Outcome::Failed(format!("{}: {message}", ended.type_));
    }
    match status.certificate {
        Some(pem) if !pem.0.is_empty() => match signed(request, &pem.0, now) {
            Ok(signed) => Outcome::Signed(Box::new(signed)),
            Err(error) => Outcome::Failed(error.to_string()),
        },
        _ => Outcome::Pending,
    }
}

fn signed(request: &Request, pem: &[u8], now: Timestamp) -> Result<Signed, IssueError> {
    let key = request.certified(pem)?;
    let validity = validity(&key, now)?;
    if validity.end <= now {
        return Err(IssueError::Expired);
    }

    Ok(Signed { key, validity })
}

/// Returns when to replace a certificate that was issued now.
///
/// # Errors
///
/// Returns an error if it is not a certificate.
pub(super) fn validity(key: &CertifiedKey, now: Timestamp) -> Result<Validity, IssueError> {
    let certificate = key.cert.first().ok_or(IssueError::Syntax)?;
    let certificate = Certificate::of_der(certificate).map_err(|_| IssueError::Syntax)?;
    let (start, end) = (certificate.not_before, certificate.not_after);
    let renewal = start.saturating_add(end.duration_since(start) * 4 / 5);
    let earliest = now.saturating_add(RENEWAL_MIN);
    let renewal = renewal.unwrap_or(end).max(earliest.unwrap_or(end));

    Ok(Validity { renewal, end })
}
