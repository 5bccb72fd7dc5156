//! The certificates in a Secret: which are valid, and which to issue.
//!
//! The API server trusts all authorities in `ca`. A new authority issues nothing before the objects that state it
//! have it, so that no replica serves a certificate that the API server does not trust:
//!
//! ```text
//! ca = [old]        -- old is due -->  ca = [new, old], ca.key = key of new
//! ca = [new, old]   -- in these objects -->  tls.crt, tls.key by new
//! ```

use super::issue::{Issue, IssueError, Order, Pair};
use control_credentials::Certificate;
use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier as _;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;

/// Keys of a Secret. Upstream's of the webhooks has no key of the authority.
pub(super) const CA: &str = "ca";
pub(super) const CA_KEY: &str = "ca.key";
/// Key of a Secret: the certificate of the server, in PEM.
pub(crate) const TLS_CERTIFICATE: &str = "tls.crt";
/// Key of a Secret: the private key of the server, in PEM.
pub(crate) const TLS_KEY: &str = "tls.key";

/// Number of authorities that the API server trusts at a time.
const AUTHORITIES_MAX: usize = 3;

/// Longest content of a key of the Secret that is read, in bytes.
const LEN_MAX: usize = 256 * 1024;

/// Interval of decisions while a certificate is due. The Secret and these objects are observed, too.
const RECHECK_PERIOD: Duration = Duration::from_secs(60);

/// The content of a Secret.
pub(crate) type Data = BTreeMap<String, ByteString>;

/// The changes of the Secret, and the time of the next decision.
pub(crate) struct Decision {
    /// The keys to write; empty if all are valid.
    pub(crate) data: Data,
    /// Why, for an Event.
    pub(super) reason: &'static str,
    /// Time of the next renewal.
    pub(super) due: Timestamp,
}

/// Decides what to issue. `names` are the DNS names of the server, and `is_published` is whether the
/// objects that state the authorities have the content of `ca`.
///
/// # Errors
///
/// Returns an error if a certificate cannot be issued.
pub(crate) fn decide(
    data: &Data,
    is_published: bool,
    names: &[String],
    now: Timestamp,
    issue: Issue,
) -> Result<Decision, IssueError> {
    let authorities = authorities(data, now);
    let signing = signing(data, &authorities);
    let serving = serving(data, &authorities, names, now);
    let (authority, mut changes) = match signing {
        Some(authority) if now < renewal(&authority.validity) => {
            (authority.pair(data), Data::new())
        }
        Some(_) | None => {
            let name = names.first().map_or("", String::as_str);
            let authority = issue(&Order::Authority { name }, now)?;
            let kept = authorities.iter().map(|it| it.pem.as_str());
            let bundle = [authority.certificate.as_str()].into_iter().chain(kept);
            let bundle: String = bundle.take(AUTHORITIES_MAX).collect();
            let changes = [(CA, bundle), (CA_KEY, authority.key.clone())];
            (
                authority,
                changes.map(|(key, it)| (key.to_owned(), bytes(&it))).into(),
            )
        }
    };
    let is_new = !changes.is_empty();
    let recheck = now.checked_add(RECHECK_PERIOD).unwrap_or(now);
    if let Some(serving) = serving {
        let due = renewal(&serving.validity);
        let is_due = now >= due || signing.is_none_or(|it| serving.authority != it.certificate);
        if is_new || !is_due || !is_published {
            let of_authority = signing.map_or(due, |it| renewal(&it.validity));
            return Ok(Decision {
                data: changes,
                reason: "AuthorityIssued",
                due: if is_new || is_due {
                    recheck
                } else {
                    due.min(of_authority)
                },
            });
        }
    }

    let order = Order::Serving {
        authority: &authority,
        names,
    };
    let pair = issue(&order, now)?;
    changes.insert(TLS_CERTIFICATE.to_owned(), bytes(&pair.certificate));
    changes.insert(TLS_KEY.to_owned(), bytes(&pair.key));
    Ok(Decision {
        data: changes,
        reason: "CertificateIssued",
        due: recheck,
    })
}

/// Returns the bundle of authorities for the API server; `None` if there is no valid one.
pub(super) fn bundle(data: &Data, now: Timestamp) -> Option<&ByteString> {
    let is_valid = !authorities(data, now).is_empty();
    data.get(CA).filter(|_| is_valid)
}

/// Returns the key and certificate for TLS.
pub(crate) fn certified_key(data: &Data) -> Option<CertifiedKey> {
    let (chain, key) = (bounded(data, TLS_CERTIFICATE)?, bounded(data, TLS_KEY)?);
    certified(chain, key)
}

/// Returns the provider of cryptography.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// An authority that is valid now.
struct Authority {
    pem: String,
    certificate: CertificateDer<'static>,
    validity: Certificate,
}

/// A certificate that is valid now.
struct Serving {
    validity: Certificate,
    /// The authority that has issued it.
    authority: CertificateDer<'static>,
}

impl Authority {
    fn pair(&self, data: &Data) -> Pair {
        let key = data.get(CA_KEY).map_or(&[][..], |it| &it.0);
        Pair {
            certificate: self.pem.clone(),
            key: String::from_utf8_lossy(key).into_owned(),
        }
    }
}

/// Returns the authorities that are valid now, the newest first.
fn authorities(data: &Data, now: Timestamp) -> Vec<Authority> {
    let text = bounded(data, CA).unwrap_or_default();
    let certificates = CertificateDer::pem_slice_iter(text).map_while(Result::ok);
    let authorities = certificates.filter_map(|certificate| {
        let validity = Certificate::of_der(&certificate).ok()?;
        let is_valid = validity.not_before <= now && now < validity.not_after;
        is_valid.then(|| Authority {
            pem: pem(&certificate),
            certificate,
            validity,
        })
    });
    let mut authorities: Vec<_> = authorities.take(AUTHORITIES_MAX).collect();
    authorities.sort_by_key(|it| std::cmp::Reverse(it.validity.not_before));
    authorities
}

/// Returns the authority whose key is in the Secret.
fn signing<'a>(data: &Data, authorities: &'a [Authority]) -> Option<&'a Authority> {
    let key = bounded(data, CA_KEY)?;
    authorities
        .iter()
        .find(|it| certified(it.pem.as_bytes(), key).is_some())
}

/// Returns the serving certificate, if an API server that trusts these authorities accepts it now.
fn serving(
    data: &Data,
    authorities: &[Authority],
    names: &[String],
    now: Timestamp,
) -> Option<Serving> {
    let key = certified_key(data)?;
    let certificate = key.cert.first()?;
    let validity = Certificate::of_der(certificate).ok()?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().try_into().ok()?));
    let name = ServerName::try_from(names.first()?.as_str()).ok()?;
    let authority = authorities.iter().find(|authority| {
        let verified = verifier(&authority.certificate)
            .map(|it| it.verify_server_cert(certificate, &[], &name, &[], now));
        matches!(verified, Some(Ok(_)))
    })?;

    Some(Serving {
        validity,
        authority: authority.certificate.clone(),
    })
}

fn verifier(authority: &CertificateDer<'static>) -> Option<Arc<WebPkiServerVerifier>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).ok()?;
    let builder = WebPkiServerVerifier::builder_with_provider(roots.into(), provider());
    builder.build().ok()
}

/// Returns a chain with its key, unless they do not belong together.
fn certified(chain: &[u8], key: &[u8]) -> Option<CertifiedKey> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let key = PrivateKeyDer::from_pem_slice(key).ok()?;

    CertifiedKey::from_der(chain.ok()?, key, &provider()).ok()
}

/// Returns when a certificate is renewed: after two thirds of its validity.
fn renewal(validity: &Certificate) -> Timestamp {
    let length = validity.not_after.duration_since(validity.not_before);
    let due = validity.not_before.checked_add(length * 2 / 3);
    due.unwrap_or(validity.not_after)
}

fn bounded<'a>(data: &'a Data, key: &str) -> Option<&'a [u8]> {
    let bytes = data.get(key).map(|it| it.0.as_slice());
    bytes.filter(|it| it.len() <= LEN_MAX)
}

fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

/// Encodes a certificate (RFC 7468).
fn pem(certificate: &[u8]) -> String {
    use base64::Engine as _;

    let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
    let lines = encoded.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let lines = lines.map(|line| line.into_owned() + "\n");
    let body: String = lines.collect();

    format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
}
