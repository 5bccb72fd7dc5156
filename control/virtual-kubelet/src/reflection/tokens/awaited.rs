//! Objects that the provider must have before a pod starts there, so that its volumes can be mounted at once.

use super::settings::TokenSettings;
use crate::reflection::summary::{Summary, keep};
use control_api::annotations;
use control_api::root_ca::{ROOT_CA, reflected_name};
use control_runtime::{Cache, Change, Key, Registration, Scope};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};

/// An object that a pod waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Awaited {
    /// The Secret with its tokens.
    Tokens,
    /// The ConfigMap with the CA of this cluster's API server.
    RootCa,
}

/// Pods that may no longer wait after a change at the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The pod of this name, with the namespace of the provider.
    Pod(Key),
    /// All pods of this namespace of the provider.
    Namespace(String),
}

/// Returns the resources of which [`pods_of`] takes changes.
pub(crate) fn registrations() -> [Registration; 2] {
    [
        Registration::of(Scope::Planned, keep::<Secret>),
        Registration::of(Scope::Planned, keep::<ConfigMap>),
    ]
}

/// Returns the objects that a namespace of the provider lacks for a pod.
pub(crate) fn missing(
    cache: &Cache,
    settings: &TokenSettings,
    (pod, namespace): (&Pod, &str),
) -> Vec<Awaited> {
    let cluster = settings.peering.cluster();
    let desired = settings.secret_of(pod);
    let secrets = cache.objects::<Summary<Secret>>(&cluster);
    let secret = secrets.get(&Key::new(namespace, &*desired.name));
    let has_tokens = secret.is_some_and(|it| {
        let tokens = it.tokens.as_deref().filter(|it| it.node == settings.node);
        let is_complete = tokens.is_some_and(|it| it.is_complete(pod, &desired));
        is_complete && it.is_reflected(&settings.peering) && !it.is_terminating
    });
    let root_ca = Key::new(namespace, reflected_name(&settings.peering.origin));
    let root_ca = cache.objects::<Summary<ConfigMap>>(&cluster).get(&root_ca);
    let has_root_ca =
        root_ca.is_some_and(|it| it.is_reflected(&settings.peering) && !it.is_terminating);
    let is_awaited = [
        (Awaited::Tokens, !desired.tokens.is_empty() && !has_tokens),
        (
            Awaited::RootCa,
            settings.reflects_root_ca && uses_root_ca(pod) && !has_root_ca,
        ),
    ];

    is_awaited
        .into_iter()
        .filter_map(|(awaited, is_missing)| is_missing.then_some(awaited))
        .collect()
}

/// Returns the pods that a change of a Secret or ConfigMap of the provider concerns.
pub(crate) fn pods_of(change: &Change<'_>, settings: &TokenSettings) -> Option<Waiting> {
    let key = &change.object.key;
    if change.object.cluster != settings.peering.cluster() {
        return None;
    }
    if change.is::<ConfigMap>() {
        let is_root_ca = key.name == reflected_name(&settings.peering.origin);
        return is_root_ca.then(|| Waiting::Namespace(key.namespace.clone()));
    }
    let tokens = change.after::<Summary<Secret>>()?.tokens.as_deref()?;
    let pod = tokens
        .pod_name
        .as_ref()
        .filter(|_| tokens.node == settings.node)?;

    Some(Waiting::Pod(Key::new(&*key.namespace, pod)))
}

/// Returns whether a projected volume of a pod contains the root CA of this cluster.
fn uses_root_ca(pod: &Pod) -> bool {
    let values = pod.metadata.annotations.as_ref();
    let support = values.and_then(|it| it.get(annotations::API_SERVER_SUPPORT));
    let volumes = pod.spec.iter().flat_map(|it| it.volumes.iter().flatten());
    let projected = volumes.filter_map(|it| it.projected.as_ref());
    let mut sources = projected.flat_map(|it| it.sources.iter().flatten());
    let is_projected =
        sources.any(|it| it.config_map.as_ref().is_some_and(|it| it.name == ROOT_CA));

    // Such a pod has the root CA of the provider.
    is_projected && support.is_none_or(|it| it != "remote")
}
