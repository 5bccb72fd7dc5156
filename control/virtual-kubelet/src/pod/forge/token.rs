//! The Secret with a pod's tokens at the provider.

use super::api_server::ApiServerSupport;
use k8s_openapi::api::core::v1::{Pod, ServiceAccountTokenProjection, Volume};
use sha2::{Digest as _, Sha256};

/// Lifetime of a token in seconds, if the volume states none.
const EXPIRATION_DEFAULT: i64 = 3600;

/// Bytes of the digest of a path in the key of its token.
const PATH_DIGEST_BYTES: usize = 3;

/// Maximal length of the name of a Secret in bytes.
const NAME_MAX: usize = 253;
const SUFFIX: &str = "-token";
/// Suffix of a name that has been shortened. No pod whose name is not shortened has a Secret with it.
const SHORTENED_SUFFIX: &str = ".token";
/// Bytes of the digest of a pod's name in a name that has been shortened.
const NAME_DIGEST_BYTES: usize = 8;

/// A token that a pod's volume contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// Name of the projected volume.
    pub(crate) volume: &'a str,
    /// Path in the volume.
    pub(crate) path: &'a str,
    /// Audience; the API server if absent.
    pub(crate) audience: Option<&'a str>,
    /// Requested lifetime in seconds.
    pub(crate) expiration_seconds: i64,
}

impl<'a> Token<'a> {
    fn new(volume: &'a str, projection: &'a ServiceAccountTokenProjection) -> Self {
        Self {
            volume,
            path: &projection.path,
            audience: projection.audience.as_deref().filter(|it| !it.is_empty()),
            expiration_seconds: projection.expiration_seconds.unwrap_or(EXPIRATION_DEFAULT),
        }
    }

    /// Returns the key of the token in the Secret. Paths may contain characters that keys may not.
    pub(crate) fn key(&self) -> String {
        key(self.volume, self.path)
    }
}

/// Returns the tokens that the Secret [`token_secret_name`] must contain for a pod; none if the pod's mode needs no Secret.
pub(crate) fn tokens(pod: &Pod, default: ApiServerSupport) -> Vec<Token<'_>> {
    let support = ApiServerSupport::of(pod, default);
    let volumes = pod.spec.iter().flat_map(|it| it.volumes.iter().flatten());
    let needed = volumes.filter(|_| support == ApiServerSupport::TokenApi);
    needed.flat_map(of_volume).collect()
}

fn of_volume(volume: &Volume) -> impl Iterator<Item = Token<'_>> {
    let projected = volume.projected.iter();
    let sources = projected.flat_map(|it| it.sources.iter().flatten());
    let tokens = sources.filter_map(|it| it.service_account_token.as_ref());
    tokens.map(|token| Token::new(&volume.name, token))
}

/// Returns the name of the Secret with a pod's tokens.
///
/// The name of a pod that is too long for the suffix is shortened and made unique by its digest. No two pods share a Secret, also
/// if a user derives the name of one from that of the other.
pub(crate) fn token_secret_name(pod: &str) -> String {
    if pod.len() + SUFFIX.len() <= NAME_MAX {
        return format!("{pod}{SUFFIX}");
    }
    let digest = hex_digest(pod, NAME_DIGEST_BYTES);
    let length = NAME_MAX - SHORTENED_SUFFIX.len() - digest.len() - 1;
    let head = &pod[..pod.floor_char_boundary(length)];
    // A label of a name ends with a letter or a digit.
    let head = head.trim_end_matches(|it: char| !it.is_ascii_alphanumeric());

    format!("{head}-{digest}{SHORTENED_SUFFIX}")
}

pub(super) fn key(volume: &str, path: &str) -> String {
    format!("{volume}-{}", hex_digest(path, PATH_DIGEST_BYTES))
}

fn hex_digest(text: &str, bytes: usize) -> String {
    let digest = Sha256::digest(text);
    digest
        .iter()
        .take(bytes)
        .map(|it| format!("{it:02x}"))
        .collect()
}
