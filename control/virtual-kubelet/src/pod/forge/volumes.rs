//! Volumes of the remote pod.

use super::api_server::ApiServerSupport;
use super::context::Context;
use super::token;
use control_api::root_ca::{self, ROOT_CA};
use k8s_openapi::api::core::v1::{
    KeyToPath, Pod, SecretProjection, ServiceAccountTokenProjection, Volume, VolumeProjection,
};

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
        let secret = token_secret(pod, support);
        sources.retain_mut(|source| {
            if let Some(config_map) = &mut source.config_map {
                config_map.name = reflected_config_map_name(&config_map.name, context.origin);
            }
            match (&source.service_account_token, &secret) {
                (Some(token), Some(secret)) => {
                    *source = replaced(token, &volume.name, secret);
                    true
                }
                (Some(_), None) => false,
                (None, _) => true,
            }
        });
    }

    Some(volumes)
}

/// Returns the name of the Secret with the tokens of the pod, if it gets any.
fn token_secret(pod: &Pod, support: ApiServerSupport) -> Option<String> {
    match support {
        ApiServerSupport::TokenApi => {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            Some(token::token_secret_name(name))
        }
        ApiServerSupport::Disabled | ApiServerSupport::Remote => None,
    }
}

fn replaced(token: &ServiceAccountTokenProjection, volume: &str, secret: &str) -> VolumeProjection {
    let item = KeyToPath {
        key: token::key(volume, &token.path),
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
