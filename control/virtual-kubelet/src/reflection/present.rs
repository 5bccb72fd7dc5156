//! An object of the provider as the cache has it.

use super::kind::Kind;
use super::peering::Peering;
use super::registrations::remote_watch;
use super::settings::Settings;
use super::summary::{Fingerprint, Summary};
use control_api::ShadowEndpointSlice;
use control_api::root_ca::reflected_name;
use control_runtime::{Cache, Cluster, Entry, Key, Ref};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::DynamicObject;

/// An object of the provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct Present<'a> {
    pub(super) uid: &'a str,
    pub(super) fingerprint: &'a Fingerprint,
    /// Whether this controller has created it.
    pub(super) is_reflected: bool,
    pub(super) is_terminating: bool,
}

impl<'a> Present<'a> {
    /// Returns the object of a key.
    pub(super) fn find(
        cache: &'a Cache,
        peering: &Peering,
        (kind, key): (Kind, &Key),
    ) -> Option<Self> {
        let object = Ref::new(&peering.cluster(), &kind.remote(), key);
        Self::of(cache.entry(&object)?, peering, kind)
    }

    /// Returns the object of an entry.
    pub(super) fn of(entry: &'a Entry, peering: &Peering, kind: Kind) -> Option<Self> {
        match kind {
            Kind::Service => Some(Self::new(entry, entry.get::<Summary<Service>>()?, peering)),
            Kind::Ingress => Some(Self::new(entry, entry.get::<Summary<Ingress>>()?, peering)),
            Kind::ConfigMap => Some(Self::new(
                entry,
                entry.get::<Summary<ConfigMap>>()?,
                peering,
            )),
            Kind::Secret => Some(Self::new(entry, entry.get::<Summary<Secret>>()?, peering)),
            Kind::EndpointSlice => {
                let summary = entry.get::<Summary<ShadowEndpointSlice>>()?;
                Some(Self::new(entry, summary, peering))
            }
            Kind::Other(_) => {
                let summary = entry.get::<Summary<DynamicObject>>()?;
                Some(Self::new(entry, summary, peering))
            }
        }
    }

    fn new<K>(entry: &'a Entry, summary: &'a Summary<K>, peering: &Peering) -> Self {
        Self {
            uid: &entry.uid,
            fingerprint: &summary.fingerprint,
            // Tokens of pods are those of the virtual node that runs the pod.
            is_reflected: summary.is_reflected(peering) && summary.tokens.is_none(),
            is_terminating: summary.is_terminating,
        }
    }
}

/// Returns whether a namespace of the provider has reflected objects besides the root CA, also those with tokens of pods.
///
/// The root CA is removed last: by its absence, a provider of this project knows that the namespace can be deleted.
pub(super) fn has_others(cache: &Cache, settings: &Settings, namespace: &str) -> bool {
    let cluster = settings.peering.cluster();
    let root_ca = reflected_name(&settings.peering.origin);
    let mut kinds = settings.policies.keys();

    kinds.any(|kind| {
        let watch = remote_watch(&settings.peering, *kind, namespace);
        // The provider deletes what it does not show with the namespace.
        let is_shown = !kind.is_other() || cache.refusal(&watch).is_none();
        let is_listed = cache.is_synced(&watch);
        let has_any = match kind {
            Kind::Service => has::<Service>(cache, &cluster, (namespace, "")),
            Kind::EndpointSlice => has::<ShadowEndpointSlice>(cache, &cluster, (namespace, "")),
            Kind::Ingress => has::<Ingress>(cache, &cluster, (namespace, "")),
            Kind::Secret => has::<Secret>(cache, &cluster, (namespace, "")),
            Kind::ConfigMap => has::<ConfigMap>(cache, &cluster, (namespace, &root_ca)),
            Kind::Other(_) => {
                let objects = cache.dynamic::<Summary<DynamicObject>>(&cluster, &kind.remote());
                objects.within(namespace).next().is_some()
            }
        };
        is_shown && (has_any || !is_listed)
    })
}

/// Returns whether a namespace has an object of another name.
fn has<K>(cache: &Cache, cluster: &Cluster, (namespace, name): (&str, &str)) -> bool
where
    K: kube::Resource<DynamicType = ()> + PartialEq + Send + Sync + 'static,
{
    let objects = cache.objects::<Summary<K>>(cluster);
    objects.within(namespace).any(|(key, _)| key.name != name)
}
