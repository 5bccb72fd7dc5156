//! The Secret in which a consumer's controller manager signs a nonce.
//!
//! `liqoctl` signs a nonce itself, because it reads the key of the cluster for the certificate signing request. The
//! Secret is of upstream's `liqoctl`.

use super::nonce;
use crate::cluster::Cluster;
use crate::global::Global;
use crate::{objects, tenant};
use anyhow::{Context as _, Result};
use control_api::labels;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};

/// Returns the nonce of a provider that the tenant namespace contains.
///
/// # Errors
///
/// Returns an error with the remedy if there is none.
pub(crate) async fn stored(cluster: &Cluster, global: &Global, peer: &str) -> Result<Vec<u8>> {
    let namespace = tenant::named_or_default(cluster, global, peer).await?;
    let found = list(cluster, &namespace, peer).await?;
    let text = found.iter().find_map(nonce::text);
    text.map(<[u8]>::to_vec).with_context(|| {
        format!(
            "there is no nonce of {peer} in namespace {namespace} of {}: pass the one that `liqoctl get nonce` prints at the provider with --nonce",
            cluster.place()
        )
    })
}

/// Deletes those of the signed nonces that are not of `current`, the nonce of the provider.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn delete_stale(
    cluster: &Cluster,
    namespace: &str,
    signed: Vec<Secret>,
    current: Option<&[u8]>,
) -> Result<()> {
    let api = Api::<Secret>::namespaced(cluster.client.clone(), namespace);
    for secret in signed {
        if is_stale(&secret, current) {
            cluster.delete(&api, "Secret", &secret.name_any()).await?;
        }
    }
    Ok(())
}

/// Returns the Secrets with a nonce of the peer.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn list(cluster: &Cluster, namespace: &str, peer: &str) -> Result<Vec<Secret>> {
    let selector = format!("{},{}=true", objects::selector(peer), labels::SIGNED_NONCE);
    objects::select(cluster, namespace, &selector).await
}

/// Returns whether a Secret contains another nonce than the provider's. A Secret without nonce is being written.
fn is_stale(secret: &Secret, current: Option<&[u8]>) -> bool {
    nonce::text(secret).is_some_and(|text| Some(text) != current)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_another_nonce_is_stale() {
        let secret = |data| -> Secret { serde_json::from_value(json!({"data": data})).unwrap() };
        let signed = secret(json!({"nonce": "Zm9v", "signedNonce": "YmFy"}));

        assert!(!is_stale(&signed, Some(b"foo")));
        assert!(is_stale(&signed, Some(b"other")));
        assert!(is_stale(&signed, None));
        assert!(!is_stale(&secret(json!({})), Some(b"foo")));
    }
}
