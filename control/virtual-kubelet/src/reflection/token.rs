//! Pod -> Secret of the provider with the tokens of its ServiceAccount.

use super::peering::Peering;
use crate::pod::forge::{self, ApiServerSupport, token};
use control_api::labels;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Label of a Secret. Value: name of the ServiceAccount.
pub(super) const ACCOUNT: &str = "offloading.liqo.io/service-account-name";
/// Annotation of a Secret. Value: name of the pod.
pub(super) const POD_NAME: &str = "offloading.liqo.io/service-account-for-pod-name";
/// Annotation of a Secret. Value: UID of the pod.
pub(super) const POD_UID: &str = "offloading.liqo.io/service-account-for-pod-uid";
/// Annotation of a Secret. Value: the time when its first token expires.
pub(super) const EXPIRATION: &str = "offloading.liqo.io/service-account-expiration";

/// Spread of the refreshes after 80 % of the lifetime.
const JITTER_SECONDS_MAX: u64 = 30;

/// The Secret that a pod needs at the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenSecret {
    /// Name of the Secret.
    pub(crate) name: String,
    /// Its tokens; none if the pod needs no Secret.
    pub(crate) tokens: Vec<TokenKey>,
}

/// One key of a [`TokenSecret`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenKey {
    /// Key in the Secret.
    pub(crate) key: String,
    /// The token that it contains.
    pub(crate) token: TokenSpec,
}

/// Properties of a token. Keys with equal ones have the same token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokenSpec {
    /// Audience; the API server if absent.
    pub(crate) audience: Option<String>,
    /// Requested lifetime in seconds.
    pub(crate) expiration_seconds: i64,
}

/// A token that the API server of this cluster has issued.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) value: String,
    pub(crate) expiration: Timestamp,
}

/// State of a Secret with tokens at the provider, which may have changed it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenState {
    pub(crate) node: String,
    pub(crate) pod_name: Option<String>,
    pub(crate) pod_uid: Option<String>,
    pub(crate) expiration: Option<Timestamp>,
    pub(crate) keys: BTreeSet<String>,
}

impl TokenSecret {
    /// Returns the Secret that a pod needs.
    pub(crate) fn of(pod: &Pod, default: ApiServerSupport) -> Self {
        let tokens = token::tokens(pod, default).into_iter();
        let tokens = tokens.map(|it| TokenKey {
            key: it.key(),
            token: TokenSpec {
                audience: it.audience.map(str::to_owned),
                expiration_seconds: it.expiration_seconds,
            },
        });
        Self {
            name: token::token_secret_name(pod.metadata.name.as_deref().unwrap_or_default()),
            tokens: tokens.collect(),
        }
    }
}

impl TokenSpec {
    /// Returns the TokenRequest for a pod. The token is valid while the pod exists.
    pub(crate) fn request(&self, pod: &Pod) -> Value {
        json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": Vec::from_iter(&self.audience),
                "expirationSeconds": self.expiration_seconds,
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod.metadata.name,
                    "uid": pod.metadata.uid,
                },
            },
        })
    }

    /// Reads the properties of a [`request`](Self::request).
    pub(crate) fn of_request(request: &Value) -> Option<Self> {
        let spec = &request["spec"];
        Some(Self {
            audience: spec["audiences"][0].as_str().map(str::to_owned),
            expiration_seconds: spec["expirationSeconds"].as_i64()?,
        })
    }
}

impl Token {
    /// Reads the response to a TokenRequest.
    pub(crate) fn parse(response: &Value) -> Option<Self> {
        let status = &response["status"];
        Some(Self {
            value: status["token"].as_str()?.to_owned(),
            expiration: status["expirationTimestamp"].as_str()?.parse().ok()?,
        })
    }
}

impl TokenState {
    /// Reads the state of a Secret; `None` if it is not of a pod's tokens.
    pub(crate) fn of(secret: &Secret) -> Option<Self> {
        let label = |key| secret.metadata.labels.as_ref()?.get(key);
        let annotation = |key| secret.metadata.annotations.as_ref()?.get(key);
        Some(Self {
            node: label(labels::NODE_NAME)?.clone(),
            pod_name: annotation(POD_NAME).cloned(),
            pod_uid: annotation(POD_UID).cloned(),
            expiration: annotation(EXPIRATION).and_then(|it| it.parse().ok()),
            keys: secret
                .data
                .iter()
                .flatten()
                .map(|(key, _)| key.clone())
                .collect(),
        })
    }

    /// Returns whether the Secret has all tokens of a pod.
    pub(crate) fn is_complete(&self, pod: &Pod, desired: &TokenSecret) -> bool {
        let keys = desired.tokens.iter().map(|it| &it.key);
        self.pod_uid == pod.metadata.uid
            && self.pod_name == pod.metadata.name
            && keys.clone().all(|key| self.keys.contains(key))
            && self.keys.len() == keys.collect::<BTreeSet<_>>().len()
    }
}

/// Returns the Secret with the tokens of a pod; `None` if one is missing.
pub(crate) fn remote(
    pod: &Pod,
    desired: &TokenSecret,
    tokens: &BTreeMap<TokenSpec, Token>,
    (peering, node): (&Peering, &str),
) -> Option<Secret> {
    let mut data = BTreeMap::new();
    let mut expirations = BTreeSet::new();
    for TokenKey { key, token } in &desired.tokens {
        let token = tokens.get(token)?;
        data.insert(key.clone(), ByteString(token.value.clone().into_bytes()));
        expirations.insert(token.expiration);
    }
    let markers = peering.markers().into_iter();
    let labels = markers.chain([
        (labels::NODE_NAME, node),
        (ACCOUNT, forge::service_account(pod)),
    ]);
    let first = expirations.first()?;
    let seconds = Timestamp::from_second(first.as_second()).unwrap_or(*first);
    let annotations = [
        (POD_NAME, pod.metadata.name.clone().unwrap_or_default()),
        (POD_UID, pod.metadata.uid.clone().unwrap_or_default()),
        (EXPIRATION, seconds.to_string()),
    ];

    Some(Secret {
        metadata: ObjectMeta {
            name: Some(desired.name.clone()),
            labels: Some(
                labels
                    .map(|(key, it)| (key.to_owned(), it.to_owned()))
                    .collect(),
            ),
            annotations: Some(annotations.map(|(key, it)| (key.to_owned(), it)).into()),
            ..ObjectMeta::default()
        },
        data: Some(data),
        immutable: Some(false),
        string_data: None,
        type_: Some(super::secret::OPAQUE.to_owned()),
    })
}

/// Returns how long the tokens of a Secret remain before they are refreshed: 80 % of their lifetime, and up to 30 s that
/// depend on the pod. `granted` is the shortest lifetime of its tokens if this process has requested them.
pub(crate) fn until_refresh(
    expiration: Timestamp,
    desired: &TokenSecret,
    granted: Option<Duration>,
    (uid, now): (&str, Timestamp),
) -> Duration {
    let requested = desired.tokens.iter().map(|it| it.token.expiration_seconds);
    let requested = u64::try_from(requested.min().unwrap_or_default()).unwrap_or_default();
    // An API server may grant less than requested.
    let lifetime = granted.map_or(requested, |it| it.as_secs().min(requested));
    let rest = SignedDuration::from_secs(i64::try_from(lifetime / 5).unwrap_or(i64::MAX));
    let jitter = Duration::from_secs(jitter(uid).min(lifetime / 10));
    let at = expiration
        .checked_sub(rest)
        .and_then(|it| it.checked_add(jitter));

    Duration::try_from(at.unwrap_or(now).duration_since(now)).unwrap_or_default()
}

/// Returns a number of seconds for a pod, the same in each process.
fn jitter(uid: &str) -> u64 {
    // FNV-1a.
    let sum = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    sum % (JITTER_SECONDS_MAX + 1)
}
