//! The sender of a request: the API server proves itself by a certificate, and names the requester in header fields.
//!
//! The API server publishes its authority, the allowed names, and the names of the fields in the ConfigMap
//! `kube-system/extension-apiserver-authentication` (Kubernetes documentation, Configure the Aggregation Layer).

use http::HeaderMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use x509_cert::certificate::{CertificateInner, Rfc5280};
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::ObjectIdentifier;

/// Maximum length of the bundle of authorities, in bytes.
const BUNDLE_LEN_MAX: usize = 256 * 1024;

/// Maximum number of groups of a requester. Providers of identities limit them to some hundreds.
const GROUPS_MAX: usize = 1024;

/// The ConfigMap, parsed; or what is wrong with it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RequestHeader(pub(super) Result<Arc<Trust>, TrustError>);

/// The authorities whose certificates prove that a request is from the API server, and the names of its header fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trust {
    authorities: Vec<CertificateDer<'static>>,
    /// If empty, every certificate of the authorities is allowed.
    allowed_names: Vec<String>,
    user_fields: Vec<String>,
    uid_fields: Vec<String>,
    group_fields: Vec<String>,
    extra_prefixes: Vec<String>,
}

/// The ConfigMap cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TrustError {
    /// The API server does not proxy requests.
    #[error("`{0}` is missing: set the API server's flag --{0}")]
    Missing(&'static str),
    /// A key has another form.
    #[error("`{0}` is invalid: check the API server's flag of that name")]
    Invalid(&'static str),
    /// Every client with a certificate of the cluster, and so every consumer, could name any requester.
    #[error(
        "`requestheader-allowed-names` is empty, and clients have certificates of the same authority: set the API \
         server's flag --requestheader-allowed-names"
    )]
    SharedAuthority,
}

/// A requester, as the API server has authenticated it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requester {
    pub(super) user: String,
    pub(super) uid: Option<String>,
    pub(super) groups: BTreeSet<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

/// Why a request is not from the API server, or names no requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unauthenticated {
    /// The client has presented no certificate.
    NoCertificate,
    /// The certificate is not valid, or of another authority.
    Untrusted,
    /// The certificate has another common name.
    Name,
    /// The header fields name no requester, or cannot be read.
    Fields,
}

impl Unauthenticated {
    /// Returns the value of a label.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::NoCertificate => "no_certificate",
            Self::Untrusted => "untrusted_certificate",
            Self::Name => "certificate_name",
            Self::Fields => "header_fields",
        }
    }
}

impl fmt::Display for Unauthenticated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCertificate => {
                "the request has no client certificate: send it to the API server"
            }
            Self::Untrusted => {
                "the client certificate is not of the API server's requestheader-client-ca-file"
            }
            Self::Name => {
                "the name of the client certificate is not among requestheader-allowed-names"
            }
            Self::Fields => "the header fields name no requester",
        })
    }
}

impl RequestHeader {
    /// Parses the data of the ConfigMap.
    pub(super) fn of(data: &BTreeMap<String, String>) -> Self {
        Self(Trust::parse(data).map(Arc::new))
    }
}

impl Trust {
    fn parse(data: &BTreeMap<String, String>) -> Result<Self, TrustError> {
        const AUTHORITY: &str = "requestheader-client-ca-file";
        const CLIENT_AUTHORITY: &str = "client-ca-file";

        let text = data.get(AUTHORITY).ok_or(TrustError::Missing(AUTHORITY))?;
        let authorities = certificates(text).ok_or(TrustError::Invalid(AUTHORITY))?;
        let trust = Self {
            authorities,
            allowed_names: list(data, "requestheader-allowed-names")?,
            user_fields: list(data, "requestheader-username-headers")?,
            uid_fields: list(data, "requestheader-uid-headers")?,
            group_fields: list(data, "requestheader-group-headers")?,
            extra_prefixes: list(data, "requestheader-extra-headers-prefix")?,
        };
        if trust.user_fields.is_empty() {
            return Err(TrustError::Missing("requestheader-username-headers"));
        }
        let clients = data.get(CLIENT_AUTHORITY).map(|text| certificates(text));
        let is_shared = match clients {
            None => false,
            Some(None) => return Err(TrustError::Invalid(CLIENT_AUTHORITY)),
            Some(Some(clients)) => clients.iter().any(|it| trust.authorities.contains(it)),
        };
        if is_shared && trust.allowed_names.is_empty() {
            return Err(TrustError::SharedAuthority);
        }

        Ok(trust)
    }

    /// Returns the requester of a request on a connection whose client has proven that it holds the key of the first
    /// certificate of `chain`.
    ///
    /// # Errors
    ///
    /// Returns [`Unauthenticated`] if the client is not the API server, or if the fields name no requester.
    pub(super) fn requester(
        &self,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
        fields: &HeaderMap,
    ) -> Result<Requester, Unauthenticated> {
        self.verify(chain, now)?;
        self.read(fields).ok_or(Unauthenticated::Fields)
    }

    fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Unauthenticated> {
        let (certificate, rest) = chain.split_first().ok_or(Unauthenticated::NoCertificate)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.authorities.iter().cloned());
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
        let verifier = verifier.map_err(|_| Unauthenticated::Untrusted)?;
        verifier
            .verify_client_cert(certificate, rest, now)
            .map_err(|_| Unauthenticated::Untrusted)?;
        if self.allowed_names.is_empty() {
            return Ok(());
        }
        let name = common_name(certificate).ok_or(Unauthenticated::Name)?;
        match self.allowed_names.contains(&name) {
            true => Ok(()),
            false => Err(Unauthenticated::Name),
        }
    }

    fn read(&self, fields: &HeaderMap) -> Option<Requester> {
        let mut requester = Requester {
            user: first(fields, &self.user_fields)??,
            uid: first(fields, &self.uid_fields)?,
            ..Requester::default()
        };
        for value in self
            .group_fields
            .iter()
            .flat_map(|name| fields.get_all(name))
        {
            let group = text(value)?;
            if requester.groups.len() == GROUPS_MAX {
                return None;
            }
            requester.groups.insert(group);
        }
        for (name, value) in fields {
            let key = self.extra_prefixes.iter().find_map(|prefix| {
                let (start, key) = name.as_str().split_at_checked(prefix.len())?;
                (start.eq_ignore_ascii_case(prefix) && !key.is_empty()).then_some(key)
            });
            if let Some(key) = key {
                let key = percent_encoding::percent_decode_str(key);
                let key = key.decode_utf8().ok()?.into_owned();
                requester.extra.entry(key).or_default().push(text(value)?);
            }
        }

        Some(requester)
    }
}

/// Returns the first value of these fields; `Some(None)` if all are missing or empty, and `None` if it is not a text.
#[expect(
    clippy::option_option,
    reason = "a missing field is not an invalid one"
)]
fn first(fields: &HeaderMap, names: &[String]) -> Option<Option<String>> {
    let mut values = names.iter().filter_map(|name| fields.get(name));
    match values.find(|value| !value.is_empty()) {
        None => Some(None),
        Some(value) => text(value).map(Some),
    }
}

fn text(value: &http::HeaderValue) -> Option<String> {
    String::from_utf8(value.as_bytes().to_vec()).ok()
}

/// Parses a key whose value is a list in JSON. A missing key is an empty list.
fn list(data: &BTreeMap<String, String>, key: &'static str) -> Result<Vec<String>, TrustError> {
    let list = data
        .get(key)
        .map_or(Ok(Vec::new()), |text| serde_json::from_str(text));
    list.map_err(|_| TrustError::Invalid(key))
}

/// Returns the certificates of a bundle; `None` if there is none, or if one cannot be read.
fn certificates(text: &str) -> Option<Vec<CertificateDer<'static>>> {
    if text.len() > BUNDLE_LEN_MAX {
        return None;
    }
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    certificates.ok().filter(|it| !it.is_empty())
}

/// Returns the common name of a certificate; `None` if it has none or several.
fn common_name(certificate: &[u8]) -> Option<String> {
    const OID: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3"); // RFC 4519

    let certificate = CertificateInner::<Rfc5280>::from_der(certificate).ok()?;
    let subject = certificate.tbs_certificate().subject();
    if subject.iter().filter(|it| it.oid == OID).count() != 1 {
        return None;
    }
    let name = subject.common_name().ok()??;
    Some(name.value().into_owned())
}

#[cfg(test)]
mod tests;
