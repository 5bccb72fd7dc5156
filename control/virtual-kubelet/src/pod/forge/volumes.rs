//! Volumes of the remote pod.

use super::api_server::ApiServerSupport;
use super::context::Context;
use super::token;
use control_api::root_ca::{self, ROOT_CA};
use k8s_openapi::api::core::v1::{
    KeyToPath, Pod, SecretProjection, ServiceAccountTokenProjection, Volume, VolumeProjection,
};

/// Prefix of the volumes that Kubernetes adds for the token of a ServiceAccount.
const TOKEN_VOLUME_PREFIX: &str = "kube-api-access-";
/// Key of the token in a Secret of a ServiceAccount.
const LEGACY_TOKEN_KEY: &str = "token";

/// Returns the name at the provider of a ConfigMap of the cluster `cluster_id`.
pub(crate) fn reflected_config_map_name(name: &str, cluster_id: &str) -> String {
    if name != ROOT_CA {
        return name.to_owned();
    }
    root_ca::reflected_name(cluster_id)
}

/// Returns the volumes of the remote pod. Projected volumes have the tokens and the root CA of this cluster, unless
/// the pod uses those of the provider.
pub(super) fn volumes(
    pod: &Pod,
    support: ApiServerSupport,
    context: &Context<'_>,
) -> Option<Vec<Volume>> {
    let mut volumes = pod.spec.as_ref()?.volumes.clone()?;
    if support == ApiServerSupport::Remote {
        return Some(volumes);
    }
    for volume in &mut volumes {
        let Some(sources) = volume.projected.as_mut().and_then(|it| it.sources.as_mut()) else {
            continue;
        };
        let secret = token_secret(pod, support, &volume.name, context);
        sources.retain_mut(|source| {
            if let Some(config_map) = &mut source.config_map {
                config_map.name = reflected_config_map_name(&config_map.name, context.origin);
            }
            match (&source.service_account_token, &secret) {
                (Some(token), Some(secret)) => {
                    *source = replaced(token, support, &volume.name, secret);
                    true
                }
                (Some(_), None) => false,
                (None, _) => true,
            }
        });
    }

    Some(volumes)
}

/// Returns the name of the Secret with the tokens of a volume, if it gets any.
fn token_secret(
    pod: &Pod,
    support: ApiServerSupport,
    volume: &str,
    context: &Context<'_>,
) -> Option<String> {
    match support {
        ApiServerSupport::TokenApi => {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            Some(token::token_secret_name(name))
        }
        ApiServerSupport::Legacy => {
            // Its tokens have no audience and no expiration, as volumes of users may request them.
            let secret = context.service_account_secret?;
            let is_default = volume.starts_with(TOKEN_VOLUME_PREFIX);
            is_default.then(|| secret.to_owned())
        }
        ApiServerSupport::Disabled | ApiServerSupport::Remote => None,
    }
}

fn replaced(
    token: &ServiceAccountTokenProjection,
    support: ApiServerSupport,
    volume: &str,
    secret: &str,
) -> VolumeProjection {
    let key = match support {
        ApiServerSupport::Legacy => LEGACY_TOKEN_KEY.to_owned(),
        ApiServerSupport::TokenApi | ApiServerSupport::Disabled | ApiServerSupport::Remote => {
            token::key(volume, &token.path)
        }
    };
    let item = KeyToPath {
        key,
        path: token.path.clone(),
        user: token.user,
        ..KeyToPath::default()
    };

    VolumeProjection {
        secret: Some(SecretProjection {
            items: Some(vec![item]),
            name: secret.to_owned(),
            optional: None,
        }),
        ..VolumeProjection::default()
    }
}
